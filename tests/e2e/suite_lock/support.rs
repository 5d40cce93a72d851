//! Pods, claims and elections of the tests of this suite.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStatus, Pod},
};
use kube::ResourceExt as _;
use redlock_operator::api::{DistributedLock, PastHold};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{Lock, claim, is_held, status},
    pods::pod_security,
    record::{Recorder, Version},
};
pub(crate) use crate::{
    locks::{leader, with},
    pods::{container, is_ready},
    spans::millis,
};

/// A pod with a pulled image is ready within this time.
pub(crate) const POD_LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// A third of a ttl of 3 s, so that each renewal probes.
pub(crate) const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// The limit until the node controller (50 s) and then the operator (15 s) treat a node as lost.
pub(crate) const LOST_NODE_LIMIT: Duration = Duration::from_secs(120);
/// Waits, and ends immediately on SIGTERM.
pub(crate) const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
/// Answers at `/healthz` on port 8080 while the file exists.
pub(crate) const HTTPD: &str = "mkdir /tmp/www && echo well >/tmp/www/healthz && exec httpd -f -p 8080 -h /tmp/www";

pub(crate) type LockVersion = Version<DistributedLock>;

/// A script that waits, and works for this time after a SIGTERM.
pub(crate) fn works_after_sigterm(duration: Duration) -> String {
    format!("trap 'sleep {}; exit 0' TERM; while :; do sleep 3600 & wait $!; done", duration.as_secs())
}

/// Fields of a lock with a liveness check at [`HTTPD`], of which one failure is enough.
pub(crate) fn liveness() -> Value {
    json!({"liveness": {"httpGet": {"path": "/healthz", "port": 8080}, "failureThreshold": 1}})
}

/// A pod with the label `app` and one container named `app` that runs a shell script.
pub(crate) fn worker(bench: &Bench, name: &str, app: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "securityContext": pod_security(),
            "containers": [container(bench, "app", script)],
        },
    })
}

/// Places the pod on this node.
pub(crate) fn placed(pod: Value, node: &str) -> Value {
    with(pod, json!({"nodeSelector": {"kubernetes.io/hostname": node}}))
}

/// Adds fields to the first container of the pod.
pub(crate) fn with_container(mut pod: Value, more: Value) -> Value {
    if let (Some(container), Value::Object(more)) = (pod["spec"]["containers"][0].as_object_mut(), more) {
        container.extend(more);
    }
    pod
}

/// A Job named `job` whose pod works for a while after its SIGTERM.
pub(crate) async fn job(bench: &Bench, duration: Duration, node: Option<&str>) -> anyhow::Result<Job> {
    let mut template = json!({"metadata": {"labels": {"app": "job"}}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": duration.as_secs() + 10,
        "automountServiceAccountToken": false, "securityContext": pod_security(),
        "containers": [container(bench, "app", &works_after_sigterm(duration))]}});
    if let Some(node) = node {
        template = placed(template, node);
    }
    let pods = Recorder::labelled(bench.api(), "app=job").await?;
    let job = bench.create::<Job>(json!({"metadata": {"name": "job"}, "spec": {"template": template}})).await?;
    pods.until(POD_LIMIT, "the Job's pod is ready", |v| is_ready(&v.object)).await?;
    Ok(job)
}

/// Creates a pod and waits until it is ready.
pub(crate) async fn run(bench: &Bench, pod: Value) -> anyhow::Result<Recorder<Pod>> {
    let recorder = create(bench, pod).await?;
    recorder.until(POD_LIMIT, "the pod is ready", |v| is_ready(&v.object)).await?;
    Ok(recorder)
}

/// Runs two pods with this label `app` that wait, one after the other.
pub(crate) async fn run_pair(bench: &Bench, app: &str, names: [&str; 2]) -> anyhow::Result<()> {
    for name in names {
        run(bench, worker(bench, name, app, IDLE)).await?;
    }
    Ok(())
}

/// Deletes the pod of this name, and runs this one in its place.
pub(crate) async fn replace(bench: &Bench, pod: Value) -> anyhow::Result<Recorder<Pod>> {
    let name = pod["metadata"]["name"].as_str().context("a pod without a name")?.to_owned();
    // A test can have deleted it.
    bench.kubectl(&["delete", "pod", &name, "--ignore-not-found", "--timeout=60s"]).await?;
    run(bench, pod).await
}

/// Creates a pod and a watch on it.
pub(crate) async fn create(bench: &Bench, pod: Value) -> anyhow::Result<Recorder<Pod>> {
    let recorder = bench.record::<Pod>(pod["metadata"]["name"].as_str().context("a pod without a name")?).await?;
    bench.create::<Pod>(pod).await?;
    Ok(recorder)
}

