//! Replicas are replaced while they hold many locks. No lock is lost and no container is ended.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{claim, create_all, hold, is_held, status, until_all, watch_all, with},
    operators, poll, quorums,
    record::Recorder,
    suite_tenants::shares::measure,
};

/// The number of locks in the namespace, which is the chart's limit.
///
/// `LOCKS` sets another number.
const LOCKS: usize = 10_000;
/// Locks of another namespace.
const OTHERS: usize = 20;
const TTL: Duration = Duration::from_secs(30);
/// The `ttl` of published locks, whose status is written every two thirds of it.
///
/// With 30 s, 10,000 locks need 500 writes a second. That is too much for an API server on two cores.
const PUBLISHED_TTL: Duration = Duration::from_secs(300);
/// The part of a replica's memory limit in MiB that is left for pages of the program file.
const PROGRAM: u64 = 16;
const ALL_HELD: Duration = Duration::from_secs(900);
const NAMESPACE_GONE: Duration = Duration::from_secs(600);

pub(crate) async fn quiet_locks_outlive_every_restart(bench: Bench) -> anyhow::Result<()> {
    outlive(&bench, "Transitions", operators::MEMORY_LIMIT).await
}

pub(crate) async fn published_locks_outlive_every_restart(bench: Bench) -> anyhow::Result<()> {
    let test = outlive(&bench, "Published", operators::MEMORY_LIMIT);
    quorums::with_default_max_ttl(&bench.cluster, PUBLISHED_TTL, test).await
}

/// Does the same beside a second namespace with as many locks, with a larger memory limit.
pub(crate) async fn two_full_namespaces_outlive_every_restart(bench: Bench) -> anyhow::Result<()> {
    let limit = operators::LARGER_LIMIT;
    let test = bench.beside("scale-more", async |more| {
        let held = fill(more, "Transitions").await?;
        outlive(&bench, "Transitions", limit).await?;
        check_kept(&held)?;
        report(&bench, limit, "before the second namespace is deleted").await?;
        delete_namespace(more).await
    });
    operators::with_larger_limit(&bench.cluster, test).await
}

/// Takes the locks, replaces replicas in three ways, and deletes the namespace.
async fn outlive(bench: &Bench, validity: &'static str, limit: u64) -> anyhow::Result<()> {
    let count = count();
    Bench::beside(bench, "scale-others", async |others| {
        let held = hold(others, OTHERS, None, TTL).await?;
        let began = bench.now();
        let many = fill(bench, validity).await?;
        bench.figures.add(&format!("{count} {validity} locks: all held"), bench.now().since(began));
        report(bench, limit, "while they are held").await?;
        measure(others, &format!("apply -> Held beside {count} {validity} locks"), "held").await?;

        let leader = operators::leader(&bench.cluster).await?;
        delete(bench, &[leader.pod]).await?;
        report(bench, limit, "after the restart of the leader").await?;
        let all: Vec<_> = operators::pods(&bench.cluster).await?.iter().map(ResourceExt::name_any).collect();
        delete(bench, &all).await?;
        report(bench, limit, "after the restart of all replicas at once").await?;
        operators::roll(&bench.cluster).await?;
        operators::all_available(&bench.cluster).await?;
        report(bench, limit, "after a rolling update").await?;
        check_renewals(bench).await?;
        check_kept(&many)?;

        let began = bench.now();
        begin_deletion(bench).await?;
        measure(others, &format!("apply -> Held while {count} {validity} locks are deleted"), "deleted").await?;
        until_deleted(bench).await?;
        let what = format!("{count} {validity} locks: deleted, with their namespace");
        bench.figures.add(&what, bench.now().since(began));
        report(bench, limit, "after the namespace").await?;
        for lock in &held {
            check_never_lost(&lock.recorder.versions()).with_context(|| lock.name.clone())?;
        }
        Ok(())
    })
    .await
}

