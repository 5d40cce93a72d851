//! Programs written in Go that elect one of them.

use std::time::Duration;

use super::{LONG, NAMES, ROUNDS, keep_figures};
use crate::{
    bench::Bench,
    locks::Lock,
    poll,
    programs::{CLIENT_GO, LEASE, Program},
    suite_gate::controllers::{gated, prepare},
    suite_lock::support::{IDLE, POD_LIMIT, led_by, replace, run_pair, worker},
};

/// The time between the start of a leader and its kill, in which the next candidate begins to wait.
const ALONE: Duration = Duration::from_secs(5);

/// How the processes elect one of them.
#[derive(Clone, Copy)]
enum Way {
    /// client-go with a Lease that no lock names.
    Plain,
    /// client-go with a Lease behind the gate, where each process has the identity of a pod.
    Gated,
    /// The module for Go, in pods.
    Module,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain Lease",
            Self::Gated => "Lease behind the gate",
            Self::Module => "Go module in a pod",
        }
    }

    const fn has_pods(self) -> bool {
        matches!(self, Self::Gated | Self::Module)
    }

    async fn start(self, bench: &Bench, name: &str) -> anyhow::Result<Program> {
        match self {
            Self::Plain => Program::start(bench, name, CLIENT_GO, &[("LEASE", LEASE), ("IDENTITY", name)]),
            Self::Gated => Program::of_pod(bench, CLIENT_GO, name).await,
            Self::Module => Program::inside_pod(bench, name, "controller", &[("KEY", "controller")]).await,
        }
    }

    /// A new candidate in place of a killed one.
    async fn restart(self, bench: &Bench, name: &str) -> anyhow::Result<Program> {
        if self.has_pods() {
            // The test replaces the pod, because the kubelet delays repeated restarts of one pod.
            replace(bench, worker(bench, name, "app", IDLE)).await?;
        }
        self.start(bench, name).await
    }

    /// Kills the process and, if it belongs to a pod, the container of that pod.
    async fn kill(self, bench: &Bench, program: &mut Program) -> anyhow::Result<()> {
        if self.has_pods() {
            bench.cluster.faults.kill_container(&bench.namespace, &program.name, "app").await?;
        }
        Ok(program.child.kill().await?)
    }
}

/// Kills the leader in each round, and starts it again as a candidate.
async fn rounds(bench: &Bench, way: Way) -> anyhow::Result<()> {
    let [first, second] = NAMES;
    let mut leader = way.start(bench, first).await?;
    leader.leads(LONG).await?;
    let mut next = way.start(bench, second).await?;
    for _ in 0..ROUNDS {
        let alone = || std::future::ready(Ok(leader.is_leading(bench) && next.term().is_none()));
        poll::stays(ALONE, "one leads alone", alone).await?;
        let killed = bench.now();
        way.kill(bench, &mut leader).await?;
        next.leads(LONG).await?;
        bench.figures.add(&format!("{}: leader killed", way.name()), bench.now().since(killed));
        let again = way.restart(bench, &leader.name).await?;
        leader = std::mem::replace(&mut next, again);
    }
    keep_figures(bench)
}

/// The programs have the rights of an administrator, and no lock names their Lease.
pub(crate) async fn a_plain_lease(bench: Bench) -> anyhow::Result<()> {
    rounds(&bench, Way::Plain).await
}

pub(crate) async fn a_lease_behind_the_gate(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    led_by(&lock, 0, NAMES[0], POD_LIMIT).await?;
    rounds(&bench, Way::Gated).await
}

pub(crate) async fn the_go_module(bench: Bench) -> anyhow::Result<()> {
    run_pair(&bench, "app", NAMES).await?;
    rounds(&bench, Way::Module).await
}
