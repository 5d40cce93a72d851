//! Functions that the tests of this suite share.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
use kube::{Api, ResourceExt};
use redlock_operator::api::RedisQuorum;
use serde_json::{Value, json};

pub(super) use crate::suite_lock::support::{
    IDLE, LockVersion, POD_LIMIT, election, is_ready, led_by, run, with, worker,
};
use crate::{
    bench::Bench,
    locks::{Lock, claim},
    operators,
    pods::pod_security,
    record::{Recorder, Version},
    suite_lock::support::container,
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

/// Places the pod on this node.
pub(super) fn placed(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    pod
}

/// An election in which the pod with the lower number leads first.
pub(super) fn ordered(name: &str, app: &str, ttl: Duration, quorum: Option<&str>) -> Value {
    let mut lock = election(name, app, ttl);
    lock["spec"]["election"]["preference"] = json!("LowestOrdinal");
    if let Some(quorum) = quorum {
        lock["spec"]["quorumRef"] = json!({"name": quorum});
    }
    lock
}

/// A Job whose pod works for a while after its SIGTERM.
pub(super) async fn job(bench: &Bench, works_on: Duration, node: Option<&str>) -> anyhow::Result<Job> {
    let script = format!("trap 'sleep {}; exit 0' TERM; while :; do sleep 3600 & wait $!; done", works_on.as_secs());
    let mut template = json!({"metadata": {"labels": {"app": "job"}}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": works_on.as_secs() + 10,
        "automountServiceAccountToken": false, "securityContext": pod_security(),
        "containers": [container(bench, "app", &script)]}});
    if let Some(node) = node {
        template = placed(template, node);
    }
    let pods = Recorder::labelled(bench.api(), "app=job").await?;
    let job = bench.create::<Job>(json!({"metadata": {"name": "job"}, "spec": {"template": template}})).await?;
    pods.until(POD_LIMIT, "the Job's pod is ready", |v| is_ready(&v.object)).await?;
    Ok(job)
}

/// A claim on the key `job` that the Job owns.
pub(super) fn owned_claim(name: &str, job: &Job, ttl: Duration) -> Value {
    let mut owned = claim(name, "job", None, ttl);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(), "uid": job.metadata.uid}]);
    owned
}

/// Suspends a lock, so that it is not renewed.
pub(super) async fn suspend(lock: &Lock) -> anyhow::Result<()> {
    lock.bench.patch("dlock", &lock.name, r#"{"spec":{"suspend":true}}"#).await
}

/// Ends all replicas, and then starts others.
pub(super) async fn restart_operator(bench: &Bench) -> anyhow::Result<()> {
    operators::scale(&bench.cluster, 0).await?;
    operators::scale(&bench.cluster, operators::REPLICAS).await
}

/// Waits for a renewal after the current time.
pub(super) async fn renewed_from_now(lock: &Lock) -> anyhow::Result<()> {
    let (mark, now) = (lock.recorder.mark(), lock.bench.wall().0);
    let renewed = |v: &LockVersion| {
        v.object.status.as_ref().and_then(|status| status.renewed_at).is_some_and(|at| at.as_millis() > now)
    };
    lock.recorder.until_after(mark, OPERATOR_LIMIT, "renewed", renewed).await?;
    Ok(())
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
    nodes
        .until_after(mark, NODE_LIMIT, "Ready", |version: &Version<Node>| {
            let conditions = version.object.status.as_ref().and_then(|status| status.conditions.as_deref());
            !version.gone && conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
        })
        .await?;
    Ok(())
}

/// Checks that the pod's container answers on its port, whatever the API server reports.
pub(super) async fn check_answers(bench: &Bench, address: &str) -> anyhow::Result<()> {
    let script = format!("exec 3<>/dev/tcp/{address}/8080 && echo well");
    let answer = bench.cluster.faults.beside_the_control_plane(&script).await?;
    ensure!(answer.trim() == "well", "the container does not answer: {answer}");
    Ok(())
}