/// The status of a container of the pod.
pub(crate) fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_deref()?;
    containers.iter().find(|container| container.name == name)
}

pub(crate) fn restarts(pod: &Pod) -> i32 {
    container_of(pod, "app").map_or(0, |container| container.restart_count)
}

/// An election among the pods with this value of the label `app`.
pub(crate) fn election(name: &str, app: &str, ttl: Duration) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"ttl": format!("{}ms", ttl.as_millis()), "election": {"selector": {"matchLabels": {"app": app}}}},
    })
}

/// An election in which the pod with the lower number leads first.
pub(crate) fn ordered(name: &str, app: &str, ttl: Duration, quorum: Option<&str>) -> Value {
    let mut lock = election(name, app, ttl);
    lock["spec"]["election"]["preference"] = json!("LowestOrdinal");
    if let Some(quorum) = quorum {
        lock["spec"]["quorumRef"] = json!({"name": quorum});
    }
    lock
}

/// A claim on the key `job` that the Job owns.
pub(crate) fn owned_claim(name: &str, job: &Job, ttl: Duration) -> Value {
    let mut owned = claim(name, "job", None, ttl);
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(), "uid": job.metadata.uid}]);
    owned
}

/// A claim of a pod.
pub(crate) fn pod_claim(name: &str, key: &str, pod: &str, ttl: Duration) -> Value {
    with(claim(name, key, None, ttl), json!({"claim": {"podName": pod}}))
}

/// Suspends a lock, so that it is not renewed, or ends its suspension.
pub(crate) async fn suspend(lock: &Lock, suspend: bool) -> anyhow::Result<()> {
    lock.bench.patch("dlock", &lock.name, &json!({"spec": {"suspend": suspend}}).to_string()).await
}

/// Waits for the first version after `mark` in which this pod holds the lock.
pub(crate) async fn led_by(lock: &Lock, mark: usize, pod: &str, limit: Duration) -> anyhow::Result<LockVersion> {
    let is_it = |v: &LockVersion| is_held(&v.object) && leader(&v.object).as_deref() == Some(pod);
    lock.recorder.until_after(mark, limit, &format!("{pod} leads"), is_it).await
}

/// The latest validity that was published with this token, on the wall clock.
pub(crate) fn valid_until(lock: &Lock, token: i64) -> anyhow::Result<i64> {
    let published = |v: LockVersion| {
        let status = status(&v.object);
        (status.fencing_token == Some(token)).then_some(status.valid_until?.as_millis())
    };
    lock.recorder.versions().into_iter().filter_map(published).max().context("no validUntil was published")
}

/// When the lock was acquired, on the wall clock.
pub(crate) fn acquired_at(version: &LockVersion) -> anyhow::Result<i64> {
    Ok(status(&version.object).acquired_at.context("no acquiredAt")?.as_millis())
}

/// Checks that the next holder came `delay` after the last validity, and less than `slack` later.
pub(crate) fn check_waited(
    before: &Lock,
    token: i64,
    next: &LockVersion,
    delay: Duration,
    slack: Duration,
) -> anyhow::Result<()> {
    let waited = acquired_at(next)? - valid_until(before, token)?;
    ensure!(waited >= millis(delay), "the next holder came {waited} ms after the last validity, not {delay:?}");
    ensure!(waited < millis(delay + slack), "the next holder came only {waited} ms after the last validity");
    Ok(())
}

/// The newest entry of the history.
pub(crate) fn past(version: &LockVersion) -> anyhow::Result<PastHold> {
    status(&version.object).history.into_iter().max_by_key(|past| past.to.as_millis()).context("no history")
}

/// Waits until the claim has ended for this reason.
pub(crate) async fn finished(lock: &Lock, reason: &str, limit: Duration) -> anyhow::Result<LockVersion> {
    let is_it = |v: &LockVersion| crate::locks::reason_of(&v.object, "Finished") == Some(reason);
    lock.recorder.until(limit, &format!("Finished with reason {reason}"), is_it).await
}

/// Waits for the next second.
///
/// Objects have the second of their creation, so their ages differ then.
pub(crate) async fn next_second(bench: &Bench) {
    let left = 1000 - bench.wall().0.rem_euclid(1000);
    tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0) + 50)).await;
}

/// The message of the condition Held.
pub(crate) fn message_of_held(version: &LockVersion) -> &str {
    crate::locks::message_of(&version.object, "Held")
}
