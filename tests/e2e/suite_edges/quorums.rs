//! A quorum's settings become smaller than those of current holds.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::RedisQuorum;

use super::support::{SLACK, renewed_from_now, restart_operator, suspend};
use crate::{
    believers::{beliefs, check_apart, check_followed, check_tokens},
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, is_held, reason_of},
    quorums::{Quorum, max_ttl_in_force},
    spans::millis,
    suite_quorum::helpers::delay,
};

const LARGE: Duration = Duration::from_secs(20);
const SMALL: Duration = Duration::from_secs(2);
/// A ttl that is longer than the operator's downtime, and than the smaller maxTTL.
const TTL: Duration = Duration::from_secs(18);
const GONE_LIMIT: Duration = Duration::from_secs(120);

pub(crate) async fn a_max_ttl_below_a_held_ttl_loses_no_lock_at_a_restart(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", LARGE).await?;
    let first = Lock::take(&bench, claim("first", "job", Some("q"), TTL)).await?;
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"2s"}}"#).await?;
    let next = Lock::queue(&bench, claim("next", "job", Some("q"), SMALL)).await?;
    restart_operator(&bench).await?;
    renewed_from_now(&first).await?;
    check_never_lost(&first.recorder.versions())?;
    // The wait is longer than the validity that was published before the restart.
    next.recorder.never_during(0, TTL, "granted beside a holder", |v| is_held(&v.object)).await?;
    renewed_from_now(&first).await?;
    check_never_lost(&first.recorder.versions())?;
    let in_force = max_ttl_in_force(&quorum.recorder.last()?.object);
    ensure!(in_force == Some(LARGE), "lowered while a lock with a larger ttl is held");

    suspend(&first, true).await?;
    let held = next.held(TTL + SOON).await?;
    check_followed(&[&first, &next], &held, SLACK)?;
    check_tokens(&check_apart(&[&first, &next], &[])?)?;
    // The suspended lock has left its place, and is not accepted again with that ttl.
    let refused = first.recorder.last()?;
    ensure!(!is_held(&refused.object), "{:?}", refused.object.status);
    Ok(())
}

pub(crate) async fn a_quorum_recreated_with_a_smaller_max_ttl_keeps_promises(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", LARGE).await?;
    let first = Lock::take(&bench, claim("first", "job", Some("q"), TTL)).await?;
    renewed_from_now(&first).await?;
    let since = bench.wall().0;
    bench.delete::<RedisQuorum>("q").await?;
    bench.kubectl(&["delete", "statefulsets,pods", "--all", "--grace-period=1", "--wait=false"]).await?;
    let gone = quorum.recorder.until_gone(GONE_LIMIT).await?;
    let (lasted, least) = (gone.wall.0 - since, millis(delay(LARGE)));
    ensure!(lasted >= least, "the quorum was gone {lasted} ms after its deletion, not {least}");
    let _small = Quorum::ready(&bench, "q", SMALL).await?;
    let next = Lock::create(&bench, claim("next", "job", Some("q"), SMALL)).await?;
    let held = next.held(GONE_LIMIT).await?;
    let holds = check_apart(&[&first, &next], &[])?;
    check_tokens(&holds)?;
    ensure!(holds.len() == 2, "not two holds: {holds:?}");
    // The claim with the hold on the earlier quorum blocks no other claim, and finishes.
    first.recorder.until(GONE_LIMIT, "finished", |v| reason_of(&v.object, "Finished").is_some()).await?;
    let before = beliefs([&first])?.pop().context("never held")?;
    ensure!(held.wall.0 >= before.until, "{before:?}");
    next.remove().await?;
    first.remove().await
}
