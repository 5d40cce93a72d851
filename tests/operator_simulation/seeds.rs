//! The tests that run seeds.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::runner;

const DEFAULT_SEEDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "the product does not hold all of it yet"]
fn no_seed_violates_anything() {
    if let Some(seed) = number("SEED") {
        let outcome = runner::run(seed, &[("ALOUD", "1")]);
        println!("{}", outcome.output);
        assert_eq!(outcome.violations(), Vec::<String>::new(), "SEED={seed}");
        return;
    }
    let (first, seeds, started) =
        (number("FIRST").unwrap_or(0), number("SEEDS").unwrap_or(DEFAULT_SEEDS), Instant::now());
    let mut wrong = BTreeMap::new();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut warnings = BTreeMap::<String, u64>::new();
    runner::run_all(first..first + seeds, &[], |outcome| {
        let violations = outcome.violations();
        if !violations.is_empty() {
            println!("SEED={}: {violations:#?}", outcome.seed);
            wrong.insert(outcome.seed, outcome.output.clone());
        }
        for (map, field) in [(&mut counts, "counts"), (&mut warnings, "warnings")] {
            for (name, count) in outcome.result.iter().flat_map(|result| result[field].as_object()).flatten() {
                *map.entry(name.clone()).or_default() += count.as_u64().unwrap_or_default();
            }
        }
    });
    let took = started.elapsed().as_secs_f64();
    println!("operator simulation: {seeds} seeds, {counts:?}, {} with violations, {took:.1} s", wrong.len());
    println!("warnings: {warnings:#?}");
    assert!(wrong.is_empty(), "seeds with violations: {:?}", wrong.keys().collect::<Vec<_>>());
    assert!(counts["grants"] > seeds && counts["renewals"] > seeds && counts["outside"] > seeds, "too little happened");
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in number("SEED").map_or(0..3, |seed| seed..seed + 1) {
        let [first, second] = [0, 1].map(|_| runner::run(seed, &[]));
        assert!(first.result.is_some(), "{}", first.output);
        assert_eq!(first.result, second.result, "SEED={seed}");
    }
}
