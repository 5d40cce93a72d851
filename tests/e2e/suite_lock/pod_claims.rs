//! Claims of pods and of Jobs, and the events that end them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::json;

use super::support::{
    IDLE, LockVersion, POD_LIMIT, SECOND, check_waited, container_of, finished, is_ready, job, next_second,
    owned_claim, pod_claim, restarts, run, with, worker, works_after_sigterm,
};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, message_of, reason_of, status, token},
    record::{Recorder, Version},
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(4);
/// The time for which a pod works after its SIGTERM.
const WORKS_ON: Duration = Duration::from_secs(7);
/// The maximum difference between two watches of the test.
const WATCHES: Duration = Duration::from_millis(200);

pub(crate) async fn a_pod_claim_ends_with_its_container_instance(bench: Bench) -> anyhow::Result<()> {
    let first_pod = run(&bench, worker(&bench, "worker-0", "worker", IDLE)).await?;
    run(&bench, worker(&bench, "worker-1", "worker", IDLE)).await?;
    let first = Lock::create(&bench, pod_claim("first", "job", "worker-0", TTL)).await?;
    let held = first.held(SOON).await?;
    let holder = status(&held.object).holder.context("no holder")?;
    let pod = first_pod.last()?.object;
    let container = container_of(&pod, "app").and_then(|c| c.container_id.clone());
    ensure!((&holder.pod_uid, &holder.container_id) == (&pod.metadata.uid, &container), "{holder:?}");
    let second = Lock::queue(&bench, pod_claim("second", "job", "worker-1", TTL)).await?;

    // The kubelet reports whole seconds. A container that begins in the second of the grant is in doubt.
    next_second(&bench).await;
    let start = bench.now();
    bench.cluster.faults.kill_container(&bench.namespace, "worker-0", "app").await?;
    let next = second.held(SOON).await?;
    let took = next.at.since(start);
    bench.figures.add("SIGKILL to a claim's container -> next claim Held", took);
    ensure!(took < Duration::from_secs(3), "the next claim was held after {took:?}");
    ensure!(token(&next.object)? > token(&held.object)?, "the next token is not greater");
    finished(&first, "HolderGone", SOON).await?;

    // The restarted pod has the same name and UID, but the claim has ended.
    first_pod.until(POD_LIMIT, "restarted", |v| restarts(&v.object) == 1 && is_ready(&v.object)).await?;
    second.remove().await?;
    let _third = Lock::take(&bench, pod_claim("third", "job", "worker-0", TTL)).await?;
    ensure!(!is_held(&first.recorder.last()?.object), "a finished claim was held again");
    Ok(())
}

pub(crate) async fn a_claim_whose_pod_vanished_leaves_the_queue(bench: Bench) -> anyhow::Result<()> {
    let pod = run(&bench, worker(&bench, "worker-0", "worker", IDLE)).await?;
    let holder = Lock::take(&bench, claim("holder", "job", None, TTL)).await?;
    let vanishing = Lock::queue(&bench, pod_claim("a-vanishing", "job", "worker-0", TTL)).await?;
    next_second(&bench).await;
    let last = Lock::create(&bench, claim("b-last", "job", None, TTL)).await?;
    let at = |position| move |v: &LockVersion| status(&v.object).queue_position == Some(position);
    last.recorder.until(SOON, "second in the queue", at(2)).await?;

    bench.delete::<Pod>("worker-0").await?;
    last.recorder.until(SOON, "first in the queue", at(1)).await?;
    pod.until_gone(SOON).await?;
    let left = vanishing.reason("NoCandidate", SOON).await?;
    ensure!(message_of(&left.object, "Held").contains("worker-0"), "{:?}", status(&left.object));
    holder.delete().await?;
    last.held(SOON).await.map(drop)
}

