//! An upgrade by Helm of the operator and of a quorum.
//!
//! The new version has another image, other settings and other pods.

use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;
use redlock_operator::api::{RedisQuorum, conditions::find_condition};

use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, claim, is_held, status, token},
    operators,
    quorums::Quorum,
    record::Version,
};

const LOCKS: usize = 50;
const MAX_TTL: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(12);
const ROLLOUT_LIMIT: Duration = Duration::from_secs(180);
const HELD_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn an_upgrade_to_another_image_keeps_fifty_held_locks(bench: Bench) -> anyhow::Result<()> {
    operators::then_as_before(&bench.cluster, upgrade(&bench)).await
}

async fn upgrade(bench: &Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(bench, "q", MAX_TTL).await?;
    let names: Vec<_> = (0..LOCKS).map(|index| format!("lock-{index}")).collect();
    let created = names.iter().map(|name| Lock::create(bench, claim(name, name, Some("q"), TTL)));
    let locks = try_join_all(created).await?;
    let held = try_join_all(locks.iter().map(|lock| lock.held(HELD_LIMIT))).await?;
    let tokens = held.iter().map(|version| token(&version.object)).collect::<anyhow::Result<Vec<_>>>()?;

    bench.cluster.deploy_next().await?;
    operators::all_available(&bench.cluster).await?;
    let image = operators::image(&bench.cluster).await?;
    ensure!(image.ends_with(":next"), "the operator runs {image}");
    bench.patch("rq", "q", r#"{"spec":{"pod":{"labels":{"upgraded":"true"}}}}"#).await?;
    let is_updated = |version: &Version<RedisQuorum>| {
        let status = version.object.status.clone().unwrap_or_default();
        let progress = find_condition(&status.conditions, "Progressing").map(|condition| condition.reason.as_str());
        status.observed_generation == Some(2) && progress == Some("Settled")
    };
    quorum.recorder.until(ROLLOUT_LIMIT, "the members are updated", is_updated).await?;
    let pods = bench.kubectl(&["get", "pods", "--selector", "upgraded=true", "--output", "name"]).await?;
    ensure!(pods.lines().count() == 3, "members with the new label: {pods}");
    try_join_all(locks.iter().zip(tokens).map(|(lock, before)| is_kept(lock, before))).await.map(drop)
}

/// Checks that the leading replica of the new operator renews the existing hold.
async fn is_kept(lock: &Lock, before: i64) -> anyhow::Result<()> {
    // The old operator can have begun the first write, so the check needs two.
    for _ in 0..2 {
        let mark = lock.recorder.mark();
        let renewed = lock.recorder.until_after(mark, TTL, "renewed", |version| is_held(&version.object)).await?;
        ensure!(token(&renewed.object)? == before, "{}: another token", lock.name);
    }
    check_never_lost(&lock.recorder.versions())?;
    ensure!(status(&lock.recorder.last()?.object).transitions == 1, "{} was granted again", lock.name);
    Ok(())
}
