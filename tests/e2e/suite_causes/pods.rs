//! Pods that cannot hold a lock, and claims that wait for the end of a hold.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use redlock_operator::evidence::obstacle::obstacle;
use serde_json::{Value, json};

use super::surfaces::{doctor_names, event_names, lock_names};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    record::Version,
    suite_lock::support::{
        HTTPD, IDLE, POD_LIMIT, container, create, election, leader, liveness, pod_claim, run, with, with_container,
        worker,
    },
};

const TTL: Duration = Duration::from_secs(3);
const MISSING_IMAGE: &str = "registry.invalid/missing:1";

/// A candidate whose container has these additional fields.
fn candidate(bench: &Bench, script: &str, container: Value) -> Value {
    with_container(worker(bench, "app-0", "app", script), container)
}

/// A readiness probe that always fails.
fn never_ready() -> Value {
    json!({"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}})
}

/// Creates an election whose only candidate is this pod, and checks that each surface names the cause.
async fn check_candidate_cause(bench: &Bench, pod: Value, cause: &[&str]) -> anyhow::Result<()> {
    let pod = create(bench, pod).await?;
    // The operator writes the Event once, so the cause must exist before the lock does.
    if cause.contains(&"ErrImagePull") {
        let is_obstructed = |version: &Version<Pod>| obstacle(&version.object).is_some();
        pod.until(POD_LIMIT, "the image cannot be pulled", is_obstructed).await?;
    }
    let _lock = Lock::create(bench, election("app", "app", TTL)).await?;
    lock_names(bench, "app", "NoCandidate", cause).await?;
    // The operator writes the Event three ttls after the election lost its last candidate.
    event_names(bench, "app", &[&["Warning"], cause].concat()).await?;
    doctor_names(bench, &[&format!("{}/app (NoCandidate)", bench.namespace)]).await
}

pub(crate) async fn a_candidate_whose_image_is_missing_is_named(bench: Bench) -> anyhow::Result<()> {
    let pod = candidate(&bench, IDLE, json!({"image": MISSING_IMAGE}));
    check_candidate_cause(&bench, pod, &["app-0", "ErrImagePull"]).await
}

pub(crate) async fn a_candidate_that_no_node_takes_is_named(bench: Bench) -> anyhow::Result<()> {
    let pod = with(worker(&bench, "app-0", "app", IDLE), json!({"nodeSelector": {"disk": "golden"}}));
    check_candidate_cause(&bench, pod, &["app-0", "Unschedulable"]).await
}

pub(crate) async fn a_candidate_that_crashes_is_named_with_its_exit_code(bench: Bench) -> anyhow::Result<()> {
    create(&bench, candidate(&bench, "exit 7", never_ready())).await?;
    let _lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    lock_names(&bench, "app", "NoCandidate", &["app-0", "exit code 7", "CrashLoopBackOff"]).await
}

pub(crate) async fn a_candidate_that_lacks_a_config_map_is_named(bench: Bench) -> anyhow::Result<()> {
    let pod = candidate(&bench, IDLE, json!({"envFrom": [{"configMapRef": {"name": "absent"}}]}));
    check_candidate_cause(&bench, pod, &["app-0", "CreateContainerConfigError"]).await
}

pub(crate) async fn a_candidate_that_is_not_ready_is_named(bench: Bench) -> anyhow::Result<()> {
    check_candidate_cause(&bench, candidate(&bench, IDLE, never_ready()), &["app-0 is not ready"]).await
}

pub(crate) async fn a_candidate_with_two_containers_needs_the_name_of_one(bench: Bench) -> anyhow::Result<()> {
    let mut pod = worker(&bench, "app-0", "app", IDLE);
    pod["spec"]["containers"] = json!([container(&bench, "app", IDLE), container(&bench, "mesh", IDLE)]);
    check_candidate_cause(&bench, pod, &["app-0", "app, mesh", "spec.election.container"]).await
}

pub(crate) async fn a_claim_whose_init_container_runs_is_pointed_to_it(bench: Bench) -> anyhow::Result<()> {
    let init = json!({"initContainers": [container(&bench, "wait", IDLE)]});
    create(&bench, with(worker(&bench, "app-0", "app", IDLE), init)).await?;
    let _lock = Lock::create(&bench, pod_claim("app", "app", "app-0", TTL)).await?;
    lock_names(&bench, "app", "NoCandidate", &["app-0", "init container", "spec.claim.container"]).await
}

pub(crate) async fn a_holder_that_fails_its_liveness_check_is_named(bench: Bench) -> anyhow::Result<()> {
    let probe = json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}});
    run(&bench, candidate(&bench, HTTPD, probe)).await?;
    let lock = Lock::create(&bench, with(election("app", "app", TTL), liveness())).await?;
    let held = lock.held(POD_LIMIT).await?;
    anyhow::ensure!(leader(&held.object).as_deref() == Some("app-0"), "{:?}", held.object.status);
    bench.kubectl(&["exec", "app-0", "--", "rm", "/tmp/www/healthz"]).await?;
    lock.reason("Ending", 2 * TTL + SOON).await?;
    event_names(&bench, "app", &["Ending", "app-0", "404"]).await?;
    lock_names(&bench, "app", "HolderUnhealthy", &["app-0", "liveness"]).await
}

pub(crate) async fn a_min_hold_that_keeps_the_lock_is_named(bench: Bench) -> anyhow::Result<()> {
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let lock = with(pod_claim("app", "job", "app-0", TTL), json!({"minHold": "3m"}));
    let lock = Lock::create(&bench, lock).await?;
    lock.held(POD_LIMIT).await?;
    bench.kubectl(&["delete", "pod", "app-0"]).await?;
    lock_names(&bench, "app", "Held", &["minHold keeps the lock"]).await
}

pub(crate) async fn a_lock_delay_is_named_with_its_end(bench: Bench) -> anyhow::Result<()> {
    let beats = json!({"claim": {"identity": "first", "heartbeat": "1s"}, "lockDelay": "20s"});
    let _first = Lock::take(&bench, with(claim("first", "job", None, TTL), beats)).await?;
    let second = with(claim("second", "job", None, TTL), json!({"lockDelay": "20s"}));
    let _second = Lock::create(&bench, second).await?;
    lock_names(&bench, "second", "LockDelay", &["\"first\"", "lockDelay"]).await
}
