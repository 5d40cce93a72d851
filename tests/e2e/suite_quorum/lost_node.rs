//! A disconnected node can still run the old process: no wait is evidence of its end.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use redlock_operator::{
    api::{FenceReason, MemberState, MemberStatus},
    fence::predecessor::NODE_READY_FOR,
};

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for, quorum_and_lock, reason_after};
use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::Lock,
    operators, pods,
    quorums::{Quorum, member_of},
    record::{Recorder, Version},
    spans::millis,
    suite_causes::surfaces::quorum_names,
};

const MAX_TTL: Duration = Duration::from_secs(4);
/// A ttl that is longer than a change of the operator's leader, whose node can be the lost one.
const TTL: Duration = Duration::from_secs(4);
const NOT_READY_LIMIT: Duration = Duration::from_secs(60);

/// A member whose pod was deleted by force on a disconnected node, and its successor on another node.
struct LostMember {
    bench: Bench,
    quorum: Quorum,
    lock: Lock,
    node: String,
    nodes: Recorder<Node>,
    /// UID of the pod that can still run there.
    uid: String,
}

impl LostMember {
    /// Creates both.
    ///
    /// The successor is fenced, because its predecessor can still run.
    async fn make(bench: &Bench) -> anyhow::Result<Self> {
        let quorum = Quorum::ready(bench, "q", MAX_TTL).await?;
        let lock = held_lock(bench, TTL).await?;
        let pod = bench.api::<Pod>().get("q-1-0").await?;
        let uid = pod.metadata.uid.context("no UID")?;
        let node = pod.spec.and_then(|spec| spec.node_name).context("no node")?;
        let nodes = Recorder::of(Api::<Node>::all(bench.cluster.client.clone()), &node).await?;
        bench.cluster.faults.cut_node(&node).await?;
        nodes.until(NOT_READY_LIMIT, "not Ready", |version| !pods::node_is_ready(&version.object)).await?;

        let mark = quorum.recorder.mark();
        bench.kubectl(&["delete", "pod", "q-1-0", "--force", "--grace-period=0"]).await?;
        let unconfirmed = |m: &_| is_fenced_for(m, FenceReason::PredecessorUnconfirmed);
        let what = "is fenced as PredecessorUnconfirmed";
        let (_, fenced) = quorum.member_until(mark, 1, RESTART_LIMIT, what, unconfirmed).await?;
        let message = fenced.message.unwrap_or_default();
        ensure!(message.contains(&node) && message.contains(&uid), "{message}");
        ensure!(fenced.node_name.as_deref() != Some(node.as_str()), "the successor is on the lost node");
        let ready = reason_after(&quorum, mark, RESTART_LIMIT, "Ready", "PredecessorUnconfirmed").await?;
        ensure!(ready.contains(&node), "{ready}");
        Ok(Self { bench: bench.clone(), quorum, lock, node, nodes, uid })
    }

    /// Checks that it is not admitted during this wait.
    async fn stays_out_during(&self, wait: Duration) -> anyhow::Result<()> {
        let recorder = &self.quorum.recorder;
        let opened = |version: &Version<_>| member_of(&version.object, "q-1").is_some_and(is_admitted);
        recorder.never_during(recorder.mark(), wait, "admitted while its predecessor may run", opened).await
    }

    /// Checks that the successor is admitted after `evidence`, and no sooner than the delay.
    ///
    /// The evidence must come after `mark`. The lock must be held throughout.
    async fn comes_back(&self, mark: usize, since: i64, limit: Duration, evidence: &str) -> anyhow::Result<()> {
        let what = format!("is admitted after {evidence}");
        let (_, admitted) = self.quorum.member_until(mark, 1, limit, &what, is_admitted).await?;
        let waited = admitted.admitted_at.context("no admittedAt")?.as_millis() - since;
        let least = millis(delay(MAX_TTL));
        ensure!(waited >= least, "admitted {waited} ms after {evidence}, not {least}");
        // The operator's leader can be on the lost node, and a validity can expire in the status before the next one is
        // published.
        check_never_lost(&self.lock.recorder.versions())
    }

    /// Waits until the node is Ready again, after the first `mark` versions.
    async fn ready_again(&self, mark: usize) -> anyhow::Result<()> {
        let ready = |version: &Version<Node>| pods::node_is_ready(&version.object);
        self.nodes.until_after(mark, NOT_READY_LIMIT, "Ready again", ready).await.map(drop)
    }

    /// Connects the node again, for the next tests.
    async fn heal(&self) -> anyhow::Result<()> {
        let mark = self.nodes.mark();
        self.bench.cluster.faults.heal_nodes().await?;
        self.ready_again(mark).await?;
        operators::all_available(&self.bench.cluster).await
    }
}

