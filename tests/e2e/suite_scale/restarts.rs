//! Replicas are replaced while they hold many locks. No lock is lost and no container is ended.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::{Api, ResourceExt, api::DeleteParams};
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, is_held, status},
    operators, poll,
    record::Recorder,
    suite_tenants::shares::{create_all, measure, until_all},
};

/// The number of locks in the namespace, which is the chart's limit.
///
/// `LOCKS` sets another number.
const LOCKS: usize = 10_000;
/// Locks of another namespace.
const OTHERS: usize = 20;
const TTL: Duration = Duration::from_secs(30);
/// The limit of a replica's memory.
///
/// The chart's memory limit is 256Mi, which includes the pages of the program file.
const MEMORY_LIMIT_KIB: u64 = 240 * 1024;
const ALL_HELD: Duration = Duration::from_secs(900);
const NAMESPACE_GONE: Duration = Duration::from_secs(600);

pub(crate) async fn quiet_locks_outlive_every_restart(bench: Bench) -> anyhow::Result<()> {
    outlive(bench, "Transitions").await
}

pub(crate) async fn published_locks_outlive_every_restart(bench: Bench) -> anyhow::Result<()> {
    outlive(bench, "Published").await
}

/// Takes the locks, replaces replicas in three ways, and deletes the namespace.
async fn outlive(bench: Bench, validity: &'static str) -> anyhow::Result<()> {
    let count = std::env::var("LOCKS").ok().and_then(|text| text.parse().ok()).unwrap_or(LOCKS);
    bench
        .beside("scale-others", async |others| {
            let mut held = Vec::new();
            for number in 0..OTHERS {
                let name = format!("held-{number}");
                held.push(Lock::create(others, claim(&name, &name, None, TTL)).await?);
            }
            for lock in &held {
                lock.held(SOON).await?;
            }
            let many = Recorder::<DistributedLock>::labelled(bench.api(), "e2e=many").await?;
            let locks: Api<DistributedLock> = bench.api();
            let began = bench.now();
            create_all(&locks, count, |number| lock(number, validity)).await?;
            until_all(&many, count, ALL_HELD, is_held).await?;
            bench.figures.add(&format!("{count} {validity} locks: all held"), bench.now().since(began));
            report(&bench, "while they are held").await?;
            measure(others, &format!("apply -> Held beside {count} {validity} locks"), "held").await?;

            let leader = operators::leader(&bench.cluster).await?;
            delete(&bench, &[leader.pod]).await?;
            report(&bench, "after the restart of the leader").await?;
            let all: Vec<_> = operators::pods(&bench.cluster).await?.iter().map(ResourceExt::name_any).collect();
            delete(&bench, &all).await?;
            report(&bench, "after the restart of all replicas at once").await?;
            operators::roll(&bench.cluster).await?;
            operators::all_available(&bench.cluster).await?;
            report(&bench, "after a rolling update").await?;
            check_kept(&many, count)?;

            let began = bench.now();
            bench.kubectl(&["delete", "namespace", &bench.namespace, "--wait=false"]).await?;
            measure(others, &format!("apply -> Held while {count} {validity} locks are deleted"), "deleted").await?;
            let left = || async { Ok(locks.list_metadata(&Default::default()).await?.items.is_empty().then_some(())) };
            poll::until(NAMESPACE_GONE, "all locks of the namespace are gone", left).await?;
            bench.figures.add(&format!("{count} {validity} locks: deleted"), bench.now().since(began));
            report(&bench, "after the namespace").await?;
            for lock in &held {
                check_never_lost(&lock.recorder.versions()).with_context(|| lock.name.clone())?;
            }
            Ok(())
        })
        .await
}

fn lock(number: usize, validity: &str) -> Value {
    let name = format!("many-{number}");
    let mut lock = claim(&name, &name, None, TTL);
    lock["spec"]["validity"] = json!(validity);
    lock
}

/// Deletes pods of the operator at the same time, and waits for their successors.
async fn delete(bench: &Bench, pods: &[String]) -> anyhow::Result<()> {
    let api: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(bench.cluster.client.clone(), &bench.cluster.operator_namespace);
    for pod in pods {
        api.delete(pod, &DeleteParams::default()).await?;
    }
    operators::all_available(&bench.cluster).await
}

/// Checks that no container was ended and that all replicas are small.
///
/// It prints their memory.
async fn report(bench: &Bench, when: &str) -> anyhow::Result<()> {
    let peaks = operators::peak_memory();
    println!("         {when}: memory of the replicas {:?} KiB, {peaks:?} at most", operators::memory());
    ensure!(peaks.iter().all(|peak| *peak < MEMORY_LIMIT_KIB), "{when}: the replicas took {peaks:?} KiB");
    let restarts = operators::restarts(&bench.cluster).await?;
    ensure!(restarts.iter().all(|(_, restarts)| *restarts == 0), "{when}: containers were restarted: {restarts:?}");
    Ok(())
}

/// Checks that each lock has had one hold, and has it.
fn check_kept(many: &Recorder<DistributedLock>, count: usize) -> anyhow::Result<()> {
    let newest: std::collections::BTreeMap<_, _> =
        many.versions().into_iter().map(|version| (version.object.name_any(), version.object)).collect();
    let kept = |lock: &&DistributedLock| is_held(lock) && status(lock).transitions == 1;
    let kept = newest.values().filter(kept).count();
    ensure!(kept == count, "{} of {count} locks were lost", count - kept);
    Ok(())
}
