//! The order of claims on one key.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::support::{LockVersion, finished, millis, next_second, pod_claim, suspend, with};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, status, token},
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(5);

async fn at_position(lock: &Lock, position: i32) -> anyhow::Result<()> {
    let is_there = |v: &LockVersion| status(&v.object).queue_position == Some(position);
    lock.recorder.until(SOON, &format!("at position {position}"), is_there).await.map(drop)
}

pub(crate) async fn a_queue_goes_by_priority_and_then_by_age(bench: Bench) -> anyhow::Result<()> {
    let holder = Lock::create(&bench, claim("holder", "reindex", None, TTL)).await?;
    let mut last = token(&holder.held(SOON).await?.object)?;
    // An order by name would be the opposite.
    let old = Lock::create(&bench, claim("z-old", "reindex", None, TTL)).await?;
    next_second(&bench).await;
    let young = Lock::create(&bench, claim("b-young", "reindex", None, TTL)).await?;
    at_position(&old, 1).await?;
    at_position(&young, 2).await?;
    next_second(&bench).await;
    let patient = claim("a-patient", "reindex", None, TTL);
    let patient = Lock::create(&bench, with(patient, json!({"priority": -1}))).await?;
    let urgent = claim("y-urgent", "reindex", None, TTL);
    let urgent = Lock::create(&bench, with(urgent, json!({"priority": 5}))).await?;
    at_position(&urgent, 1).await?;
    at_position(&old, 2).await?;
    at_position(&young, 3).await?;
    at_position(&patient, 4).await?;

    let order = [&urgent, &old, &young, &patient];
    let mut holder = &holder;
    for (turn, next) in order.iter().enumerate() {
        holder.delete().await?;
        let held = next.held(SOON).await?;
        let token = token(&held.object)?;
        ensure!(token > last, "the token of {} is {token}, after {last}", next.name);
        let early = order.iter().skip(turn + 1).find(|other| other.was_held());
        ensure!(early.is_none(), "{} was held before {}", early.map_or("", |lock| &lock.name), next.name);
        (holder, last) = (next, token);
    }
    Ok(())
}

pub(crate) async fn claims_that_cannot_hold_do_not_block_the_queue(bench: Bench) -> anyhow::Result<()> {
    let holder = Lock::take(&bench, claim("holder", "reindex", None, TTL)).await?;
    let nobody = with(pod_claim("a-nobody", "reindex", "no-such-pod", TTL), json!({"priority": 9}));
    let nobody = Lock::create(&bench, nobody).await?;
    let suspended = with(claim("b-suspended", "reindex", None, TTL), json!({"suspend": true}));
    let suspended = Lock::create(&bench, suspended).await?;
    nobody.reason("NoCandidate", SOON).await?;
    let absent = format!("Pod {}/no-such-pod does not exist", bench.namespace);
    lock_names(&bench, "a-nobody", "NoCandidate", &[&absent]).await?;
    suspended.reason("Suspended", SOON).await?;
    lock_names(&bench, "b-suspended", "Suspended", &["spec.suspend"]).await?;
    next_second(&bench).await;
    let last = Lock::create(&bench, claim("c-last", "reindex", None, TTL)).await?;
    at_position(&last, 1).await?;

    let start = bench.now();
    holder.delete().await?;
    let took = last.held(SOON).await?.at.since(start);
    ensure!(took < Duration::from_secs(1), "the claim was held only after {took:?}");

    suspend(&suspended, false).await?;
    suspended.reason("Queued", SOON).await.map(drop)
}

pub(crate) async fn a_claim_that_waited_too_long_gives_up(bench: Bench) -> anyhow::Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let holder = Lock::take(&bench, claim("holder", "reindex", None, TTL)).await?;
    let waiting = with(claim("waiting", "reindex", None, TTL), json!({"waitTimeout": "3s"}));
    let waiting = Lock::create(&bench, waiting).await?;
    let start = waiting.reason("Queued", SOON).await?;
    let end = finished(&waiting, "WaitTimeout", SOON).await?;
    let created = end.object.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    let waited = end.wall.0 - created;
    ensure!(waited >= millis(TIMEOUT), "it stopped waiting {waited} ms after its creation");
    let took = end.at.since(start.at);
    ensure!(took < TIMEOUT + Duration::from_secs(1), "it stopped waiting only after {took:?}");
    lock_names(&bench, "waiting", "WaitTimeout", &["WaitTimeout", "3s"]).await?;

    // The ended claim never queues again, so the next claim gets the lock.
    let next = Lock::queue(&bench, claim("next", "reindex", None, TTL)).await?;
    holder.remove().await?;
    next.held(SOON).await?;
    ensure!(!waiting.was_held(), "it was held after all");
    Ok(())
}
