//! The tests that run seeds.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::plan::{ELECTORS, LOCKED_JOBS, MEMBERS, OUTER, SCENARIOS, WIDE};
use crate::runner;

/// Number of seeds that draw locks and quorums: some of each theme.
const DEFAULT_SEEDS: u64 = 128;
/// Number of seeds whose Jobs hold locks.
const DEFAULT_JOB_SEEDS: u64 = 24;
/// Number of seeds whose locks use the whole API.
const DEFAULT_WIDE_SEEDS: u64 = 45;
/// Number of seeds whose candidates elect by a Lease.
const DEFAULT_ELECTOR_SEEDS: u64 = 20;
/// Number of seeds whose quorums change their members.
const DEFAULT_MEMBER_SEEDS: u64 = 20;
/// Number of seeds with external masters, a set clock of the API server, or terms of hours.
const DEFAULT_OUTER_SEEDS: u64 = 20;
/// Number of seeds in which members lose keys, of which at least one must find a violation.
const CONTROL_SEEDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds to run: the list in `SEED`, or `SEEDS` seeds from `FIRST` on.
fn seeds() -> Vec<u64> {
    let named = std::env::var("SEED").unwrap_or_default();
    if !named.is_empty() {
        return named.split_whitespace().map(|seed| seed.parse().expect("SEED holds numbers")).collect();
    }
    range(number("FIRST").unwrap_or(0), number("SEEDS").unwrap_or(DEFAULT_SEEDS))
}

