//! Holders with health checks: by a heartbeat, or by a probe.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use redlock_operator::time::Boottime;
use serde_json::{Value, json};

use super::support::{
    HTTPD, LockVersion, PROBE_PERIOD, SECOND, check_waited, election, finished, leader, led_by, liveness, millis, past,
    run, with, with_container, worker,
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, is_held, message_of, status, token},
    poll,
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(3);

/// A claim on the key `job` with a heartbeat of a second.
fn beating(name: &str) -> Value {
    with(claim(name, "job", None, TTL), json!({"claim": {"identity": name, "heartbeat": "1s"}}))
}

pub(crate) async fn a_holder_whose_heartbeat_stops_loses_its_lock(bench: Bench) -> anyhow::Result<()> {
    bench.create::<Lease>(json!({"metadata": {"name": "first"}, "spec": {"holderIdentity": "first"}})).await?;
    let first = Lock::create(&bench, beating("first")).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    let leases = bench.api::<Lease>();
    for _beat in 0..16 {
        let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
        let beat = json!({"spec": {"renewTime": now}});
        leases.patch("first", &PatchParams::default(), &Patch::Merge(beat)).await?;
        // The period of the heartbeat.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let stopped = bench.now();
    check_held_throughout(&first.recorder.versions()).context("while the heart beats")?;
    let after = next.held(TTL + PROBE_PERIOD + SOON).await?;
    let took = after.at.since(stopped);
    bench.figures.add("heartbeat of 1 s stops -> next claim Held (ttl 3 s)", took);
    ensure!(took < TTL + PROBE_PERIOD + SECOND, "the next claim was held only after {took:?}");
    check_waited(&first, held, &after, Duration::ZERO, SECOND)?;
    let end = finished(&first, "HolderUnhealthy", SOON).await?;
    let message = past(&end)?.message.unwrap_or_default();
    ensure!(message.contains("heartbeat has been silent"), "the history: {message}");
    lock_names(&bench, "first", "HolderUnhealthy", &["heartbeat"]).await
}

pub(crate) async fn a_waiting_claim_without_a_heartbeat_is_passed_over(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::take(&bench, claim("first", "job", None, TTL)).await?;
    let silent = Lock::queue(&bench, beating("silent")).await?;
    let created = silent.recorder.last()?.object.creation_timestamp().context("no creation time")?.0;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    // A new claim needs no Lease for its first ttl.
    let is_old = || {
        let age = k8s_openapi::jiff::Timestamp::now().duration_since(created);
        let is_old = Duration::try_from(age).is_ok_and(|age| age > TTL + 3 * SECOND);
        std::future::ready(anyhow::Ok(is_old.then_some(())))
    };
    poll::until(10 * SECOND, "the claim is older than its ttl", is_old).await?;
    first.delete().await?;
    next.held(SOON).await.context("the claim behind the silent one")?;
    next.delete().await?;
    let version = silent.reason("NoCandidate", SOON).await?;
    let message = message_of(&version.object, "Held");
    ensure!(message.contains("heartbeat has stopped"), "{message}");
    bench.create::<Lease>(json!({"metadata": {"name": "silent"}, "spec": {"holderIdentity": "silent"}})).await?;
    silent.held(SOON).await.context("a claim with a heartbeat").map(drop)
}

/// Two pods that answer, and the one that leads.
async fn led(bench: &Bench) -> anyhow::Result<(Lock, String, &'static str)> {
    for name in ["app-0", "app-1"] {
        let probe = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60});
        let pod = with_container(worker(bench, name, "app", HTTPD), json!({"readinessProbe": probe}));
        run(bench, pod).await?;
    }
    let lock = Lock::create(bench, with(election("app", "app", TTL), liveness())).await?;
    let first = leader(&lock.held(SOON).await?.object).context("no leader")?;
    let second = if first == "app-0" { "app-1" } else { "app-0" };
    // A healthy leader keeps the lock for longer than a ttl.
    let renewed = |v: &LockVersion| {
        let status = status(&v.object);
        let times = status.renewed_at.zip(status.acquired_at);
        times.is_some_and(|(now, then)| now.as_millis() - then.as_millis() > millis(TTL))
    };
    lock.recorder.until(TTL + SOON, "renewed for longer than its ttl", renewed).await?;
    ensure!(is_held(&lock.recorder.last()?.object), "a healthy leader lost the lock");
    Ok((lock, first, second))
}

