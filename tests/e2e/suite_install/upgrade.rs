//! An upgrade by Helm from the commit before the chart was made for strangers.

use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;

use super::then_as_before;
use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, claim, is_held, status, token},
    operators,
    quorums::Quorum,
};

const LOCKS: usize = 50;
const MAX_TTL: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(12);
const HELD_LIMIT: Duration = Duration::from_secs(60);

/// Whether the kind knows a field that the commit before did not.
async fn knows_labels_of_pods(bench: &Bench) -> anyhow::Result<bool> {
    let output = bench.cluster.kubectl_output(&["explain", "redisquorum.spec.pod.labels"], "").await?;
    Ok(output.status.success())
}

pub(crate) async fn an_upgrade_from_the_commit_before_keeps_fifty_held_locks_and_brings_the_kinds(
    bench: Bench,
) -> anyhow::Result<()> {
    then_as_before(&bench, upgrade(&bench)).await
}

async fn upgrade(bench: &Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_previous().await?;
    operators::all_available(&bench.cluster).await?;
    ensure!(!knows_labels_of_pods(bench).await?, "this is not the commit before");
    let _quorum = Quorum::ready(bench, "q", MAX_TTL).await?;
    let names: Vec<_> = (0..LOCKS).map(|index| format!("lock-{index}")).collect();
    let created = names.iter().map(|name| Lock::create(bench, claim(name, name, Some("q"), TTL)));
    let locks = try_join_all(created).await?;
    let held = try_join_all(locks.iter().map(|lock| lock.held(HELD_LIMIT))).await?;
    let tokens = held.iter().map(|version| token(&version.object)).collect::<anyhow::Result<Vec<_>>>()?;

    bench.cluster.deploy().await?;
    operators::all_available(&bench.cluster).await?;
    ensure!(knows_labels_of_pods(bench).await?, "the kinds were not upgraded");
    try_join_all(locks.iter().zip(tokens).map(|(lock, before)| is_kept(lock, before))).await?;
    Ok(())
}

/// Whether the new operator, of which a replica leads, renews the hold that it has found.
async fn is_kept(lock: &Lock, before: i64) -> anyhow::Result<()> {
    // The first write may be one that the old operator had begun.
    for _ in 0..2 {
        let mark = lock.recorder.mark();
        let renewed = lock.recorder.until_after(mark, TTL, "renewed", |version| is_held(&version.object)).await?;
        ensure!(token(&renewed.object)? == before, "{}: another token", lock.name);
    }
    check_never_lost(&lock.recorder.versions())?;
    ensure!(status(&lock.recorder.last()?.object).transitions == 1, "{} was granted again", lock.name);
    Ok(())
}