pub(crate) async fn a_pod_forced_off_a_lost_node_waits_for_a_confirmed_death(bench: Bench) -> anyhow::Result<()> {
    let lost = LostMember::make(&bench).await?;
    let cause = ["q-1", "PredecessorUnconfirmed", &lost.node];
    quorum_names(&bench, "q", "PredecessorUnconfirmed", &cause).await?;
    lost.stays_out_during(delay(MAX_TTL) * 2).await?;
    let (mark, since) = (lost.quorum.recorder.mark(), bench.wall().0);
    bench.kubectl(&["annotate", "rq", "q", &format!("redlock-operator.io/predecessor-dead={}", lost.uid)]).await?;
    lost.comes_back(mark, since, RESTART_LIMIT, "a person's word").await?;
    lost.heal().await
}

pub(crate) async fn a_pod_forced_off_a_node_waits_for_the_out_of_service_taint(bench: Bench) -> anyhow::Result<()> {
    let lost = LostMember::make(&bench).await?;
    lost.stays_out_during(delay(MAX_TTL)).await?;
    let (mark, since) = (lost.quorum.recorder.mark(), bench.wall().0);
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    bench.kubectl(&["taint", "node", &lost.node, taint]).await?;
    let back = lost.comes_back(mark, since, RESTART_LIMIT, "the taint").await;
    bench.kubectl(&["taint", "node", &lost.node, &format!("{taint}-")]).await?;
    lost.heal().await?;
    back
}

/// A cloud provider's controller deletes the Node object of a machine that is gone.
pub(crate) async fn a_pod_forced_off_a_node_waits_until_the_provider_deletes_it(bench: Bench) -> anyhow::Result<()> {
    let lost = LostMember::make(&bench).await?;
    bench.kubectl(&["patch", "node", &lost.node, "-p", r#"{"spec":{"providerID":"test:///gone"}}"#]).await?;
    lost.stays_out_during(delay(MAX_TTL)).await?;
    let (mark, since) = (lost.quorum.recorder.mark(), bench.wall().0);
    bench.kubectl(&["delete", "node", &lost.node]).await?;
    let back = lost.comes_back(mark, since, RESTART_LIMIT, "the node's deletion").await;
    // A starting kubelet creates its Node object again.
    let mark = lost.nodes.mark();
    bench.cluster.faults.heal_nodes().await?;
    bench.cluster.faults.restart_kubelet(&lost.node).await?;
    lost.ready_again(mark).await?;
    operators::all_available(&bench.cluster).await?;
    back
}

/// The evidence is a kubelet that has reported for two minutes.
///
/// By then it has killed all containers without a pod object.
pub(crate) async fn a_pod_forced_off_a_lost_node_waits_for_the_nodes_kubelet(bench: Bench) -> anyhow::Result<()> {
    let lost = LostMember::make(&bench).await?;
    let mark = lost.nodes.mark();
    bench.cluster.faults.heal_nodes().await?;
    lost.ready_again(mark).await?;
    // The operator can observe the Ready node up to a second before this test.
    let (mark, since) = (lost.quorum.recorder.mark(), bench.wall().0 + millis(NODE_READY_FOR) - 1000);
    lost.comes_back(mark, since, NODE_READY_FOR + RESTART_LIMIT, "two minutes with a kubelet").await?;
    operators::all_available(&bench.cluster).await
}

/// A node that was disconnected for a while has the same process afterwards.
///
/// The process has kept its data, and needs no wait.
pub(crate) async fn a_reconnected_member_votes_without_a_new_fence(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let before = member_of(&quorum.recorder.last()?.object, "q-1").cloned().context("no member q-1")?;
    let node = before.node_name.clone().context("no node")?;
    let mark = quorum.recorder.mark();
    bench.cluster.faults.cut_node(&node).await?;
    let unreachable = |m: &MemberStatus| m.state == MemberState::Unreachable;
    quorum.member_until(mark, 1, RESTART_LIMIT, "is unreachable", unreachable).await?;
    let mark = quorum.recorder.mark();
    bench.cluster.faults.heal_nodes().await?;
    let (_, after) = quorum.member_until(mark, 1, RESTART_LIMIT, "is admitted", is_admitted).await?;
    let is_same = after.run_id == before.run_id && after.admitted_at == before.admitted_at;
    ensure!(is_same, "not as before: {before:?}, then {after:?}");
    check_never_lost(&lock.recorder.versions())?;
    operators::all_available(&bench.cluster).await
}
