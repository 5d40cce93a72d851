//! Guarantees for other tenants during an attack of one tenant.
//!
//! Held locks stay held, and new ones are granted soon. The operator's pods stay within their limits, and so does the
//! number of changes of leadership.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use redlock_operator::time::{Boottime, Clock as _, SystemClock};

use super::shares::measure;
use crate::{
    bench::Bench,
    cluster::Cluster,
    history::check_all_held,
    locks::{Lock, hold},
    operators,
    pods::is_ready,
    record::Recorder,
};

/// Locks that are held throughout.
const HELD: usize = 5;
const TTL: Duration = Duration::from_secs(3);
/// The limit of each replica of the operator.
///
/// Kubernetes would end a replica with 256 MiB.
pub(crate) const MEMORY_LIMIT_KIB: u64 = 200 * 1024;
/// The pause after the first change of leadership because of a quorum that no replica reaches.
///
/// The pauses double, up to the longest one (docs/dev/algorithm.md).
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Maximum number of terms that begin within this time.
///
/// The first change of leadership is immediate.
fn most_terms(elapsed: Duration) -> usize {
    let (mut terms, mut pause, mut next) = (1, FIRST_PAUSE, FIRST_PAUSE);
    while next <= elapsed {
        terms += 1;
        pause = (2 * pause).min(LONGEST_PAUSE);
        next += pause;
    }
    terms
}

/// The replicas of the operator, from a given time on.
pub(crate) struct Replicas {
    cluster: Arc<Cluster>,
    restarts: Vec<(Option<String>, i32)>,
    leases: Recorder<Lease>,
    term: i32,
    since: Boottime,
}

impl Replicas {
    pub(crate) async fn watch(cluster: &Arc<Cluster>) -> anyhow::Result<Self> {
        let leases = operators::watch_leader(cluster).await?;
        let term = operators::current(&leases)?.term;
        let restarts = operators::restarts(cluster).await?;
        Ok(Self { cluster: cluster.clone(), restarts, leases, term, since: SystemClock.boottime() })
    }

    /// Checks that all replicas are Ready and small, and that none restarted.
    ///
    /// It also checks the number of changes of leadership.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        let pods = operators::pods(&self.cluster).await?;
        ensure!(pods.len() > 1 && pods.iter().all(is_ready), "not all replicas of the operator are Ready");
        ensure!(operators::restarts(&self.cluster).await? == self.restarts, "an operator pod was restarted");
        // This machine has operator processes only with the local cluster.
        let memory = operators::memory();
        println!("         memory of the operator's processes, in KiB: {memory:?}");
        ensure!(memory.iter().all(|kibibytes| *kibibytes < MEMORY_LIMIT_KIB), "too much memory: {memory:?}");
        // The numbers of terms can skip values because they follow the clock, so the test counts the terms.
        let leases = self.leases.versions();
        let terms = leases.iter().filter_map(|lease| operators::leader_of(&lease.object)).map(|leader| leader.term);
        let later: BTreeSet<_> = terms.filter(|term| *term > self.term).collect();
        let elapsed = SystemClock.boottime().since(self.since);
        let (changes, most) = (later.len(), most_terms(elapsed));
        ensure!(changes <= most, "the leadership changed {changes} times in {elapsed:?}, at most {most} are permitted");
        Ok(())
    }
}

/// The namespace of the other tenants.
pub(crate) struct Victim {
    bench: Bench,
    held: Vec<Lock>,
    replicas: Replicas,
}

impl Victim {
    /// Takes its locks before the attack.
    pub(crate) async fn new(bench: &Bench) -> anyhow::Result<Self> {
        let held = hold(bench, HELD, None, TTL).await?;
        Ok(Self { bench: bench.clone(), held, replicas: Replicas::watch(&bench.cluster).await? })
    }

    /// Takes and releases locks during the attack, and then checks the guarantees.
    pub(crate) async fn check(&self, during: &str) -> anyhow::Result<()> {
        measure(&self.bench, &format!("apply -> Held {during}"), "meanwhile").await?;
        check_all_held(&self.held)?;
        self.replicas.check().await
    }
}
