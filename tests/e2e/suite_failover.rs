//! `make bench ONLY=failover`: the time from a fault of the leader to the next leader.

mod elections;
mod programs;

use std::time::Duration;

use crate::{
    bench::Bench,
    figures::keep_rows,
    runner::{Test, tests},
};

pub(crate) const TESTS: &[Test] = tests![
    local programs::a_plain_lease,
    local programs::a_lease_behind_the_gate,
    local programs::the_go_module,
    local elections::an_election_whose_container_is_killed,
    local elections::an_election_whose_pod_is_deleted,
    local elections::an_election_whose_node_is_cut_off,
    local elections::an_election_during_a_rolling_update,
];

/// Number of faults in each setup.
const ROUNDS: usize = 20;
const LONG: Duration = Duration::from_secs(90);
const NAMES: [&str; 2] = ["app-0", "app-1"];

/// With `WRITE=1` writes the times of this run into docs/failover.tsv, in milliseconds.
///
/// They replace earlier times with the same names. tests/generated draws the table and the picture from that file.
fn keep_figures(bench: &Bench) -> anyhow::Result<()> {
    let rows = bench.figures.rows().into_iter().map(|(name, times)| {
        let times: Vec<_> = times.iter().map(|time| time.as_millis().to_string()).collect();
        (1, format!("{name}\t{}", times.join(" ")))
    });
    keep_rows("docs/failover.tsv", rows).map(drop)
}
