//! A token counter that has run days ahead, by a person's mistake.

use std::time::Duration;

use anyhow::ensure;
use redlock_operator::api::FenceReason;

use super::helpers::{
    RESTART_LIMIT, check_one_at_a_time, condition, held_lock, is_admitted, is_fenced_for, pod_uids, reason_after,
};
use crate::{
    administrator::Administrator,
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, status, token},
    quorums::Quorum,
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
/// Counters are in microseconds of Unix time.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// The member whose counter is set.
const OUTLIER: usize = 1;
/// A member that is frozen for a while.
const FROZEN: usize = 2;
const ROLLOUT: &str = "redlock-operator.io/rollout";

async fn counter(administrator: &Administrator<'_>, member: usize) -> anyhow::Result<i64> {
    Ok(administrator.redis(member, &["GET", "#token"]).await?.parse()?)
}

/// Takes a lock on a key of its own, and gives its token.
async fn token_of(bench: &Bench, name: &str) -> anyhow::Result<i64> {
    let lock = Lock::create(bench, claim(name, name, Some("q"), TTL)).await?;
    token(&lock.held(SOON).await?.object)
}

/// The held lock is renewed after everything that happened before now.
async fn renewed_from_now(lock: &Lock) -> anyhow::Result<()> {
    let (mark, now) = (lock.recorder.mark(), lock.bench.wall().0);
    let renewed = |v: &Version<_>| status(&v.object).renewed_at.is_some_and(|at| at.as_millis() > now);
    lock.recorder.until_after(mark, SOON, "renewed", renewed).await.map(drop)
}

/// With the frozen member away a majority needs the outlier: its extensions count, and its number does not.
async fn check_a_majority_with_the_outlier(bench: &Bench, held: &Lock) -> anyhow::Result<i64> {
    let (faults, pod) = (&bench.cluster.faults, format!("q-{FROZEN}-0"));
    faults.pause_container(&bench.namespace, &pod, "redis").await?;
    let denied = async {
        let lock = Lock::create(bench, claim("denied", "denied", Some("q"), TTL)).await?;
        lock.reason("NoQuorum", SOON).await?;
        renewed_from_now(held).await?;
        anyhow::Ok(lock)
    };
    let denied = denied.await;
    faults.resume_container(&bench.namespace, &pod, "redis").await?;
    token(&denied?.held(SOON).await?.object)
}

pub(crate) async fn a_member_whose_token_counter_is_days_ahead_is_left_out_and_restarted(
    bench: Bench,
) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let administrator = Administrator::of(&quorum).await?;
    let held = held_lock(&bench, TTL).await?;
    let (before, pods) = (token(&held.recorder.last()?.object)?, pod_uids(&bench, 3).await?);

    // The restart waits, so that the member can be watched while it votes.
    bench.kubectl(&["annotate", "rq", "q", &format!("{ROLLOUT}=paused")]).await?;
    let (mark, ahead) = (quorum.recorder.mark(), bench.wall().0 * 1_000 + 2 * DAY);
    ensure!(administrator.redis(OUTLIER, &["SET", "#token", &ahead.to_string()]).await? == "OK");
    let message = reason_after(&quorum, mark, SOON, "ClockHealthy", "CounterAhead").await?;
    ensure!(condition(&quorum.recorder.last()?, "ClockHealthy").0 == "False", "{message}");
    ensure!(message.contains("q-1") && !message.contains("q-0") && !message.contains("q-2"), "{message}");
    let paused = reason_after(&quorum, mark, SOON, "Progressing", "RolloutPaused").await?;
    ensure!(paused.contains("q-1 must be restarted"), "{paused}");

    let meanwhile = token_of(&bench, "meanwhile").await?;
    let denied = check_a_majority_with_the_outlier(&bench, &held).await?;
    let after = token_of(&bench, "after").await?;
    let tokens = [before, meanwhile, denied, after, ahead - DAY];
    ensure!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    for member in 0..3 {
        let counter = counter(&administrator, member).await?;
        ensure!((counter >= ahead) == (member == OUTLIER), "q-{member} counts from {counter}, and {ahead} was set");
    }
    ensure!(pod_uids(&bench, 3).await? == pods, "a member was replaced in spite of the pause");

    let mark = quorum.recorder.mark();
    bench.kubectl(&["annotate", "rq", "q", &format!("{ROLLOUT}-")]).await?;
    let closed = |m: &_| is_fenced_for(m, FenceReason::Updating);
    quorum.member_until(mark, OUTLIER, RESTART_LIMIT, "is closed as for an update", closed).await?;
    let closed = quorum.recorder.mark();
    quorum.member_until(closed, OUTLIER, RESTART_LIMIT, "is admitted again", is_admitted).await?;
    reason_after(&quorum, closed, RESTART_LIMIT, "ClockHealthy", "AsExpected").await?;
    ensure!(condition(&quorum.recorder.last()?, "ClockHealthy").0 == "True", "{:?}", quorum.recorder.last()?.object);
    check_one_at_a_time(&quorum, mark)?;
    let replaced: Vec<_> = pod_uids(&bench, 3).await?.iter().zip(&pods).map(|(now, then)| now != then).collect();
    ensure!(replaced == [false, true, false], "which members were replaced: {replaced:?}");

    let last = token_of(&bench, "last").await?;
    ensure!(after < last, "token {last} after {after}");
    for member in 0..3 {
        let (counter, now) = (counter(&administrator, member).await?, bench.wall().0 * 1_000);
        ensure!(counter >= after && counter < now + SECOND, "q-{member} counts from {counter} at {now}");
    }
    let floor = quorum.recorder.last()?.object.status.and_then(|status| status.token_floor);
    ensure!(floor.is_some_and(|floor| floor < ahead - DAY), "the floor followed the outlier: {floor:?}");
    ensure!(check_held_throughout(&held.recorder.versions())? > 0, "no renewal was published");
    Ok(())
}
