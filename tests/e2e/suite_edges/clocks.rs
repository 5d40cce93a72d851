//! The wall clock of the operator's machine is wrong. Members, holders and the API server have another one.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::support::{
    IDLE, SLACK, led_by, node_to_lose, ordered, placed, renewed_from_now, reports, run, suspend, with, worker,
};
use crate::{
    believers::{check_apart, check_followed, check_no_promise_beyond_ttl, check_tokens},
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, leader, reason_of},
    quorums::{self, Quorum},
    record::Recorder,
    shifted::led_by_shifted,
    suite_lock::support::LOST_NODE_LIMIT,
};

const HOUR: i64 = 3_600_000;
const MAX_TTL: Duration = Duration::from_secs(12);
const TTL: Duration = Duration::from_secs(10);

fn on_q(name: &str, key: &str, more: Value) -> Value {
    with(claim(name, key, Some("q"), TTL), more)
}

/// The holder is cut off, so it keeps the last validity that it received.
///
/// Other locks have limits of half an hour, which must not pass.
pub(crate) async fn an_operator_that_is_an_hour_ahead_cuts_no_holder_short(bench: Bench) -> anyhow::Result<()> {
    let (lost, kept) = node_to_lose(&bench).await?;
    let nodes = Recorder::of(kube::Api::all(bench.cluster.client.clone()), &lost).await?;
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    for (name, node) in [("app-0", &lost), ("app-1", &kept)] {
        run(&bench, placed(worker(&bench, name, "app", IDLE), node)).await?;
    }
    let elected = Lock::create(&bench, ordered("app", "app", TTL, Some("q"))).await?;
    let held = elected.held(SOON).await?;
    ensure!(leader(&held.object).as_deref() == Some("app-0"), "{:?}", held.object.status);
    let limited = json!({"maxHold": "30m"});
    let held = Lock::take(&bench, on_q("held", "job", limited)).await?;
    let quiet = Lock::take(&bench, on_q("quiet", "quiet", json!({"validity": "Transitions"}))).await?;
    let waiting = Lock::queue(&bench, on_q("waiting", "job", json!({"waitTimeout": "30m"}))).await?;

    led_by_shifted(&bench, &kept, HOUR, async |_replica| {
        let mark = elected.recorder.mark();
        bench.cluster.faults.cut_node(&lost).await?;
        for lock in [&held, &elected] {
            renewed_from_now(lock).await?;
        }
        let next = led_by(&elected, mark, "app-1", LOST_NODE_LIMIT + TTL + SOON).await?;
        check_followed(&[&elected], &next, SLACK)?;
        // This leader also grants, renews, and passes on a lock.
        let fresh = Lock::create(&bench, on_q("fresh", "fresh", json!({"ttlAfterFinished": "30m"}))).await?;
        let late = fresh.held(SOON).await?;
        let queued = Lock::queue(&bench, on_q("queued", "fresh", json!({}))).await?;
        bench.break_lock("fresh", "break", "the test").await?;
        let after = queued.held(TTL + SOON).await?;
        check_followed(&[&fresh, &queued], &after, SLACK)?;
        ensure!(late.wall.0 < after.wall.0 && !fresh.recorder.last()?.gone, "a finished claim was deleted too early");
        check_no_promise_beyond_ttl(&fresh, TTL)
    })
    .await?;

    let mark = nodes.mark();
    bench.cluster.faults.heal_nodes().await?;
    reports(&nodes, mark).await?;
    for lock in [&held, &quiet] {
        check_never_lost(&lock.recorder.versions())?;
        check_no_promise_beyond_ttl(lock, TTL)?;
    }
    check_no_promise_beyond_ttl(&elected, TTL)?;
    check_tokens(&check_apart(&[&elected], &[])?)?;
    renewed_from_now(&held).await?;
    ensure!(!waiting.was_held(), "granted while another claim held the lock");
    let last = waiting.recorder.last()?.object;
    ensure!(reason_of(&last, "Held") == Some("Queued"), "it stopped waiting: {:?}", last.status);
    quorums::default_is_ready(&bench.cluster).await
}

pub(crate) async fn a_clock_that_jumps_during_an_ending_admits_no_holder_early(bench: Bench) -> anyhow::Result<()> {
    let (_, kept) = node_to_lose(&bench).await?;
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    led_by_shifted(&bench, &kept, 0, async |replica| {
        // The clock jumps ahead, back to the correct time, and behind it.
        for (round, offset) in [HOUR, 0, -HOUR].into_iter().enumerate() {
            let key = format!("job-{round}");
            let first = Lock::take(&bench, on_q(&format!("first-{round}"), &key, json!({}))).await?;
            let next = Lock::queue(&bench, on_q(&format!("next-{round}"), &key, json!({}))).await?;
            suspend(&first, true).await?;
            first.reason("Ending", SOON).await?;
            replica.shift(offset).await?;
            let held = next.held(TTL + SOON).await?;
            check_followed(&[&first, &next], &held, SLACK)?;
            for lock in [&first, &next] {
                check_no_promise_beyond_ttl(lock, TTL)?;
                lock.remove().await?;
            }
        }
        replica.shift(0).await
    })
    .await
}
