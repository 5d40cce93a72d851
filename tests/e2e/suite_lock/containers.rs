//! Leadership belongs to one container instance.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::api::DistributedLock;
use serde_json::json;

use super::support::{
    IDLE, LockVersion, POD_LIMIT, container, container_of, create, election, is_ready, led_by, message_of_held,
    ordered, past, restarts, run, with_container, worker,
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, is_held, status},
    record::Version,
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn a_pod_with_two_containers_leads_with_the_one_that_is_named(bench: Bench) -> anyhow::Result<()> {
    let mut pod = worker(&bench, "app-0", "app", IDLE);
    pod["spec"]["containers"] = json!([container(&bench, "mesh", IDLE), container(&bench, "app", IDLE)]);
    let pods = run(&bench, pod).await?;
    let unnamed = Lock::create(&bench, election("unnamed", "app", TTL)).await?;
    let refused = unnamed.reason("NoCandidate", SOON).await?;
    for word in ["spec.election.container", "kubectl.kubernetes.io/default-container"] {
        ensure!(message_of_held(&refused).contains(word), "the message: {}", message_of_held(&refused));
    }
    let mut named = election("named", "app", TTL);
    named["spec"]["election"]["container"] = json!("app");
    let named = Lock::create(&bench, named).await?;
    let holder = status(&named.held(SOON).await?.object).holder;
    let id = |name: &str| pods.last().ok().and_then(|v| container_of(&v.object, name)?.container_id.clone());
    ensure!(holder.is_some_and(|h| h.container_id == id("app")), "another container leads");
    bench.kubectl(&["annotate", "pod", "app-0", "kubectl.kubernetes.io/default-container=mesh"]).await?;
    let holder = status(&unnamed.held(SOON).await?.object).holder;
    ensure!(holder.is_some_and(|h| h.container_id == id("mesh")), "another container leads");

    // The sidecar is killed. Only the lock whose leader is this container is lost.
    let (mark, before) = (unnamed.recorder.mark(), id("mesh"));
    bench.cluster.faults.kill_container(&bench.namespace, "app-0", "mesh").await?;
    let another =
        |v: &LockVersion| is_held(&v.object) && status(&v.object).holder.is_some_and(|h| h.container_id != before);
    let next = unnamed.recorder.until_after(mark, POD_LIMIT, "led by the next instance", another).await?;
    ensure!(past(&next)?.reason == "HolderGone", "{:?}", past(&next)?);
    check_held_throughout(&named.recorder.versions()).map(drop)
}

pub(crate) async fn a_container_in_a_crash_loop_does_not_keep_leadership_by_name(bench: Bench) -> anyhow::Result<()> {
    // The container of the preferred pod exits every few seconds.
    let crashing = run(&bench, worker(&bench, "app-0", "app", "sleep 6; exit 1")).await?;
    let lock = Lock::create(&bench, ordered("app", "app", TTL, None)).await?;
    led_by(&lock, 0, "app-0", SOON).await?;
    create(&bench, worker(&bench, "app-1", "app", IDLE)).await?;
    let next = led_by(&lock, 0, "app-1", POD_LIMIT).await?;
    let lost = past(&next)?;
    ensure!(lost.reason == "HolderGone" && lost.identity == "app-0", "{lost:?}");
    let again = restarts(&crashing.last()?.object) + 2;
    crashing.until(POD_LIMIT, "restarted twice more", |v| restarts(&v.object) >= again).await?;
    let since: Vec<_> = lock.recorder.versions().into_iter().filter(|v| v.at >= next.at).collect();
    check_held_throughout(&since).map(drop)
}

/// A container that reads the token at its start leads only with a larger one.
///
/// README has this rule.
pub(crate) async fn a_restarted_container_leads_only_with_a_larger_token(bench: Bench) -> anyhow::Result<()> {
    // Each run of the container becomes ready only after a while.
    let probe = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 3, "periodSeconds": 1});
    let pod = with_container(worker(&bench, "app-0", "app", IDLE), json!({"readinessProbe": probe}));
    let pods = run(&bench, pod).await?;
    let uid = pods.last()?.object.metadata.uid;
    let lock = Lock::take(&bench, election("app", "app", TTL)).await?;
    let mark = pods.mark();
    bench.cluster.faults.kill_container(&bench.namespace, "app-0", "app").await?;
    let starts = |v: &Version<Pod>| {
        let running = container_of(&v.object, "app").and_then(|app| app.state.as_ref()?.running.as_ref());
        restarts(&v.object) == 1 && running.is_some() && !is_ready(&v.object)
    };
    let started = pods.until_after(mark, POD_LIMIT, "the container runs again and is not ready", starts).await?;
    let id = container_of(&started.object, "app").and_then(|app| app.container_id.clone());
    let read = status(&bench.api::<DistributedLock>().get("app").await?).fencing_token.unwrap_or_default();
    let leads = |lock: &DistributedLock| {
        let status = status(lock);
        status.fencing_token > Some(read) && status.holder.is_some_and(|holder| holder.pod_uid == uid)
    };
    lock.recorder.until(POD_LIMIT, "it leads by the rule", |v| leads(&v.object)).await?;
    for version in lock.recorder.versions().iter().filter(|v| v.at >= started.at && leads(&v.object)) {
        let holder = status(&version.object).holder;
        ensure!(holder.as_ref().is_some_and(|holder| holder.container_id == id), "another run leads: {holder:?}");
    }
    Ok(())
}