/// The number of locks in a namespace.
fn count() -> usize {
    std::env::var("LOCKS").ok().and_then(|text| text.parse().ok()).unwrap_or(LOCKS)
}

/// Creates the locks of a namespace, and waits until all are held.
async fn fill(bench: &Bench, validity: &str) -> anyhow::Result<Recorder<DistributedLock>> {
    let many = watch_all(bench).await?;
    create_all(&bench.api(), count(), |number| lock(number, validity)).await?;
    until_all(&many, count(), ALL_HELD, "held", |version| is_held(&version.object)).await?;
    Ok(many)
}

/// Deletes a namespace, and waits until it is gone, which takes longer than the limit at the end of a test.
pub(crate) async fn delete_namespace(bench: &Bench) -> anyhow::Result<()> {
    begin_deletion(bench).await?;
    until_deleted(bench).await
}

async fn begin_deletion(bench: &Bench) -> anyhow::Result<()> {
    bench.kubectl(&["delete", "namespace", &bench.namespace, "--wait=false"]).await.map(drop)
}

async fn until_deleted(bench: &Bench) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(bench.cluster.client.clone());
    let gone = || async { Ok(namespaces.get_metadata_opt(&bench.namespace).await?.is_none().then_some(())) };
    poll::until(NAMESPACE_GONE, "the namespace is gone, with all its locks", gone).await
}

fn lock(number: usize, validity: &str) -> Value {
    let name = format!("many-{number}");
    let ttl = if validity == "Published" { PUBLISHED_TTL } else { TTL };
    with(claim(&name, &name, None, ttl), json!({"validity": validity}))
}

/// Deletes pods of the operator at the same time, and waits for their successors.
async fn delete(bench: &Bench, pods: &[String]) -> anyhow::Result<()> {
    for pod in pods {
        operators::delete(&bench.cluster, pod).await?;
    }
    operators::all_available(&bench.cluster).await
}

/// Checks that no container was ended and that all replicas are small.
///
/// It prints their memory. `limit` is the memory limit of a replica in MiB.
async fn report(bench: &Bench, limit: u64, when: &str) -> anyhow::Result<()> {
    let peaks = operators::peak_memory();
    println!("         {when}: memory of the replicas {:?} KiB, {peaks:?} at most", operators::memory());
    ensure!(peaks.len() >= operators::REPLICAS, "{when}: {} replicas were measured", peaks.len());
    ensure!(peaks.iter().all(|peak| *peak < (limit - PROGRAM) * 1024), "{when}: the replicas took {peaks:?} KiB");
    let restarts = operators::restarts(&bench.cluster).await?;
    ensure!(restarts.iter().all(|(_, restarts)| *restarts == 0), "{when}: containers were restarted: {restarts:?}");
    Ok(())
}

/// Checks that the first renewals of new replicas had a majority, although all of them were due at once.
async fn check_renewals(bench: &Bench) -> anyhow::Result<()> {
    for pod in operators::pods(&bench.cluster).await? {
        let metrics = operators::read(&bench.cluster, &pod.name_any(), "metrics").await?;
        let failed = operators::sample(&metrics, "redlock_renewals_total{outcome=\"no_quorum\"}")?;
        let renewed = operators::sample(&metrics, "redlock_renewals_total{outcome=\"renewed\"}")?;
        println!("         {}: {failed} renewals without a majority, {renewed} with", pod.name_any());
        ensure!(failed <= count() as u64, "{failed} renewals had no majority");
    }
    Ok(())
}

/// Checks that each lock has had one hold, and has it.
fn check_kept(many: &Recorder<DistributedLock>) -> anyhow::Result<()> {
    let count = count();
    let newest: std::collections::BTreeMap<_, _> =
        many.versions().into_iter().map(|version| (version.object.name_any(), version.object)).collect();
    let kept = |lock: &&DistributedLock| is_held(lock) && status(lock).transitions == 1;
    let kept = newest.values().filter(kept).count();
    ensure!(kept == count, "{} of {count} locks were lost", count - kept);
    Ok(())
}
