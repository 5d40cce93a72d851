//! Functions that the tests of this suite share.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use redlock_operator::api::RedisQuorum;

pub(super) use crate::suite_lock::support::{
    IDLE, LockVersion, election, job, led_by, ordered, owned_claim, placed, run, run_pair, suspend, with, worker,
};
use crate::{
    bench::Bench,
    locks::Lock,
    operators,
    pods::node_is_ready,
    record::{Recorder, Version},
};

/// On a busy machine the next holder follows within this time after the end of the last validity.
pub(super) const SLACK: Duration = Duration::from_secs(5);
/// After a restart or a change of leader the operator works within this time.
pub(super) const OPERATOR_LIMIT: Duration = Duration::from_secs(60);
const NODE_LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn nodes(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(bench.cluster.client.clone()).list(&Default::default()).await?;
    Ok(nodes.iter().map(ResourceExt::name_any).collect())
}

/// A node on which no replica of the operator runs, and another one.
pub(super) async fn node_to_lose(bench: &Bench) -> anyhow::Result<(String, String)> {
    operators::all_available(&bench.cluster).await?;
    let pods = operators::pods(&bench.cluster).await?;
    let taken: BTreeSet<_> = pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    let nodes = nodes(bench).await?;
    let lost = nodes.iter().find(|node| !taken.contains(*node)).context("the operator is on every node")?;
    let kept = nodes.iter().find(|node| taken.contains(*node)).context("the operator is nowhere")?;
    Ok((lost.clone(), kept.clone()))
}

/// Ends all replicas, and then starts others.
pub(super) async fn restart_operator(bench: &Bench) -> anyhow::Result<()> {
    operators::while_stopped(&bench.cluster, std::future::ready(Ok(()))).await
}

/// Waits for a renewal after the current time.
pub(super) async fn renewed_from_now(lock: &Lock) -> anyhow::Result<()> {
    lock.renewed(OPERATOR_LIMIT).await.map(drop)
}

/// Processes of members on a node.
///
/// Only an administrator can confirm their death.
pub(super) struct MembersOn(Vec<(String, String, String)>);

impl MembersOn {
    pub(super) async fn node(bench: &Bench, node: &str) -> anyhow::Result<Self> {
        let quorums = Api::<RedisQuorum>::all(bench.cluster.client.clone()).list(&Default::default()).await?;
        let mut there = Vec::new();
        for quorum in quorums {
            let (namespace, name) = (quorum.namespace().unwrap_or_default(), quorum.name_any());
            for member in quorum.status.unwrap_or_default().members {
                if member.node_name.as_deref() == Some(node)
                    && let Some(uid) = member.pod_uid
                {
                    there.push((namespace.clone(), name.clone(), uid));
                }
            }
        }
        Ok(Self(there))
    }

    /// Confirms their death like an administrator.
    pub(super) async fn are_dead(&self, bench: &Bench) -> anyhow::Result<()> {
        for (namespace, quorum, uid) in &self.0 {
            let word = format!("redlock-operator.io/predecessor-dead={uid}");
            bench.cluster.kubectl(&["-n", namespace, "annotate", "--overwrite", "rq", quorum, &word]).await?;
        }
        Ok(())
    }
}

/// Waits until the node's kubelet reports, in a version after `mark`.
pub(super) async fn reports(nodes: &Recorder<Node>, mark: usize) -> anyhow::Result<()> {
    let is_ready = |version: &Version<Node>| !version.gone && node_is_ready(&version.object);
    nodes.until_after(mark, NODE_LIMIT, "Ready", is_ready).await.map(drop)
}

/// Checks that the pod's container answers on its port, whatever the API server reports.
pub(super) async fn check_answers(bench: &Bench, address: &str) -> anyhow::Result<()> {
    let script = format!("exec 3<>/dev/tcp/{address}/8080 && echo well");
    let answer = bench.cluster.faults.beside_the_control_plane(&script).await?;
    ensure!(answer.trim() == "well", "the container does not answer: {answer}");
    Ok(())
}
