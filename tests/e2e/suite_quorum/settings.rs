//! Settings that are changed while locks are held.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::FenceReason;

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, status},
    quorums::{Quorum, max_ttl_in_force},
    record::Version,
};

const SMALL: Duration = Duration::from_secs(4);
const LARGE: Duration = Duration::from_secs(12);
const TTL: Duration = Duration::from_secs(3);

/// Checks that a restarted member stays out for the delay of `max_ttl`.
async fn rejoins_after(quorum: &Quorum, max_ttl: Duration) -> anyhow::Result<()> {
    let (bench, mark, since) = (&quorum.bench, quorum.recorder.mark(), quorum.bench.wall().0);
    bench.kubectl(&["delete", "pod", "q-1-0", "--wait=false"]).await?;
    let restarted = |m: &_| is_fenced_for(m, FenceReason::Restarted);
    let (_, fenced) = quorum.member_until(mark, 1, RESTART_LIMIT, "is fenced", restarted).await?;
    let same = |m: &redlock_operator::api::MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
    let (_, admitted) = quorum.member_until(mark, 1, RESTART_LIMIT, "is admitted", same).await?;
    let waited = admitted.admitted_at.context("no admittedAt")?.as_millis() - since;
    let least = i64::try_from(delay(max_ttl).as_millis())?;
    ensure!(waited >= least, "admitted {waited} ms after its end, not {least}");
    Ok(())
}

pub(crate) async fn max_ttl_is_raised_and_lowered_while_locks_are_held(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", SMALL).await?;
    let lock = held_lock(&bench, TTL).await?;
    // The ttl is larger than the current maxTTL, so the lock waits for a change of the quorum.
    let long = Lock::create(&bench, claim("long", "long", Some("q"), LARGE)).await?;
    let refused = |v: &Version<_>| crate::locks::reason_of(&v.object, "Accepted") == Some("TTLTooLong");
    long.recorder.until(SOON, "refused for its ttl", refused).await?;

    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"12s"}}"#).await?;
    let shown =
        quorum.recorder.until_after(mark, SOON, "12s in force", |v| max_ttl_in_force(&v.object) == Some(LARGE)).await?;
    let granted = long.held(SOON).await?;
    ensure!(granted.wall.0 >= shown.wall.0, "a lock was held with the larger maxTTL before the status showed it");
    rejoins_after(&quorum, LARGE).await?;

    // The lock with the larger ttl continues, and fences wait for it while it is renewed.
    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"4s"}}"#).await?;
    rejoins_after(&quorum, LARGE).await?;
    ensure!(
        max_ttl_in_force(&quorum.recorder.last()?.object) == Some(LARGE),
        "lowered while a lock with the larger ttl was renewed"
    );
    ensure!(
        crate::locks::is_held(&long.recorder.last()?.object),
        "the long lock was lost: {:?}",
        status(&long.recorder.last()?.object)
    );
    long.remove().await?;
    let ended = bench.wall().0;
    let lowered = quorum
        .recorder
        .until_after(mark, RESTART_LIMIT, "4s in force", |v| max_ttl_in_force(&v.object) == Some(SMALL))
        .await?;
    let least = i64::try_from(delay(LARGE).as_millis())?;
    ensure!(lowered.wall.0 - ended >= least - 1000, "lowered {} ms after the last such lock", lowered.wall.0 - ended);
    rejoins_after(&quorum, SMALL).await?;
    check_held_throughout(&lock.recorder.versions())?;
    Ok(())
}

pub(crate) async fn drift_and_node_timeout_cannot_be_changed(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", SMALL).await?;
    for (patch, field) in [
        (r#"{"spec":{"clockDrift":{"ppm":50000}}}"#, "clockDrift"),
        (r#"{"spec":{"clockDrift":null}}"#, "clockDrift"),
        (r#"{"spec":{"nodeTimeout":"200ms"}}"#, "nodeTimeout"),
        (r#"{"spec":{"nodeTimeout":null}}"#, "nodeTimeout"),
        (r#"{"spec":{"installation":"other"}}"#, "installation"),
    ] {
        let refused = bench.patch("rq", "q", patch).await;
        let text = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
        let is_default = patch.contains("null");
        ensure!(text.contains(&format!("{field} cannot be changed")) != is_default, "{patch}: {text}");
    }
    Ok(())
}
