//! End-to-end tests against a running cluster with the operator installed.
//!
//! `cargo test --test e2e -- SUITE [FILTER]` runs the tests of a suite whose name contains FILTER, one after the other.
//! It uses the cluster of `KUBECONFIG`, or else the local one. The last line is `N passed, N failed`. `--list` prints
//! their names, with or without a suite, and `--junit FILE` writes the results into a file. `--help` prints all
//! options.

#![allow(clippy::too_many_lines, reason = "a test tells one story")]

mod administrator;
mod believers;
mod bench;
mod candidates;
#[path = "../support/judge.rs"]
mod checker;
mod cluster;
mod crash;
mod faults;
mod figures;
mod foreign;
mod front;
mod history;
mod hostile;
mod libraries;
mod locks;
mod masters;
mod operators;
mod pods;
mod poll;
mod programs;
mod quorums;
mod record;
#[path = "../support/rng.rs"]
mod rng;
mod runner;
#[path = "../support/self_signed.rs"]
mod self_signed;
mod shifted;
mod spans;
#[path = "../support/store.rs"]
mod store;
mod suite_causes;
mod suite_chaos;
mod suite_cli;
mod suite_clients;
mod suite_clusters;
mod suite_edges;
mod suite_failover;
mod suite_gate;
mod suite_install;
mod suite_latency;
mod suite_lock;
mod suite_main;
mod suite_quorum;
mod suite_scale;
mod suite_sizing;
mod suite_tenants;
mod suite_uninstall;
mod votes;

use std::process::ExitCode;

use clap::Parser as _;
use runner::Test;
use tokio::runtime::Runtime;

/// Suites by name.
const SUITES: &[(&str, &[Test])] = &[
    ("main", suite_main::TESTS),
    ("latency", suite_latency::TESTS),
    ("quorum", suite_quorum::TESTS),
    ("lock", suite_lock::TESTS),
    ("edges", suite_edges::TESTS),
    ("tenants", suite_tenants::TESTS),
    ("causes", suite_causes::TESTS),
    ("cli", suite_cli::TESTS),
    ("failover", suite_failover::TESTS),
    ("gate", suite_gate::TESTS),
    ("clusters", suite_clusters::TESTS),
    ("scale", suite_scale::TESTS),
    ("sizing", suite_sizing::TESTS),
    ("clients", suite_clients::TESTS),
    ("chaos", suite_chaos::TESTS),
    ("uninstall", suite_uninstall::TESTS),
    ("install", suite_install::TESTS),
];

/// The suite whose tests run with a vote monitor.
///
/// The other suites measure, and the monitor would use some of the CPU.
const VOTES_WATCHED: &str = "quorum";

/// Runs another role than the tests.
///
/// Tests start this program again for their helper processes.
fn play(runtime: std::io::Result<Runtime>, part: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match runtime.map(|runtime| runtime.block_on(part)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    if part == votes::monitor::COMMAND {
        return votes::monitor::run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    if part == hostile::ARGUMENT {
        let harm = std::env::args().nth(2).unwrap_or_default();
        return play(runtime, hostile::run(&harm));
    }
    if part == suite_chaos::outside::ARGUMENT {
        return play(runtime, suite_chaos::outside::run());
    }
    if part == shifted::ARGUMENT {
        return play(runtime, shifted::run());
    }
    let arguments = front::Arguments::parse();
    if arguments.list {
        arguments.print(SUITES);
        return ExitCode::SUCCESS;
    }
    let suite = SUITES.iter().find(|(name, _)| arguments.suite.as_deref() == Some(*name));
    let Some((suite, tests)) = suite else {
        let names: Vec<_> = SUITES.iter().map(|(name, _)| *name).collect();
        eprintln!("usage: cargo test --test e2e -- SUITE [FILTER]; the suites are: {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    match runtime.map(|runtime| runtime.block_on(runner::run(tests, &arguments, *suite == VOTES_WATCHED))) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            println!("error: {error:#}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
