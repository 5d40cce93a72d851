//! Objects are deleted while their containers continue to run.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{Api, api::DeleteParams};

use super::support::{
    LockVersion, MembersOn, SLACK, check_answers, job, led_by, node_to_lose, ordered, owned_claim, placed, reports,
    run, suspend, worker,
};
use crate::{
    believers::{check_apart, check_followed},
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, leader},
    operators, pods,
    record::Recorder,
    suite_lock::support::HTTPD,
};

/// The limit until the pods of a deleted node are collected, which takes about a minute.
const COLLECTED: Duration = Duration::from_secs(150);
const TTL: Duration = Duration::from_secs(10);

/// The node's kubelet is down, so the container continues to run after its objects are deleted.
pub(crate) async fn a_holder_whose_node_object_is_deleted_is_not_cut_short(bench: Bench) -> anyhow::Result<()> {
    // With this ttl an early end differs by more than milliseconds.
    const TTL: Duration = Duration::from_secs(20);
    let (lost, kept) = node_to_lose(&bench).await?;
    let there = MembersOn::node(&bench, &lost).await?;
    let first = run(&bench, placed(worker(&bench, "app-0", "app", HTTPD), &lost)).await?;
    run(&bench, placed(worker(&bench, "app-1", "app", HTTPD), &kept)).await?;
    let (_, address) = pods::place(&first.last()?.object).context("app-0 is nowhere")?;
    let lock = Lock::create(&bench, ordered("app", "app", TTL, None)).await?;
    let held = lock.held(SOON).await?;
    ensure!(leader(&held.object).as_deref() == Some("app-0"), "{:?}", held.object.status);

    let api = Api::<Node>::all(bench.cluster.client.clone());
    let nodes = Recorder::of(api.clone(), &lost).await?;
    let number = lost.trim_start_matches("node");
    let stopped = bench.cluster.faults.inject(&["kubelet-stop", number], &["kubelet-start", number]).await?;
    let (start, mark) = (bench.now(), lock.recorder.mark());
    api.delete(&lost, &DeleteParams::default()).await?;
    let next = led_by(&lock, mark, "app-1", COLLECTED + TTL + SOON).await?;
    let ran_on = check_answers(&bench, &address).await;
    bench.figures.add("Node object of the leader deleted -> next leader (ttl 20 s)", next.at.since(start));
    let apart = check_followed(&[&lock], &next, SLACK);

    let mark = nodes.mark();
    bench.cluster.faults.end(stopped).await?;
    reports(&nodes, mark).await?;
    // A starting kubelet ends containers without a pod.
    there.are_dead(&bench).await?;
    operators::all_ready(&bench.cluster).await?;
    ran_on.context("the former leader's container has ended, so that this has shown nothing")?;
    apart
}

pub(crate) async fn a_job_deleted_during_an_ending_does_not_cut_it_short(bench: Bench) -> anyhow::Result<()> {
    let job = job(&bench, 2 * TTL, None).await?;
    let owned = Lock::take(&bench, owned_claim("owned", &job, TTL)).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    suspend(&owned, true).await?;
    owned.reason("Ending", SOON).await?;
    bench.delete::<Job>("job").await?;
    let deleted = |v: &LockVersion| v.object.metadata.deletion_timestamp.is_some();
    owned.recorder.until(SOON, "the claim is being deleted", deleted).await?;
    let held = next.held(TTL + SOON).await?;
    check_followed(&[&owned, &next], &held, SLACK)?;
    owned.recorder.until_gone(SOON).await.map(drop)
}

/// The Job is deleted, and its pod is deleted by force on a disconnected node.
///
/// The container continues to work there.
pub(crate) async fn job_pods_forced_off_a_node_keep_their_lock_until_it_expires(bench: Bench) -> anyhow::Result<()> {
    let (lost, _) = node_to_lose(&bench).await?;
    let nodes = Recorder::of(Api::<Node>::all(bench.cluster.client.clone()), &lost).await?;
    let job = job(&bench, TTL, Some(&lost)).await?;
    let pods = Recorder::<Pod>::labelled(bench.api(), "app=job").await?;
    let owned = Lock::take(&bench, owned_claim("owned", &job, TTL)).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;

    bench.cluster.faults.cut_node(&lost).await?;
    bench.delete::<Job>("job").await?;
    pods.until(SOON, "the API deletes the pod", |v| v.object.metadata.deletion_timestamp.is_some()).await?;
    let deleted = |v: &LockVersion| v.object.metadata.deletion_timestamp.is_some();
    owned.recorder.until(SOON, "the claim is being deleted", deleted).await?;
    // There is no evidence that the pod has ended, so its lock is renewed.
    next.recorder.never_during(0, TTL, "granted while the pod may run", |v| is_held(&v.object)).await?;
    bench.kubectl(&["delete", "pods", "--selector=app=job", "--force", "--grace-period=0"]).await?;
    let held = next.held(TTL + SOON).await?;
    check_followed(&[&owned, &next], &held, SLACK)?;
    let holds = check_apart(&[&owned, &next], &[])?;
    ensure!(holds.len() == 2, "not two holds: {holds:?}");
    owned.recorder.until_gone(SOON).await?;

    let mark = nodes.mark();
    bench.cluster.faults.heal_nodes().await?;
    reports(&nodes, mark).await?;
    operators::all_ready(&bench.cluster).await
}
