//! The operator's own failover: its leader is frozen and comes back, or sees the members and not the API server.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use redlock_operator::api::leader_label;

use super::support::{IDLE, LockVersion, election, run, worker};
use crate::{
    bench::Bench,
    foreign::{Line, Monitor},
    history::check_never_lost,
    locks::{Lock, SOON, claim, is_held, status, token},
    operators::{self, Leader},
    quorums::Quorum,
    record::{Recorder, Version},
};

const TTL: Duration = Duration::from_secs(3);
/// Longer than the operator's Lease and the next leader's start.
const FAULT: Duration = Duration::from_secs(12);
const AFTERWARDS: Duration = Duration::from_secs(8);

/// What is held while the fault goes on.
struct Scene {
    bench: Bench,
    locks: Vec<Lock>,
    waiting: Lock,
    labelled: Recorder<Pod>,
    monitor: Monitor,
    leader: Leader,
    leases: Recorder<k8s_openapi::api::coordination::v1::Lease>,
}

impl Scene {
    async fn set(bench: &Bench) -> anyhow::Result<Self> {
        operators::all_available(&bench.cluster).await?;
        let quorum = Quorum::ready(bench, "q", TTL).await?;
        for pod in ["app-0", "app-1"] {
            run(bench, worker(bench, pod, "app", IDLE)).await?;
        }
        let labelled = Recorder::<Pod>::labelled(bench.api(), &format!("{}=true", leader_label("app"))).await?;
        let mut locks = Vec::new();
        for name in ["job-0", "job-1", "job-2"] {
            locks.push(Lock::create(bench, claim(name, name, Some("q"), TTL)).await?);
        }
        let mut elected = election("app", "app", TTL);
        elected["spec"]["quorumRef"] = serde_json::json!({"name": "q"});
        locks.push(Lock::create(bench, elected).await?);
        for lock in &locks {
            lock.held(SOON).await?;
        }
        let waiting = Lock::create(bench, claim("waiting", "job-0", Some("q"), TTL)).await?;
        waiting.reason("Queued", SOON).await?;
        let key = format!("{}/job-0", bench.namespace);
        let command = format!("echo $(redis 0 PTTL {key}) $(redis 1 PTTL {key}) $(redis 2 PTTL {key})");
        let monitor = Monitor::start(&quorum, "monitor", &command).await?;
        monitor.until(0, SOON, "the key lives on all members", |line| living(line) == 3).await?;
        let leases = operators::watch_leader(&bench.cluster).await?;
        let leader = operators::current(&leases)?;
        Ok(Self { bench: bench.clone(), locks, waiting, labelled, monitor, leader, leases })
    }

    /// Nothing was lost, granted twice, or labelled twice, since before the fault.
    async fn check(&self, from: i64) -> anyhow::Result<()> {
        let to = self.bench.wall().0;
        for lock in &self.locks {
            let renewed = |v: &LockVersion| status(&v.object).renewed_at.is_some_and(|at| at.as_millis() > to);
            lock.recorder.until(SOON, "renewed after the fault", renewed).await?;
            check_never_lost(&lock.recorder.versions())?;
        }
        ensure!(!self.waiting.recorder.versions().iter().any(|v| is_held(&v.object)), "the waiting claim was granted");
        one_label(&self.labelled.versions())?;
        let lines = self.monitor.until(to, SOON, "the monitor goes on", |_| true).await?;
        let dead: Vec<_> = lines.iter().filter(|line| (from..to).contains(&line.at) && living(line) < 2).collect();
        ensure!(dead.is_empty(), "the key did not live on a majority: {dead:?}");
        // All is as before: the next one gets its turn.
        let last = token(&self.locks[0].recorder.last()?.object)?;
        self.locks[0].remove().await?;
        ensure!(token(&self.waiting.held(SOON).await?.object)? > last, "the next token is not greater");
        operators::all_available(&self.bench.cluster).await
    }
}

fn living(line: &Line) -> usize {
    line.text.split(' ').filter(|left| left.parse::<i64>().is_ok_and(|left| left > 0)).count()
}

/// Never two pods with the label, in the order in which the API server took the changes.
fn one_label(versions: &[Version<Pod>]) -> anyhow::Result<()> {
    let mut labelled = BTreeSet::new();
    for version in versions {
        let name = version.object.name_any();
        if version.gone {
            labelled.remove(&name)
        } else {
            labelled.insert(name)
        };
        ensure!(labelled.len() < 2, "these pods had the leader label at the same time: {labelled:?}");
    }
    ensure!(labelled.len() == 1, "{} pods have the leader label", labelled.len());
    Ok(())
}

pub(crate) async fn a_frozen_leader_that_comes_back_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    let (from, start) = (bench.wall().0, bench.now());
    let faults = &bench.cluster.faults;
    faults.pause_container(&bench.cluster.operator_namespace, &scene.leader.pod, "operator").await?;
    let next = operators::until_next_term(&scene.leases, &scene.leader).await;
    bench.figures.add("leading operator frozen -> next leader", bench.now().since(start));
    // The fault itself: there is nothing to wait for.
    tokio::time::sleep(FAULT.saturating_sub(bench.now().since(start))).await;
    faults.resume_container(&bench.cluster.operator_namespace, &scene.leader.pod, "operator").await?;
    let next = next?;
    ensure!(next.pod != scene.leader.pod, "the frozen replica leads");
    // Whatever the zombie does, it does it soon.
    tokio::time::sleep(AFTERWARDS).await;
    scene.check(from).await
}

pub(crate) async fn a_leader_cut_off_from_the_api_server_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    let pods: Api<Pod> = Api::namespaced(bench.cluster.client.clone(), &bench.cluster.operator_namespace);
    let pod = pods.get(&scene.leader.pod).await?;
    let node = pod.spec.and_then(|spec| spec.node_name).context("the leader has no node")?;
    let address = pod.status.and_then(|status| status.pod_ip).context("the leader has no address")?;
    let (from, start) = (bench.wall().0, bench.now());
    let faults = &bench.cluster.faults;
    faults.cut_from_api_server(&node, &address).await?;
    let next = operators::until_next_term(&scene.leases, &scene.leader).await;
    bench.figures.add("leading operator cut off from the API server -> next leader", bench.now().since(start));
    tokio::time::sleep(FAULT.saturating_sub(bench.now().since(start))).await;
    faults.heal_api_server(&node).await?;
    let next = next?;
    ensure!(next.pod != scene.leader.pod, "the replica that was cut off leads");
    tokio::time::sleep(AFTERWARDS).await;
    scene.check(from).await
}