async fn followed(bench: &Bench, lock: &Lock, since: Boottime, mark: usize, second: &str) -> anyhow::Result<()> {
    let held = token(&lock.held(SOON).await?.object)?;
    let next = led_by(lock, mark, second, TTL + SOON).await?;
    let took = next.at.since(since);
    bench.figures.add("liveness check fails -> next leader (ttl 3 s)", took);
    ensure!(took < TTL + PROBE_PERIOD + SECOND, "the next leader was there only after {took:?}");
    check_waited(lock, held, &next, Duration::ZERO, SECOND)?;
    let past = past(&next)?;
    ensure!(past.reason == "HolderUnhealthy", "{past:?}");
    Ok(())
}

pub(crate) async fn a_leader_that_fails_its_liveness_check_is_followed_in_time(bench: Bench) -> anyhow::Result<()> {
    let (lock, first, second) = led(&bench).await?;
    let mark = lock.recorder.mark();
    let start = bench.now();
    bench.kubectl(&["exec", &first, "--", "rm", "/tmp/www/healthz"]).await?;
    followed(&bench, &lock, start, mark, second).await
}

pub(crate) async fn a_frozen_leader_with_a_liveness_check_is_followed_in_time(bench: Bench) -> anyhow::Result<()> {
    let (lock, first, second) = led(&bench).await?;
    let mark = lock.recorder.mark();
    let start = bench.now();
    let frozen = bench.cluster.faults.freeze(&bench.namespace, &first, "app").await?;
    let result = followed(&bench, &lock, start, mark, second).await;
    bench.cluster.faults.end(frozen).await?;
    result
}

pub(crate) async fn a_tcp_check_has_to_fail_as_often_as_specified(bench: Bench) -> anyhow::Result<()> {
    const FAILURES: u32 = 3;
    // The container continues to run after its server has ended.
    let script = "trap 'exit 0' TERM; mkdir /tmp/www; httpd -f -p 8080 -h /tmp/www & echo $! >/tmp/pid; \
        while :; do sleep 3600 & wait $!; done";
    for name in ["app-0", "app-1"] {
        let probe = json!({"startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}});
        run(&bench, with_container(worker(&bench, name, "app", script), probe)).await?;
    }
    let liveness = json!({"tcpSocket": {"port": 8080}, "failureThreshold": FAILURES});
    // There are four renewals in a ttl, so three can fail before the validity ends.
    let lock = with(election("app", "app", 2 * TTL), json!({"liveness": liveness, "renewInterval": "1s"}));
    let lock = Lock::create(&bench, lock).await?;
    let held = lock.held(SOON).await?;
    let first = leader(&held.object).context("no leader")?;
    let second = if first == "app-0" { "app-1" } else { "app-0" };
    let (start, mark) = (bench.now(), lock.recorder.mark());
    bench.kubectl(&["exec", &first, "--", "sh", "-c", "kill $(cat /tmp/pid)"]).await?;
    let asked = bench.now();
    let ending = lock.reason("Ending", 2 * TTL + SOON).await?;
    ensure!(ending.at.since(start) >= PROBE_PERIOD, "one failure was enough: {:?}", ending.at.since(start));
    let message = message_of(&ending.object, "Held");
    ensure!(message.contains("3 times in a row"), "{message}");
    let next = led_by(&lock, mark, second, 2 * TTL + SOON).await?;
    let took = next.at.since(asked);
    ensure!(took < 2 * TTL + FAILURES * PROBE_PERIOD + SECOND, "the next leader was there only after {took:?}");
    check_waited(&lock, token(&held.object)?, &next, Duration::ZERO, SECOND)?;
    // A pod that does not answer is not chosen when the other one ends.
    ensure!(leader(&next.object).as_deref() == Some(second), "{:?}", next.object.status);
    Ok(())
}
