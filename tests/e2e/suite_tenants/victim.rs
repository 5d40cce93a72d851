//! What is promised to everybody else while one tenant does its worst: held locks stay held, new ones are granted soon, the operator's
//! pods stay, in bounds, and their leadership, too.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;

use super::shares::measure;
use crate::{
    bench::Bench,
    cluster::Cluster,
    history::check_held_throughout,
    locks::{Lock, SOON, claim},
    operators,
    pods::is_ready,
    record::Recorder,
};

/// Locks that are held throughout.
const HELD: usize = 5;
const TTL: Duration = Duration::from_secs(3);
/// For each replica of the operator. Kubernetes would end one with 256 MiB.
pub(crate) const MEMORY_LIMIT_KIB: u64 = 200 * 1024;
/// For a quorum that no replica reaches the leadership changes at once, after 10 s, and after 20 s more (docs/dev/algorithm.md).
const TERMS_LIMIT: usize = 3;

/// The replicas of the operator, since a moment.
pub(crate) struct Replicas {
    cluster: Arc<Cluster>,
    restarts: Vec<(Option<String>, i32)>,
    leases: Recorder<Lease>,
    term: i32,
}

impl Replicas {
    pub(crate) async fn watch(cluster: &Arc<Cluster>) -> anyhow::Result<Self> {
        let leases = operators::watch_leader(cluster).await?;
        let term = operators::current(&leases)?.term;
        Ok(Self { cluster: cluster.clone(), restarts: operators::restarts(cluster).await?, leases, term })
    }

    /// Checks that all of them are Ready and small, that none was restarted, and how often the leadership changed.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        let pods = operators::pods(&self.cluster).await?;
        ensure!(pods.len() > 1 && pods.iter().all(is_ready), "not all replicas of the operator are Ready");
        ensure!(operators::restarts(&self.cluster).await? == self.restarts, "an operator pod was restarted");
        // Elsewhere than on the local cluster there are none on this machine.
        let memory = operators::memory();
        println!("         memory of the operator's processes, in KiB: {memory:?}");
        ensure!(memory.iter().all(|kibibytes| *kibibytes < MEMORY_LIMIT_KIB), "too much memory: {memory:?}");
        // Their numbers follow the clock, so they are counted.
        let leases = self.leases.versions();
        let terms = leases.iter().filter_map(|lease| operators::leader_of(&lease.object)).map(|leader| leader.term);
        let later: BTreeSet<_> = terms.filter(|term| *term > self.term).collect();
        ensure!(later.len() <= TERMS_LIMIT, "the leadership changed {} times", later.len());
        Ok(())
    }
}

/// The namespace of everybody else.
pub(crate) struct Victim {
    bench: Bench,
    held: Vec<Lock>,
    replicas: Replicas,
}

impl Victim {
    /// Takes its locks, before anything begins.
    pub(crate) async fn new(bench: &Bench) -> anyhow::Result<Self> {
        let mut held = Vec::new();
        for number in 0..HELD {
            let name = format!("held-{number}");
            held.push(Lock::create(bench, claim(&name, &name, None, TTL)).await?);
        }
        for lock in &held {
            lock.held(SOON).await?;
        }
        Ok(Self { bench: bench.clone(), held, replicas: Replicas::watch(&bench.cluster).await? })
    }

    /// Takes and releases locks while it goes on, and then looks whether all that is promised has held.
    pub(crate) async fn check(&self, meanwhile: &str) -> anyhow::Result<()> {
        measure(&self.bench, &format!("apply -> Held {meanwhile}"), "meanwhile").await?;
        for lock in &self.held {
            check_held_throughout(&lock.recorder.versions()).with_context(|| lock.name.clone())?;
        }
        self.replicas.check().await
    }
}