pub(crate) async fn a_pod_deleted_by_force_is_in_doubt_and_not_dead(bench: Bench) -> anyhow::Result<()> {
    run(&bench, worker(&bench, "worker-0", "worker", IDLE)).await?;
    let first = Lock::create(&bench, pod_claim("first", "job", "worker-0", TTL)).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    bench.kubectl(&["delete", "pod", "worker-0", "--grace-period=0", "--force"]).await?;
    let ending = first.reason("Ending", SOON).await?;
    ensure!(message_of(&ending.object, "Held").contains("vanished"), "{:?}", status(&ending.object));
    let next = next.held(TTL + SOON).await?;
    check_waited(&first, held, &next, Duration::ZERO, SECOND)?;
    finished(&first, "HolderGone", SOON).await?;
    lock_names(&bench, "first", "HolderGone", &["worker-0"]).await
}

pub(crate) async fn a_pod_being_deleted_is_renewed_for_until_it_has_ended(bench: Bench) -> anyhow::Result<()> {
    let pod = worker(&bench, "worker-0", "worker", &works_after_sigterm(WORKS_ON));
    let pods = run(&bench, with(pod, json!({"terminationGracePeriodSeconds": 30}))).await?;
    let ttl = Duration::from_secs(2);
    let first = Lock::take(&bench, pod_claim("first", "job", "worker-0", ttl)).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, ttl)).await?;
    let start = bench.now();
    bench.delete::<Pod>("worker-0").await?;
    let held = next.held(WORKS_ON + SOON).await?;
    let took = held.at.since(start);
    ensure!(took >= WORKS_ON, "the next claim was held while the pod still worked, after {took:?}");
    let ended = pods.until(SOON, "the container has terminated", has_terminated).await?;
    let late = held.at.since(ended.at);
    ensure!(late < SECOND, "the next claim was held {late:?} after the container had ended");
    renewed_until(&first, &ended)
}

fn has_terminated(version: &Version<Pod>) -> bool {
    let state = container_of(&version.object, "app").and_then(|container| container.state.as_ref());
    version.gone || state.is_some_and(|state| state.terminated.is_some())
}

/// Checks that the hold was renewed, and always valid by its publications, until the container ended.
fn renewed_until(lock: &Lock, ended: &Version<Pod>) -> anyhow::Result<()> {
    let until = ended.wall.0;
    let versions: Vec<_> = lock.recorder.versions().into_iter().filter(|v| is_held(&v.object)).collect();
    let is_early = |v: &&LockVersion| ended.at.since(v.at) > WATCHES;
    let ending = versions.iter().filter(is_early).find(|v| reason_of(&v.object, "Held") == Some("Ending"));
    ensure!(ending.is_none(), "it was not renewed: {:?}", ending.map(|v| status(&v.object)));
    let valid = versions.last().and_then(|v| status(&v.object).valid_until).context("never held")?.as_millis();
    ensure!(valid >= until, "its validity ended {} ms before the container", until - valid);
    Ok(())
}

pub(crate) async fn deleting_a_job_does_not_cut_its_pod_short(bench: Bench) -> anyhow::Result<()> {
    let job = job(&bench, WORKS_ON, None).await?;
    let pods = Recorder::<Pod>::labelled(bench.api(), "app=job").await?;
    let ttl = Duration::from_secs(2);
    let owned = Lock::take(&bench, owned_claim("owned", &job, ttl)).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, ttl)).await?;

    bench.delete::<Job>("job").await?;
    let deleted = |v: &LockVersion| v.object.metadata.deletion_timestamp.is_some();
    let deleted = owned.recorder.until(SOON, "the claim is being deleted", deleted).await?;
    let held = next.held(WORKS_ON + SOON).await?;
    let took = held.at.since(deleted.at);
    ensure!(took + SECOND >= WORKS_ON, "the next claim was held while the pod still worked, after {took:?}");
    let ended = pods.until(SOON, "the container has terminated", has_terminated).await?;
    ensure!(ended.at.since(held.at) < WATCHES, "the next claim was held before the container had ended");
    renewed_until(&owned, &ended)?;
    owned.recorder.until_gone(SOON).await.map(drop)
}
