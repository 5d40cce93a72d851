//! Most of the nodes are gone for good: no component reports them, now or later.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use super::support::{IDLE, led_by, nodes, ordered, placed, reports, run, worker};
use crate::{
    believers::{check_apart, check_followed, check_tokens},
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, leader, reason_of},
    operators,
    quorums::{self, Quorum},
    record::Recorder,
};

const MAX_TTL: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(10);
/// Longest time until the node controller marks the node as unknown.
const UNKNOWN: Duration = Duration::from_secs(60);
/// The longest time after that until the node counts as lost, if most other nodes are also unknown.
const LOST: Duration = Duration::from_secs(300);
const SLACK: Duration = Duration::from_secs(10);

/// One quorum has its only member on the remaining node, and its lock is passed on.
///
/// The other quorum has lost its majority. Its holder loses the lock, and no other claim gets it.
pub(crate) async fn two_permanently_lost_nodes_do_not_keep_a_lock(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let left = operators::node_of_leader(&bench.cluster).await?;
    let gone: Vec<_> = nodes(&bench).await?.into_iter().filter(|node| *node != left).collect();

    let solo = json!({"members": 1, "pod": {"nodeSelector": {"kubernetes.io/hostname": left}}});
    let _solo = Quorum::ready_with(&bench, "solo", MAX_TTL, solo).await?;
    let _spread = Quorum::ready(&bench, "q", MAX_TTL).await?;
    for (name, node) in [("app-0", &gone[0]), ("app-1", &left)] {
        run(&bench, placed(worker(&bench, name, "app", IDLE), node)).await?;
    }
    let elected = Lock::create(&bench, ordered("app", "app", TTL, Some("solo"))).await?;
    let held = elected.held(SOON).await?;
    ensure!(leader(&held.object).as_deref() == Some("app-0"), "{:?}", held.object.status);
    let without_majority = Lock::take(&bench, ordered("other", "app", TTL, Some("q"))).await?;
    let waiting = Lock::queue(&bench, claim("waiting", "other", Some("q"), TTL)).await?;

    let (start, mark) = (bench.now(), elected.recorder.mark());
    for node in &gone {
        bench.cluster.faults.cut_node(node).await?;
    }
    // The lock stays `ending`, because a majority must confirm the end before the next grant.
    let lost = without_majority.recorder.until_after(0, UNKNOWN + TTL, "lost", |v| {
        v.at > start && !is_held(&v.object) && reason_of(&v.object, "Held") == Some("NoQuorum")
    });
    let lost = lost.await?;
    bench.figures.add("two of three nodes gone -> the lock without a majority is lost", lost.at.since(start));
    let next = led_by(&elected, mark, "app-1", UNKNOWN + LOST + TTL + SLACK).await?;
    let took = next.at.since(start);
    bench.figures.add("two of three nodes gone -> next leader (ttl 10 s)", took);
    ensure!(took < UNKNOWN + LOST + TTL + SLACK, "the next leader led only after {took:?}");
    check_followed(&[&elected], &next, SLACK)?;
    ensure!(!waiting.was_held(), "granted without a majority");

    bench.cluster.faults.heal_nodes().await?;
    for node in &gone {
        let node = Recorder::of(Api::<Node>::all(bench.cluster.client.clone()), node).await?;
        reports(&node, 0).await?;
    }
    operators::all_available(&bench.cluster).await?;
    // The key is free, so one of the two locks gets it.
    let recorder = &without_majority.recorder;
    tokio::select! {
        held = waiting.held(UNKNOWN) => held?,
        led = recorder.until_after(recorder.mark(), UNKNOWN, "held again", |v| is_held(&v.object)) => led?,
    };
    check_tokens(&check_apart(&[&without_majority, &waiting], &[])?)?;
    check_tokens(&check_apart(&[&elected], &[])?)?;
    quorums::default_is_ready(&bench.cluster).await
}