fn range(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

#[test]
fn no_seed_violates_anything() {
    if let Some(seed) = number("SEED") {
        let outcome = runner::run(seed, &[("ALOUD", "1")]);
        println!("{}", outcome.output);
        assert_eq!(outcome.violations(), Vec::<String>::new(), "SEED={seed}");
        return;
    }
    let all = seeds();
    let seeds = all.len() as u64;
    let counts = run(all);
    let few = std::env::var("SEED").is_ok() || seeds < CONTROL_SEEDS;
    assert!(
        few || counts["grants"] > seeds && counts["renewals"] > seeds && counts["outside"] > seeds,
        "too little happened"
    );
}

#[test]
fn no_seed_whose_jobs_hold_locks_violates_anything() {
    let Some((seeds, counts)) = run_range(LOCKED_JOBS, DEFAULT_JOB_SEEDS, 4) else { return };
    let happened = ["jobs_started", "jobs_stopped", "jobs_released", "job_pods"];
    assert!(seeds < CONTROL_SEEDS || happened.iter().all(|name| counts[*name] > seeds), "too little happened");
}

#[test]
fn no_seed_whose_candidates_elect_by_a_lease_violates_anything() {
    let Some((seeds, counts)) = run_range(ELECTORS, DEFAULT_ELECTOR_SEEDS, 4) else { return };
    assert!(seeds < CONTROL_SEEDS || counts["led"] > seeds * 1_000, "too little happened");
}

#[test]
fn no_seed_whose_quorums_change_violates_anything() {
    let Some((seeds, counts)) = run_range(MEMBERS, DEFAULT_MEMBER_SEEDS, 4) else { return };
    let happened = ["changes", "readmissions"];
    assert!(seeds < CONTROL_SEEDS || happened.iter().all(|name| counts[*name] > seeds / 2), "too little happened");
}

#[test]
fn no_seed_with_masters_set_clocks_or_hours_violates_anything() {
    let Some((seeds, counts)) = run_range(OUTER, DEFAULT_OUTER_SEEDS, 4) else { return };
    let happened = ["grants", "renewals"];
    assert!(seeds < CONTROL_SEEDS || happened.iter().all(|name| counts[*name] > seeds), "too little happened");
}

/// Runs the first seeds of this range, which the other tests do not run.
#[test]
fn no_seed_with_the_whole_api_violates_anything() {
    let Some((seeds, counts)) = run_range(WIDE, DEFAULT_WIDE_SEEDS, 2) else { return };
    assert!(seeds < CONTROL_SEEDS || counts["grants"] > seeds, "too little happened");
}

/// Runs the first seeds of a range: this number of them, or this part of `SEEDS`. Returns their number and their counters.
///
/// `None` if the environment names other seeds, which another test runs.
fn run_range(first: u64, default: u64, part: u64) -> Option<(u64, BTreeMap<String, u64>)> {
    if std::env::var("SEED").is_ok() || std::env::var("FIRST").is_ok() {
        return None;
    }
    let seeds = number("SEEDS").map_or(default, |seeds| seeds / part);
    Some((seeds, run(range(first, seeds))))
}

/// Runs these seeds, and adds up their counters.
fn run(all: Vec<u64>) -> BTreeMap<String, u64> {
    let (seeds, started) = (all.len(), Instant::now());
    let mut wrong = BTreeMap::new();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut warnings = BTreeMap::<String, u64>::new();
    runner::run_all(all.into_iter(), &[], |outcome| {
        let violations = outcome.violations();
        if !violations.is_empty() {
            println!("SEED={}: {violations:#?}", outcome.seed);
            if outcome.result.is_none() {
                println!("{}", outcome.output);
            }
            wrong.insert(outcome.seed, outcome.output.clone());
        }
        for (map, field) in [(&mut counts, "counts"), (&mut warnings, "warnings")] {
            for (name, count) in outcome.result.iter().flat_map(|result| result[field].as_object()).flatten() {
                let (sum, count) = (map.entry(name.clone()).or_default(), count.as_u64().unwrap_or_default());
                *sum = if name.ends_with("_ms") { count.max(*sum) } else { *sum + count };
            }
        }
    });
    let took = started.elapsed().as_secs_f64();
    println!("operator simulation: {seeds} seeds, {counts:?}, {} with violations, {took:.1} s", wrong.len());
    println!("warnings: {warnings:#?}");
    assert!(wrong.is_empty(), "seeds with violations: {:?}", wrong.keys().collect::<Vec<_>>());
    counts
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in number("SEED").map_or(vec![0, 1, 2, LOCKED_JOBS, WIDE, ELECTORS, MEMBERS, OUTER], |seed| vec![seed]) {
        let [first, second] = [0, 1].map(|_| runner::run(seed, &[]));
        assert!(first.result.is_some(), "{}", first.output);
        assert_eq!(first.result, second.result, "SEED={seed}");
    }
}

#[test]
fn no_written_history_violates_anything() {
    let mut wrong = Vec::new();
    for scenario in SCENARIOS {
        let outcome = runner::run(17, &[("SCENARIO", scenario.name)]);
        let violations = outcome.violations();
        if !violations.is_empty() {
            println!("{}\nSEED=17 SCENARIO={:?}: {violations:#?}", outcome.output, scenario.name);
            wrong.push(scenario.name);
        }
    }
    assert_eq!(wrong, Vec::<&str>::new());
}

#[test]
fn the_oracle_finds_two_holders_if_members_lose_data() {
    for seed in 0..CONTROL_SEEDS {
        let outcome = runner::run(seed, &[("CONTROL", "forget")]);
        if outcome.violations().iter().any(|violation| violation.starts_with("two holders")) {
            println!("found with seed {seed}");
            return;
        }
    }
    panic!("the simulation finds no violation");
}

/// Finds a shorter plan with the same violation.
///
/// `SEED=17 cargo test --workspace --test operator shorter -- --ignored --nocapture`.
#[test]
#[ignore = "a tool"]
fn a_plan_is_made_shorter() {
    let seed = number("SEED").expect("SEED");
    let kind = |text: &str| text.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    let first = runner::run(seed, &[]);
    let wanted = first.violations().first().map(|text| kind(text)).expect("a seed with a violation");
    let count = first.result.as_ref().and_then(|result| result["faults"].as_u64()).unwrap_or_default();
    let mut kept: Vec<u64> = (0..count).collect();
    let places = |kept: &[u64]| kept.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut portion = kept.len().div_ceil(2);
    while portion > 0 {
        let mut start = 0;
        while start < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(start..(start + portion).min(kept.len()));
            let outcome = runner::run(seed, &[("KEEP", &places(&fewer))]);
            if outcome.violations().iter().any(|text| kind(text) == wanted) {
                kept = fewer;
                println!("{} faults: KEEP={}", kept.len(), places(&kept));
            } else {
                start += portion;
            }
        }
        portion /= 2;
    }
    let last = runner::run(seed, &[("KEEP", &places(&kept)), ("ALOUD", "1")]);
    println!("{}\n{:#?}\nSEED={seed} KEEP={}", last.output, last.violations(), places(&kept));
}
