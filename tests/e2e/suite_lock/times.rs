//! minHold, maxHold, lockDelay, ttlAfterFinished, suspend.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::support::{
    IDLE, LockVersion, POD_LIMIT, SECOND, acquired_at, check_waited, create, finished, led_by, millis, ordered,
    pod_claim, run, run_pair, suspend, with, worker,
};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, token},
    record::Version,
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn a_lock_is_kept_for_min_hold(bench: Bench) -> anyhow::Result<()> {
    const MIN_HOLD: Duration = Duration::from_secs(6);
    let first = Lock::create(&bench, with(claim("first", "job", None, TTL), json!({"minHold": "6s"}))).await?;
    let held = first.held(SOON).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    first.delete().await?;
    check_kept(&held, &next.held(MIN_HOLD + SOON).await?, MIN_HOLD)
}

pub(crate) async fn a_pod_that_finishes_fast_keeps_its_lock_for_min_hold(bench: Bench) -> anyhow::Result<()> {
    const MIN_HOLD: Duration = Duration::from_secs(8);
    let pod = with(worker(&bench, "cron-0", "cron", "sleep 3"), json!({"restartPolicy": "Never"}));
    let pods = create(&bench, pod).await?;
    let first = with(pod_claim("first", "job", "cron-0", TTL), json!({"minHold": "8s"}));
    let first = Lock::create(&bench, first).await?;
    let held = first.held(POD_LIMIT).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    let ended = |v: &Version<Pod>| v.object.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Succeeded");
    pods.until(SOON, "the pod has finished", ended).await?;
    check_kept(&held, &next.held(MIN_HOLD + SOON).await?, MIN_HOLD)
}

/// Checks that the next holder came this time after the first one, and less than a second later.
fn check_kept(first: &LockVersion, next: &LockVersion, min_hold: Duration) -> anyhow::Result<()> {
    let waited = acquired_at(next)? - acquired_at(first)?;
    ensure!(waited >= millis(min_hold), "the next holder came after {waited} ms, minHold is {min_hold:?}");
    ensure!(waited < millis(min_hold + SECOND), "the next holder came only after {waited} ms");
    Ok(())
}

pub(crate) async fn a_lock_is_not_renewed_beyond_max_hold(bench: Bench) -> anyhow::Result<()> {
    const MAX_HOLD: Duration = Duration::from_secs(5);
    let first = Lock::create(&bench, with(claim("first", "job", None, TTL), json!({"maxHold": "5s"}))).await?;
    let held = first.held(SOON).await?;
    let next = Lock::create(&bench, claim("next", "job", None, TTL)).await?;
    let next = next.held(MAX_HOLD + TTL + SOON).await?;
    let waited = acquired_at(&next)? - acquired_at(&held)?;
    ensure!(waited >= millis(MAX_HOLD), "the next holder came after {waited} ms");
    ensure!(waited < millis(MAX_HOLD + TTL + SECOND), "the next holder came only after {waited} ms");
    check_waited(&first, token(&held.object)?, &next, Duration::ZERO, SECOND)?;
    finished(&first, "MaxHoldReached", SOON).await?;
    lock_names(&bench, "first", "MaxHoldReached", &["MaxHoldReached", "maxHold"]).await
}

pub(crate) async fn lock_delay_holds_back_the_next_holder_after_a_loss(bench: Bench) -> anyhow::Result<()> {
    const DELAY: Duration = Duration::from_secs(4);
    run(&bench, worker(&bench, "worker-0", "worker", IDLE)).await?;
    let first = with(pod_claim("first", "job", "worker-0", TTL), json!({"lockDelay": "4s"}));
    let first = Lock::create(&bench, first).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    bench.kubectl(&["delete", "pod", "worker-0", "--grace-period=0", "--force"]).await?;
    next.reason("LockDelay", TTL + SOON).await?;
    let next = next.held(TTL + DELAY + SOON).await?;
    check_waited(&first, held, &next, DELAY, SECOND)
}

pub(crate) async fn lock_delay_does_not_slow_down_a_clean_release(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::take(&bench, with(claim("first", "job", None, TTL), json!({"lockDelay": "10s"}))).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    let start = bench.now();
    first.delete().await?;
    let took = next.held(SOON).await?.at.since(start);
    ensure!(took < SECOND, "the next holder came after {took:?}");
    Ok(())
}

pub(crate) async fn a_finished_claim_is_deleted_after_its_time(bench: Bench) -> anyhow::Result<()> {
    const KEPT: Duration = Duration::from_secs(3);
    let times = json!({"maxHold": "1s", "ttlAfterFinished": "3s"});
    let lock = Lock::create(&bench, with(claim("job", "job", None, TTL), times)).await?;
    let end = finished(&lock, "MaxHoldReached", TTL + SOON).await?;
    let kept = lock.recorder.until_gone(KEPT + SOON).await?.at.since(end.at);
    // Conditions have whole seconds.
    ensure!(kept + SECOND >= KEPT && kept < KEPT + SECOND, "it was deleted after {kept:?}");
    Ok(())
}

pub(crate) async fn a_suspended_claim_passes_the_lock_on_and_queues_again(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::create(&bench, claim("first", "job", None, TTL)).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    suspend(&first, true).await?;
    first.reason("Ending", SOON).await?;
    let between = next.held(TTL + SOON).await?;
    check_waited(&first, held, &between, Duration::ZERO, SECOND)?;
    first.reason("Suspended", SOON).await?;

    let mark = first.recorder.mark();
    suspend(&first, false).await?;
    first.reason("Queued", SOON).await?;
    next.delete().await?;
    let again = first.recorder.until_after(mark, SOON, "Held again", |v| is_held(&v.object)).await?;
    ensure!(token(&again.object)? > token(&between.object)?, "the token did not rise");
    Ok(())
}

pub(crate) async fn lock_delay_holds_back_the_next_leader_after_a_loss(bench: Bench) -> anyhow::Result<()> {
    const DELAY: Duration = Duration::from_secs(3);
    run_pair(&bench, "app", ["app-0", "app-1"]).await?;
    let lock = with(ordered("app", "app", TTL, None), json!({"lockDelay": "3s"}));
    let lock = Lock::create(&bench, lock).await?;
    let held = lock.held(SOON).await?;
    let mark = lock.recorder.mark();
    bench.kubectl(&["delete", "pod", "app-0", "--grace-period=0", "--force"]).await?;
    let next = led_by(&lock, mark, "app-1", TTL + DELAY + SOON).await?;
    check_waited(&lock, token(&held.object)?, &next, DELAY, SECOND)
}
