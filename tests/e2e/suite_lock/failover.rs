//! The operator's own failover.
//!
//! Its leader is frozen and returns, or reaches only the members, or only the API server.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use redlock_operator::api::leader_label;

use super::support::{ordered, run_pair};
use crate::{
    bench::Bench,
    faults::{API_SERVER_PORT, MEMBER_PORT},
    foreign::KeyMonitor,
    history::{check_never_lost, check_one_label},
    locks::{Lock, SOON, claim, token},
    operators::{self, Leader},
    quorums::Quorum,
    record::Recorder,
};

const TTL: Duration = Duration::from_secs(3);
/// The shortest ttl that a failover must keep.
const SHORT_TTL: Duration = Duration::from_secs(1);
/// The length of a fault, which is longer than the operator's Lease and the next leader's start.
const FAULT: Duration = Duration::from_secs(12);
const AFTERWARDS: Duration = Duration::from_secs(8);

/// Locks that are held during the fault.
struct Scene {
    bench: Bench,
    locks: Vec<Lock>,
    waiting: Lock,
    labelled: Recorder<Pod>,
    monitor: KeyMonitor,
    leader: Leader,
    leases: Recorder<Lease>,
}

impl Scene {
    async fn set(bench: &Bench) -> anyhow::Result<Self> {
        operators::all_available(&bench.cluster).await?;
        let quorum = Quorum::ready(bench, "q", TTL).await?;
        run_pair(bench, "app", ["app-0", "app-1"]).await?;
        let labelled = Recorder::<Pod>::labelled(bench.api(), &format!("{}=true", leader_label("app"))).await?;
        let mut locks = Vec::new();
        for name in ["job-0", "job-1", "job-2"] {
            locks.push(Lock::create(bench, claim(name, name, Some("q"), TTL)).await?);
        }
        locks.push(Lock::create(bench, claim("short", "short", Some("q"), SHORT_TTL)).await?);
        locks.push(Lock::create(bench, ordered("app", "app", TTL, Some("q"))).await?);
        for lock in &locks {
            lock.held(SOON).await?;
        }
        let waiting = Lock::queue(bench, claim("waiting", "job-0", Some("q"), TTL)).await?;
        let monitor = KeyMonitor::start(&quorum, &format!("{}/job-0", bench.namespace)).await?;
        let leases = operators::watch_leader(&bench.cluster).await?;
        let leader = operators::current(&leases)?;
        Ok(Self { bench: bench.clone(), locks, waiting, labelled, monitor, leader, leases })
    }

    /// Checks that since before the fault no lock was lost, granted twice, or labelled twice.
    async fn check(&self, from: i64) -> anyhow::Result<()> {
        let to = self.bench.wall().0;
        for lock in &self.locks {
            lock.renewed(SOON).await?;
            check_never_lost(&lock.recorder.versions())?;
        }
        ensure!(!self.waiting.was_held(), "the waiting claim was granted");
        check_one_label(&self.labelled.versions())?;
        self.monitor.check_alive(from, to).await?;
        // After the fault the next claim gets the lock.
        let last = token(&self.locks[0].recorder.last()?.object)?;
        self.locks[0].remove().await?;
        ensure!(token(&self.waiting.held(SOON).await?.object)? > last, "the next token is not greater");
        operators::all_available(&self.bench.cluster).await
    }
}

pub(crate) async fn a_frozen_leader_that_comes_back_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    let (from, start) = (bench.wall().0, bench.now());
    let faults = &bench.cluster.faults;
    let frozen = faults.freeze(&bench.cluster.operator_namespace, &scene.leader.pod, "operator").await?;
    let next = operators::until_next_term(&scene.leases, &scene.leader).await;
    bench.figures.add("leading operator frozen -> next leader", bench.now().since(start));
    // The fault lasts for a fixed time, so there is no condition to await.
    tokio::time::sleep(FAULT.saturating_sub(bench.now().since(start))).await;
    faults.end(frozen).await?;
    let next = next?;
    ensure!(next.pod != scene.leader.pod, "the frozen replica leads");
    // A former leader would act soon after its return.
    tokio::time::sleep(AFTERWARDS).await;
    scene.check(from).await
}

impl Scene {
    /// Disconnects the leader, and connects it again later.
    ///
    /// Another replica leads in between, and grants new claims.
    async fn leads_elsewhere(&self, port: u16, figure: &str) -> anyhow::Result<()> {
        let (from, start) = (self.bench.wall().0, self.bench.now());
        let cut = operators::cut_off(&self.bench.cluster, &self.leader.pod, port).await?;
        let next = operators::until_next_term(&self.leases, &self.leader).await?;
        self.bench.figures.add(figure, self.bench.now().since(start));
        let _late = Lock::take(&self.bench, claim("late", "late", Some("q"), TTL)).await?;
        // The fault lasts for a fixed time, so there is no condition to await.
        tokio::time::sleep(FAULT.saturating_sub(self.bench.now().since(start))).await;
        self.bench.cluster.faults.end(cut).await?;
        ensure!(next.pod != self.leader.pod, "the replica that was cut off leads");
        // The former leader would act soon after its return.
        tokio::time::sleep(AFTERWARDS).await;
        self.check(from).await
    }
}

pub(crate) async fn a_leader_cut_off_from_the_api_server_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    scene.leads_elsewhere(API_SERVER_PORT, "leading operator cut off from the API server -> next leader").await
}

pub(crate) async fn a_leader_cut_off_from_the_members_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    scene.leads_elsewhere(MEMBER_PORT, "leading operator cut off from the members -> next leader").await
}

/// No lock is held, so only the failed grant can change the leader.
pub(crate) async fn a_leader_that_cannot_grant_lets_another_one_lead(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    for lock in scene.locks.iter().chain([&scene.waiting]) {
        lock.remove().await?;
    }
    let cut = operators::cut_off(&bench.cluster, &scene.leader.pod, MEMBER_PORT).await?;
    let start = bench.now();
    let lock = Lock::create(&bench, claim("new", "new", Some("q"), TTL)).await?;
    lock.held(operators::LEADER_LIMIT).await?;
    let what = "leading operator cut off from the members, nothing held -> next claim Held";
    bench.figures.add(what, bench.now().since(start));
    bench.cluster.faults.end(cut).await?;
    let leader = operators::current(&scene.leases)?.pod;
    ensure!(leader != scene.leader.pod, "the replica that cannot reach the members leads");
    Ok(())
}

pub(crate) async fn a_rolling_update_of_the_operator_harms_no_lock(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    let from = bench.wall().0;
    operators::roll(&bench.cluster).await?;
    operators::all_available(&bench.cluster).await?;
    operators::until_next_term(&scene.leases, &scene.leader).await?;
    scene.check(from).await
}
