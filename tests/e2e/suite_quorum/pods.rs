//! The members' pods and other components of Kubernetes.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    core::v1::{Event, Node, Pod},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, api::ListParams};
use redlock_operator::api::FenceReason;
use serde_json::json;

use super::helpers::{RESTART_LIMIT, delete_and_rejoin, held_lock, is_admitted, is_fenced_for};
use crate::{
    bench::Bench,
    history::{check_all_held, check_held_throughout},
    locks::{SOON, hold},
    quorums::Quorum,
    record::{Recorder, Version},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn members_are_spread_over_the_nodes(bench: Bench) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(bench.cluster.client.clone()).list(&ListParams::default()).await?;
    Quorum::ready(&bench, "q", MAX_TTL).await?;
    let mut used = BTreeSet::new();
    for index in 0..3 {
        let pod = bench.api::<Pod>().get(&format!("q-{index}-0")).await?;
        used.insert(pod.spec.and_then(|spec| spec.node_name).context("a ready pod without a node")?);
    }
    ensure!(used.len() == nodes.items.len().min(3), "members are on {used:?} only");
    Ok(())
}

/// A drain requests an eviction before it deletes a pod.
///
/// It can evict one member, and a second one when the first votes and has the keys again. The renewals of these locks are much later.
pub(crate) async fn a_drain_takes_one_member_at_a_time(bench: Bench) -> anyhow::Result<()> {
    let ttl = Duration::from_secs(20);
    let quorum = Quorum::ready(&bench, "q", ttl).await?;
    let locks = hold(&bench, 6, Some("q"), ttl).await?;
    let budgets = bench.record::<PodDisruptionBudget>("q").await?;
    let allows = |number| {
        move |version: &Version<PodDisruptionBudget>| {
            version.object.status.as_ref().is_some_and(|status| status.disruptions_allowed == number)
        }
    };
    budgets.until(SOON, "one member may go", allows(1)).await?;
    let mark = quorum.recorder.mark();
    evict(&bench, "q-0-0").await?.map_err(anyhow::Error::msg).context("the first eviction was refused")?;
    quorum.member_until(mark, 0, RESTART_LIMIT, "is fenced", |m| is_fenced_for(m, FenceReason::Restarted)).await?;
    let refused = evict(&bench, "q-1-0").await?.err().context("a second member was evicted while the first is out")?;
    ensure!(refused.contains("disruption budget"), "{refused}");
    quorum.member_until(mark, 0, RESTART_LIMIT, "is admitted", is_admitted).await?;
    budgets.until_after(budgets.mark(), SOON, "one member may go again", allows(1)).await?;
    let mark = quorum.recorder.mark();
    evict(&bench, "q-1-0").await?.map_err(anyhow::Error::msg).context("the second eviction was refused")?;
    quorum.member_until(mark, 1, RESTART_LIMIT, "is fenced", |m| is_fenced_for(m, FenceReason::Restarted)).await?;
    // A lock without its key on a majority has expired before this member votes again.
    quorum.member_until(mark, 1, RESTART_LIMIT, "is admitted", is_admitted).await?;
    check_all_held(&locks)
}

/// The request of `kubectl drain`.
///
/// The inner result is the API server's answer.
///
/// It uses kubectl, because the kube crate repeats refused evictions.
async fn evict(bench: &Bench, pod: &str) -> anyhow::Result<Result<(), String>> {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", bench.namespace);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}).to_string();
    let output = bench.cluster.kubectl_output(&["create", "--raw", &path, "-f", "-"], &eviction).await?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(text) })
}

/// The network plugin enforces policies, and the local one does not, so the test reads only the object.
pub(crate) async fn only_the_operator_and_clients_reach_redis(bench: Bench) -> anyhow::Result<()> {
    let policies = bench.record::<NetworkPolicy>("q").await?;
    let _quorum = Quorum::create_with(&bench, "q", MAX_TTL, json!({})).await?;
    let policy = policies.until(SOON, "exists", |version| !version.gone).await?.object;
    let namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let operator = json!({
        "namespaceSelector": namespace(&bench.cluster.operator_namespace),
        "podSelector": {"matchLabels": {
            "app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/instance": "redlock-operator",
        }},
    });
    let expected = json!({
        "podSelector": {"matchLabels": {"redlock-operator.io/quorum": "q"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{
            "from": [operator, {"namespaceSelector": namespace(&bench.namespace)}],
            "ports": [{"port": 6379, "protocol": "TCP"}],
        }],
    });
    let spec = serde_json::to_value(policy.spec)?;
    ensure!(spec == expected, "{spec}");
    Ok(())
}

pub(crate) async fn redis_members_vote_and_are_fenced_like_valkey(bench: Bench) -> anyhow::Result<()> {
    let image = json!({"image": bench.cluster.redis_image});
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, image).await?;
    let lock = held_lock(&bench, TTL).await?;
    let version = bench.kubectl(&["exec", "q-1-0", "-c", "redis", "--", "redis-server", "--version"]).await?;
    ensure!(version.contains("Redis server v=7."), "the members run {version}");
    if version.contains("v=7.0.") {
        let events = Recorder::<Event>::of_fields(bench.api(), "involvedObject.name=q,reason=KnownFaults").await?;
        let is_it = |v: &Version<Event>| v.object.message.as_ref().is_some_and(|text| text.contains("Redis 7.2.11"));
        events.until(SOON, "an Event with the least fixed version", is_it).await?;
    }
    delete_and_rejoin(&quorum, "q-1", MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions()).map(drop)
}
