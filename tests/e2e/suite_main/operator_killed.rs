//! Operator pods end and start.
//!
//! Held locks stay held.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, claim},
    operators,
};

/// A ttl that is longer than a change of leader, so that even the published validity never expires.
const TTL: Duration = Duration::from_secs(10);

async fn held_lock(bench: &Bench) -> anyhow::Result<Lock> {
    operators::all_available(&bench.cluster).await?;
    Lock::take(bench, claim("job", "job", None, TTL)).await
}

/// Waits until the next leader has renewed the lock and published that.
async fn until_renewed_by_next_leader(bench: &Bench, lock: &Lock) -> anyhow::Result<()> {
    lock.renewed(TTL).await.context("by the next leader")?;
    operators::all_available(&bench.cluster).await?;
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    Ok(())
}

pub(crate) async fn a_lock_outlives_every_operator_pod(bench: Bench) -> anyhow::Result<()> {
    let lock = held_lock(&bench).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;

    let leader = operators::current(&leases)?;
    let start = bench.now();
    operators::delete(&bench.cluster, &leader.pod).await?;
    operators::until_next_term(&leases, &leader).await?;
    bench.figures.add("leading operator pod deleted -> next leader", bench.now().since(start));
    until_renewed_by_next_leader(&bench, &lock).await?;

    let leader = operators::current(&leases)?;
    operators::roll(&bench.cluster).await?;
    operators::until_next_term(&leases, &leader).await?;
    until_renewed_by_next_leader(&bench, &lock).await
}

pub(crate) async fn a_lock_outlives_sigkill_to_the_leading_operator(bench: Bench) -> anyhow::Result<()> {
    let lock = held_lock(&bench).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;
    let leader = operators::current(&leases)?;
    let start = bench.now();
    bench.cluster.faults.kill_container(&bench.cluster.operator_namespace, &leader.pod, "operator").await?;
    operators::until_next_term(&leases, &leader).await?;
    bench.figures.add("SIGKILL to the leading operator -> next leader", bench.now().since(start));
    until_renewed_by_next_leader(&bench, &lock).await
}
