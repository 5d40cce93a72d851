//! A node that is cut off may still run the old process: no waiting proves anything about it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use redlock_operator::api::FenceReason;

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for};
use crate::{bench::Bench, history::check_held_throughout, operators, quorums::Quorum, record::Recorder};

const MAX_TTL: Duration = Duration::from_secs(4);
/// Longer than a change of the operator's leader, whose node may be the one that is lost.
const TTL: Duration = Duration::from_secs(4);
const NOT_READY_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn a_pod_forced_off_a_lost_node_waits_for_a_persons_word(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let pod = bench.api::<Pod>().get("q-1-0").await?;
    let uid = pod.metadata.uid.context("no UID")?;
    let node = pod.spec.and_then(|spec| spec.node_name).context("no node")?;
    let nodes = Recorder::of(Api::<Node>::all(bench.cluster.client.clone()), &node).await?;
    bench.cluster.faults.cut_node(&node).await?;
    nodes.until(NOT_READY_LIMIT, "not Ready", |version| !is_ready(&version.object)).await?;

    let mark = quorum.recorder.mark();
    bench.kubectl(&["delete", "pod", "q-1-0", "--force", "--grace-period=0"]).await?;
    let unconfirmed = |m: &_| is_fenced_for(m, FenceReason::PredecessorUnconfirmed);
    let (_, fenced) =
        quorum.member_until(mark, 1, RESTART_LIMIT, "is fenced as PredecessorUnconfirmed", unconfirmed).await?;
    let message = fenced.message.unwrap_or_default();
    ensure!(message.contains(&node) && message.contains(&uid), "{message}");
    ensure!(fenced.node_name.as_deref() != Some(node.as_str()), "the successor is on the lost node");
    let (mark, ready) = (quorum.recorder.mark(), super::helpers::condition(&quorum.recorder.last()?, "Ready"));
    ensure!(ready.1 == "PredecessorUnconfirmed" && ready.2.contains(&node), "{ready:?}");
    tokio::time::sleep(delay(MAX_TTL) * 2).await;
    let opened = quorum
        .recorder
        .versions()
        .into_iter()
        .skip(mark)
        .any(|version| crate::quorums::member_of(&version.object, "q-1").is_some_and(is_admitted));
    ensure!(!opened, "admitted while its predecessor may run");

    let mark = quorum.recorder.mark();
    bench.kubectl(&["annotate", "rq", "q", &format!("redlock-operator.io/predecessor-dead={uid}")]).await?;
    quorum.member_until(mark, 1, RESTART_LIMIT, "is admitted after a person's word", is_admitted).await?;
    check_held_throughout(&lock.recorder.versions())?;
    bench.cluster.faults.heal_nodes().await?;
    nodes.until_after(nodes.mark(), NOT_READY_LIMIT, "Ready again", |version| is_ready(&version.object)).await?;
    operators::all_available(&bench.cluster).await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
