//! Elections among pods. Applications find the leader by its label or by the status.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::Api;
use serde_json::Value;

use super::{LONG, NAMES, ROUNDS, keep_figures};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, is_held, leader, status},
    operators,
    pods::{application, is_ready, node_is_ready},
    record::Recorder,
    suite_lock::support::{HTTPD, LockVersion, election, liveness, placed, replace, run, with, worker},
};

const TTL: Duration = Duration::from_secs(5);
/// The nodes of the two pods.
const NODES: [&str; 2] = ["node2", "node3"];

/// A pod on its node, which answers health checks.
fn pod(bench: &Bench, name: &str) -> Value {
    let node = if name == NAMES[0] { NODES[0] } else { NODES[1] };
    placed(worker(bench, name, "app", HTTPD), node)
}

async fn next_leader(lock: &Lock, mark: usize, before: &str) -> anyhow::Result<LockVersion> {
    let is_next = |version: &LockVersion| {
        is_held(&version.object) && leader(&version.object).is_some_and(|leader| leader != before)
    };
    lock.recorder.until_after(mark, LONG, "another pod leads", is_next).await
}

/// How the leader of an election by label ends.
#[derive(Clone, Copy)]
enum Fault {
    ContainerKilled,
    PodDeleted,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::ContainerKilled => "election by label: container killed",
            Self::PodDeleted => "election by label: pod deleted",
        }
    }

    async fn inflict(self, bench: &Bench, pod: &str) -> anyhow::Result<()> {
        match self {
            Self::ContainerKilled => bench.cluster.faults.kill_container(&bench.namespace, pod, "app").await,
            Self::PodDeleted => bench.kubectl(&["delete", "pod", pod, "--wait=false"]).await.map(drop),
        }
    }
}

/// Ends the leader in each round, and replaces its pod.
async fn rounds(bench: &Bench, fault: Fault) -> anyhow::Result<()> {
    for name in NAMES {
        run(bench, pod(bench, name)).await?;
    }
    let lock = Lock::create(bench, election("leader", "app", TTL)).await?;
    let mut current = leader(&lock.held(SOON).await?.object).context("no leader")?;
    for _ in 0..ROUNDS {
        let (begun, mark) = (bench.now(), lock.recorder.mark());
        fault.inflict(bench, &current).await?;
        let next = next_leader(&lock, mark, &current).await?;
        bench.figures.add(fault.name(), next.at.since(begun));
        replace(bench, pod(bench, &current)).await?;
        current = leader(&next.object).context("no leader")?;
    }
    keep_figures(bench)
}

pub(crate) async fn an_election_whose_container_is_killed(bench: Bench) -> anyhow::Result<()> {
    rounds(&bench, Fault::ContainerKilled).await
}

pub(crate) async fn an_election_whose_pod_is_deleted(bench: Bench) -> anyhow::Result<()> {
    rounds(&bench, Fault::PodDeleted).await
}

/// Each round has its own lock, because an election avoids a pod that failed an earlier check.
pub(crate) async fn an_election_whose_node_is_cut_off(bench: Bench) -> anyhow::Result<()> {
    for name in NAMES {
        run(&bench, pod(&bench, name)).await?;
    }
    let nodes = Api::<Node>::all(bench.cluster.client.clone());
    for round in 0..ROUNDS {
        let lock = Lock::create(&bench, with(election(&format!("leader-{round}"), "app", TTL), liveness())).await?;
        let current = leader(&lock.held(SOON).await?.object).context("no leader")?;
        let node = if current == NAMES[0] { NODES[0] } else { NODES[1] };
        let (begun, mark) = (bench.now(), lock.recorder.mark());
        bench.cluster.faults.cut_node(node).await?;
        let next = next_leader(&lock, mark, &current).await?;
        bench.figures.add("election with liveness: node cut off", next.at.since(begun));
        bench.cluster.faults.heal_nodes().await?;
        lock.remove().await?;
        let node = Recorder::<Node>::of(nodes.clone(), node).await?;
        node.until(LONG, "the node is ready", |version| node_is_ready(&version.object)).await?;
        operators::all_ready(&bench.cluster).await?;
        for name in NAMES {
            let pod = bench.record::<Pod>(name).await?;
            pod.until(LONG, "the pod is ready", |version| is_ready(&version.object)).await?;
        }
    }
    keep_figures(&bench)
}

/// The test measures the time without a leader, from the end of a hold to the next one.
pub(crate) async fn an_election_during_a_rolling_update(bench: Bench) -> anyhow::Result<()> {
    bench.create::<Deployment>(application("app", 3, &bench.cluster.member_image)).await?;
    let rolled = ["rollout", "status", "deployment/app", "--timeout=120s"];
    bench.kubectl(&rolled).await?;
    let lock = Lock::create(&bench, election("leader", "app", TTL)).await?;
    let mut current = leader(&lock.held(SOON).await?.object).context("no leader")?;
    for _ in 0..ROUNDS {
        let mark = lock.recorder.mark();
        bench.kubectl(&["rollout", "restart", "deployment/app"]).await?;
        bench.kubectl(&rolled).await?;
        next_leader(&lock, mark, &current).await?;
        current = leader(&lock.recorder.last()?.object).context("no leader")?;
        let longest = lock.recorder.after(mark).await.iter().filter_map(gap).max();
        bench.figures.add("rolling update: longest gap between leaders", longest.context("the leader did not change")?);
    }
    ensure!(is_held(&lock.recorder.last()?.object), "no leader at the end");
    keep_figures(&bench)
}

/// The time between the end of the last hold and this one.
fn gap(version: &LockVersion) -> Option<Duration> {
    let status = status(&version.object);
    let began = status.acquired_at?.as_millis();
    let ended = status.history.iter().map(|past| past.to.as_millis()).max()?;
    Some(Duration::from_millis(u64::try_from(began - ended).ok()?))
}
