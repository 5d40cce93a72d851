//! Two minutes without an API server: for all components, and for the operator alone.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::{
    bench::Bench,
    faults::API_SERVER_PORT,
    foreign::KeyMonitor,
    history::check_never_lost,
    locks::{Lock, SOON, claim, hold, token},
    operators, pods,
    quorums::Quorum,
};

const AWAY: Duration = Duration::from_secs(120);
/// A ttl that is many times shorter than the outage.
const TTL: Duration = Duration::from_secs(5);
/// The limit until watches, controllers and the operator have found the API server again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

/// Two held locks, one waiting claim for each, and a monitor of the first one's key.
struct Scene {
    bench: Bench,
    held: Vec<Lock>,
    waiting: Vec<Lock>,
    monitor: KeyMonitor,
}

impl Scene {
    async fn set(bench: &Bench) -> anyhow::Result<Self> {
        operators::all_available(&bench.cluster).await?;
        let quorum = Quorum::ready(bench, "q", TTL).await?;
        let held = hold(bench, 2, Some("q"), TTL).await?;
        let mut waiting = Vec::new();
        for (name, key) in [("next-0", "held-0"), ("next-1", "held-1")] {
            let lock = Lock::queue(bench, claim(name, key, Some("q"), TTL)).await?;
            waiting.push(lock);
        }
        let monitor = KeyMonitor::start(&quorum, &format!("{}/held-0", bench.namespace)).await?;
        Ok(Self { bench: bench.clone(), held, waiting, monitor })
    }

    /// Checks that the first lock was held in Redis during the outage, and that its status catches up.
    async fn check_held(&self, from: i64, to: i64) -> anyhow::Result<()> {
        let start = self.bench.now();
        let after = self.held[0].renewed(RECOVERY_LIMIT).await.context("after the outage")?;
        self.bench.figures.add("API server back after 2 min -> renewal in status", after.at.since(start));
        check_never_lost(&self.held[0].recorder.versions())?;
        ensure!(!self.waiting[0].was_held(), "the lock was granted twice");
        self.monitor.check_alive(from, to).await
    }

    /// Checks that a deleted claim is gone, and that the waiting one has the lock with a greater token.
    async fn check_passed_on(&self, index: usize) -> anyhow::Result<()> {
        let last = self.held[index].recorder.versions().iter().filter_map(|v| token(&v.object).ok()).max();
        self.held[index].recorder.until_gone(RECOVERY_LIMIT).await?;
        let next = token(&self.waiting[index].held(SOON).await?.object)?;
        ensure!(Some(next) > last, "the next token {next} is not greater than {last:?}");
        Ok(())
    }
}

pub(crate) async fn held_locks_outlive_two_minutes_without_an_api_server(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    bench.cluster.faults.stop_api_server().await?;
    let stopped = bench.wall().0;
    // The outage lasts for a fixed time, so there is no condition to await.
    tokio::time::sleep(AWAY).await;
    let started = bench.wall().0;
    bench.cluster.faults.start_api_server().await?;
    // The claim is deleted before the operator's watches are back.
    scene.held[1].delete().await?;
    scene.check_held(stopped, started).await?;
    scene.check_passed_on(1).await?;
    scene.held[0].delete().await?;
    scene.check_passed_on(0).await?;
    operators::all_available(&bench.cluster).await
}

/// The operator processes changes by `kubectl` only after it is connected again.
pub(crate) async fn changes_to_claims_during_a_cut_are_settled_afterwards(bench: Bench) -> anyhow::Result<()> {
    let scene = Scene::set(&bench).await?;
    let replicas = operators::pods(&bench.cluster).await?;
    let from = bench.wall().0;
    let mut cuts = Vec::new();
    for (node, address) in replicas.iter().filter_map(pods::place) {
        cuts.push(bench.cluster.faults.cut_off(&node, &address, API_SERVER_PORT).await?);
    }
    let during = async {
        scene.held[1].delete().await?;
        let late = Lock::create(&bench, claim("late", "late", Some("q"), TTL)).await?;
        // The outage is several times as long as the ttl.
        tokio::time::sleep(6 * TTL).await;
        ensure!(!late.was_held(), "granted during the outage");
        ensure!(!scene.held[1].recorder.last()?.gone, "released during the outage");
        Ok(late)
    };
    let late = during.await;
    let to = bench.wall().0;
    for cut in cuts {
        bench.cluster.faults.end(cut).await?;
    }
    scene.check_held(from, to).await?;
    scene.check_passed_on(1).await?;
    late?.held(RECOVERY_LIMIT).await?;
    operators::all_available(&bench.cluster).await
}
