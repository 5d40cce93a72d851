//! The operator's own metrics and rights.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::ResourceExt;
use serde_json::json;

use super::support::{IDLE, election, run, worker};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators, poll,
};

const TTL: Duration = Duration::from_secs(3);

/// Metrics that users and alerts read, and a sample that the leader must have.
const FAMILIES: &[(&str, &str)] = &[
    ("redlock_acquisitions_total", "redlock_acquisitions_total{outcome=\"granted\"}"),
    ("redlock_acquire_duration_seconds", "redlock_acquire_duration_seconds_count"),
    ("redlock_renewals_total", "redlock_renewals_total{outcome=\"renewed\"}"),
    ("redlock_renewal_lateness_seconds", "redlock_renewal_lateness_seconds_count"),
    ("redlock_holds_ended_total", "redlock_holds_ended_total{reason=\"Released\"}"),
    ("redlock_locks_held", "redlock_locks_held "),
    ("redlock_locks_waiting", "redlock_locks_waiting{reason=\"Queued\"}"),
    ("redlock_member_state", "member=\"main-0\",state=\"Admitted\"} 1"),
    ("redlock_member_fence_remaining_seconds", "member=\"main-2\"} 0"),
    (
        "redlock_member_latency_seconds",
        "redlock_member_latency_seconds_count{quorum_namespace=\"redlock-system\",quorum=\"main\",member=\"main-1\"}",
    ),
    ("redlock_api_writes_total", "redlock_api_writes_total{outcome=\"written\"}"),
    ("redlock_reconcile_errors_total", "redlock_reconcile_errors_total{controller=\"lock\"}"),
    ("redlock_leader", "redlock_leader 1"),
];

pub(crate) async fn metrics_have_every_family_and_no_lock_name(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let released = Lock::take(&bench, claim("released", "a", None, TTL)).await?;
    released.remove().await?;
    let held = Lock::take(&bench, claim("secret-project", "b", None, TTL)).await?;
    let _waiting = Lock::queue(&bench, claim("waiting", "b", None, TTL)).await?;
    held.renewed(SOON).await?;
    let leader = operators::leader(&bench.cluster).await?.pod;
    let text = operators::read(&bench.cluster, &leader, "metrics").await?;
    for (family, sample) in FAMILIES {
        ensure!(text.contains(&format!("# HELP {family} ")), "no {family}:\n{text}");
        ensure!(text.contains(sample), "no {sample:?}:\n{text}");
    }
    ensure!(!text.contains("secret-project"), "a label names a lock");
    for path in ["healthz", "readyz"] {
        let answer = operators::read(&bench.cluster, &leader, path).await?;
        ensure!(answer == "ok\n", "/{path} of a healthy operator: {answer}");
    }
    // The other replica renews, and reports that it does not lead.
    let pods = operators::pods(&bench.cluster).await?;
    let standby = pods.iter().map(ResourceExt::name_any).find(|name| *name != leader).context("no standby")?;
    poll::until(SOON, "the standby renews", async || {
        let text = operators::read(&bench.cluster, &standby, "metrics").await?;
        ensure!(text.contains("redlock_leader 0"), "two leaders?\n{text}");
        Ok(text.contains("redlock_renewals_total{outcome=\"renewed\"}").then_some(()))
    })
    .await
}

/// Requests that RBAC refuses to the operator's account: verb and resource.
const FORBIDDEN: &[&str] = &[
    "list secrets",
    "watch secrets",
    "create pods",
    "update pods",
    "create pods/exec",
    "create pods/eviction",
    "patch pods/status",
    "delete redisquorums.redlock-operator.io",
    "delete namespaces",
    "patch nodes",
    "list leases.coordination.k8s.io",
    "create deployments.apps",
    "get configmaps",
    "create clusterrolebindings.rbac.authorization.k8s.io",
    "impersonate users",
    "create serviceaccounts/token",
    "delete leases.coordination.k8s.io",
];

pub(crate) async fn the_operator_has_no_unnecessary_rights(bench: Bench) -> anyhow::Result<()> {
    let operator = format!("--as={}", operators::account(&bench.cluster));
    for forbidden in FORBIDDEN {
        let (verb, what) = forbidden.split_once(' ').context("a verb and a resource")?;
        let answer = can_i(&bench, verb, what, &operator).await?;
        ensure!(answer == "no", "the operator's right to {forbidden}: {answer}");
    }
    // The admission policy refuses requests that RBAC cannot express.
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let patches = [
        (json!({"metadata": {"labels": {"app": "other"}}}), "no pod labels except"),
        (json!({"metadata": {"labels": {"redlock-operator.io/quorum": "q"}}}), "no pod labels except"),
        (json!({"metadata": {"annotations": {"a": "b"}}}), "no annotation of pods except"),
        (json!({"metadata": {"finalizers": ["example.com/x"]}}), "finalizers"),
        (json!({"spec": {"containers": [{"name": "app", "image": "other"}]}}), "spec"),
        (json!({"spec": {"activeDeadlineSeconds": 60}}), "spec"),
    ];
    for (patch, word) in patches {
        bench.refuses(&["patch", "pod", "app-0", "--patch", &patch.to_string(), &operator], "", word).await?;
    }
    let allowed = json!({"labels": {"leader.redlock-operator.io/x": "true"},
        "annotations": {"controller.kubernetes.io/pod-deletion-cost": "1000001"}});
    let label = json!({"metadata": allowed}).to_string();
    bench.kubectl(&["patch", "pod", "app-0", "--patch", &label, &operator]).await?;
    // The policy applies to no other account.
    bench.kubectl(&["label", "pod", "app-0", "app=other", "--overwrite"]).await.map(drop)
}

/// The answer of the API server to `kubectl auth can-i`: `yes` or `no`.
///
/// A resource can have a subresource after a slash.
async fn can_i(bench: &Bench, verb: &str, what: &str, who: &str) -> anyhow::Result<String> {
    let (resource, part) = what.split_once('/').unwrap_or((what, ""));
    let part = format!("--subresource={part}");
    let output = bench.kubectl_output(&["auth", "can-i", verb, resource, &part, who], "").await?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A user with the usual role for a namespace uses locks, and cannot write their status.
pub(crate) async fn editors_use_locks_and_do_not_write_their_status(bench: Bench) -> anyhow::Result<()> {
    let editor = "--as=e2e-editor";
    bench.kubectl(&["create", "rolebinding", "editor", "--clusterrole=edit", "--user=e2e-editor"]).await?;
    let answer = async |verb: &str, what: &str| can_i(&bench, verb, what, editor).await;
    let locks = "distributedlocks.redlock-operator.io";
    // The API server aggregates roles in the background.
    let may = || async { Ok((answer("create", locks).await? == "yes").then_some(())) };
    poll::until(SOON, "an editor may create locks", may).await?;
    for (verb, what, expected) in [
        ("delete", locks, "yes"),
        ("get", "redisquorums.redlock-operator.io", "yes"),
        ("update", "distributedlocks.redlock-operator.io/status", "no"),
        ("patch", "redisquorums.redlock-operator.io/status", "no"),
        ("create", "redisquorums.redlock-operator.io", "no"),
        ("delete", "redisquorums.redlock-operator.io", "no"),
    ] {
        let answer = answer(verb, what).await?;
        ensure!(answer == expected, "an editor's right to {verb} {what}: {answer}");
    }
    let lock = Lock::create(&bench, election("app", "nobody", TTL)).await?;
    lock.reason("NoCandidate", SOON).await.map(drop)
}
