//! Settings that are changed while locks are held.

use std::time::Duration;

use anyhow::ensure;
use redlock_operator::api::RedisQuorum;

use super::helpers::{RESTART_LIMIT, delay, delete_and_rejoin, quorum_and_lock};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, is_held, reason_of, status},
    quorums::{Quorum, max_ttl_in_force},
    record::Version,
};

const SMALL: Duration = Duration::from_secs(4);
const LARGE: Duration = Duration::from_secs(12);
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn max_ttl_is_raised_and_lowered_while_locks_are_held(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, SMALL, TTL).await?;
    // The ttl is larger than the current maxTTL, so the lock waits for a change of the quorum.
    let long = Lock::create(&bench, claim("long", "long", Some("q"), LARGE)).await?;
    let refused = |v: &Version<_>| reason_of(&v.object, "Accepted") == Some("TTLTooLong");
    long.recorder.until(SOON, "refused for its ttl", refused).await?;

    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"12s"}}"#).await?;
    let has_max_ttl = |max_ttl| move |v: &Version<RedisQuorum>| max_ttl_in_force(&v.object) == Some(max_ttl);
    let shown = quorum.recorder.until_after(mark, SOON, "12s in force", has_max_ttl(LARGE)).await?;
    let granted = long.held(SOON).await?;
    ensure!(granted.wall.0 >= shown.wall.0, "a lock was held with the larger maxTTL before the status showed it");
    delete_and_rejoin(&quorum, "q-1", LARGE).await?;

    // The lock with the larger ttl continues, and fences wait for it while it is renewed.
    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"4s"}}"#).await?;
    delete_and_rejoin(&quorum, "q-1", LARGE).await?;
    let in_force = max_ttl_in_force(&quorum.recorder.last()?.object);
    ensure!(in_force == Some(LARGE), "lowered while a lock with the larger ttl was renewed");
    let last = long.recorder.last()?.object;
    ensure!(is_held(&last), "the long lock was lost: {:?}", status(&last));
    long.remove().await?;
    let ended = bench.wall().0;
    let lowered = quorum.recorder.until_after(mark, RESTART_LIMIT, "4s in force", has_max_ttl(SMALL)).await?;
    let least = i64::try_from(delay(LARGE).as_millis())?;
    ensure!(lowered.wall.0 - ended >= least - 1000, "lowered {} ms after the last such lock", lowered.wall.0 - ended);
    delete_and_rejoin(&quorum, "q-1", SMALL).await?;
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn drift_and_node_timeout_cannot_be_changed(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", SMALL).await?;
    for (patch, field) in [
        (r#"{"spec":{"clockDrift":{"ppm":50000}}}"#, "clockDrift"),
        (r#"{"spec":{"nodeTimeout":"200ms"}}"#, "nodeTimeout"),
        (r#"{"spec":{"installation":"other"}}"#, "installation"),
    ] {
        let text = bench.patch_refused("rq", "q", patch).await?;
        ensure!(text.contains(&format!("{field} cannot be changed")), "{patch}: {text}");
    }
    // The quorum has the defaults, so this changes nothing.
    bench.patch("rq", "q", r#"{"spec":{"clockDrift":null,"nodeTimeout":null}}"#).await
}
