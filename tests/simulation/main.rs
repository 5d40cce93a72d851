//! The real engine and the real renewal table, on paused time, against simulated members.
//!
//! Members restart, freeze and have their clocks stepped. Requests and answers are late, lost, cut off and duplicated. Clients pause and die.
//! A checker judges the belief of every holder (docs/dev/proof.md).
//!
//! Everything comes from a seed. `SEEDS=10000` tries more of them, `SEED=17` one alone, with its history (`FENCE=off`
//! as the control run has it).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, clippy::too_many_lines)]

mod client;
mod clock;
mod history;
mod link;
mod nemesis;
mod quorum;
#[path = "../support/rng.rs"]
mod rng;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_operator::redlock::ValueSigner;

use client::{Client, Replica};
use history::{Counts, History};
use nemesis::Nemesis;
use quorum::Quorum;
use rng::Rng;
use server::Server;

/// How long one seed runs, in simulated time.
const LENGTH: Duration = Duration::from_secs(20);
const DEFAULT_SEEDS: u64 = 300;
/// Number of seeds without a fence, of which some must find violations.
const CONTROL_SEEDS: u64 = 40;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn simulate(seed: u64, fence: bool) -> Arc<History> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut rng = Rng::new(seed);
        let history = Arc::new(History::new());
        let members = if rng.percent(70) { 3 } else { 5 };
        let drift = |rng: &mut Rng| i64::try_from(rng.below(8_000)).unwrap() - 4_000;
        let servers = (0..members).map(|n| Arc::new(Server::new(format!("m{n}"), drift(&mut rng)))).collect();
        let quorum = Quorum::new(servers, fence, history.clone());
        for member in 0..members {
            tokio::spawn(quorum.clone().keep(member, rng.fork()));
        }
        let mut weather = Vec::new();
        let keys = rng.between(1, 3);
        for name in ["A", "B", "C", "D"].into_iter().take(usize::try_from(rng.between(2, 4)).unwrap()) {
            let first = Replica::new(name.to_owned(), &quorum, &mut rng);
            let standby = Replica::new(format!("{name}'s standby"), &quorum, &mut rng);
            weather.extend(first.links.iter().chain(&standby.links).map(|link| link.weather.clone()));
            let signer = ValueSigner::new(b"secret");
            tokio::spawn(Client { first, standby, keys, signer, rng: rng.fork() }.run());
        }
        tokio::spawn(Nemesis { quorum, weather, rng: rng.fork() }.run());
        tokio::time::sleep(LENGTH).await;
        history
    })
}

/// Runs the seeds on two threads.
///
/// Returns the counts, and the failed seeds with their violations.
fn run(seeds: std::ops::Range<u64>, fence: bool) -> (Counts, Vec<(u64, Vec<String>)>) {
    let halves = [0, 1].map(|half| {
        let seeds: Vec<u64> = seeds.clone().filter(|seed| seed % 2 == half).collect();
        std::thread::spawn(move || {
            let (mut counts, mut wrong) = (Counts::default(), Vec::new());
            for seed in seeds {
                let history = simulate(seed, fence);
                counts.add(history.counts());
                let violations = history.violations();
                if !violations.is_empty() {
                    wrong.push((seed, violations));
                }
            }
            (counts, wrong)
        })
    });
    let mut sum = (Counts::default(), Vec::new());
    for half in halves {
        let (counts, wrong) = half.join().unwrap();
        sum.0.add(counts);
        sum.1.extend(wrong);
    }
    sum.1.sort();
    sum
}

#[test]
fn no_two_holders_and_tokens_rise() {
    if let Some(seed) = number("SEED") {
        let history = simulate(seed, std::env::var("FENCE").is_err());
        println!("{}", history.events());
        assert_eq!(history.violations(), Vec::<String>::new(), "SEED={seed}");
        return;
    }
    let (seeds, started) = (number("SEEDS").unwrap_or(DEFAULT_SEEDS), Instant::now());
    let (counts, wrong) = run(0..seeds, true);
    let took = started.elapsed().as_secs_f64();
    println!(
        "simulation: {seeds} seeds of {} s, {counts:?}, {} with violations, {took:.1} s",
        LENGTH.as_secs(),
        wrong.len()
    );
    if let Some((seed, violations)) = wrong.first() {
        let seeds: Vec<u64> = wrong.iter().map(|(seed, _)| *seed).collect();
        println!("{}", simulate(*seed, true).events());
        panic!("SEED={seed}: {violations:#?}\nall such seeds: {seeds:?}");
    }
    assert!(counts.grants > seeds && counts.renewals > seeds && counts.repairs > 0, "too little happened: {counts:?}");
    assert!(counts.seals > 0 && counts.takeovers > 0 && counts.admissions > seeds, "too little happened: {counts:?}");
}

#[test]
fn without_the_fence_the_checker_finds_violations() {
    let (counts, wrong) = run(0..CONTROL_SEEDS, false);
    println!(
        "simulation, control without the fence: {CONTROL_SEEDS} seeds, {counts:?}, {} with violations",
        wrong.len()
    );
    let all: Vec<&String> = wrong.iter().flat_map(|(_, violations)| violations).collect();
    assert!(
        all.iter().any(|violation| violation.starts_with("two holders")),
        "the checker finds no violation: {all:?}"
    );
    println!("for example SEED={}: {}", wrong[0].0, wrong[0].1[0]);
}

#[test]
fn a_seed_always_gives_the_same_history() {
    assert_eq!(simulate(7, true).events(), simulate(7, true).events());
}
