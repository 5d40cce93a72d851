//! What one term of leadership works with. Each part is a type of its own, and a step is given those that it needs; only the drivers
//! (`controller`, `reconcile`, `grant` and `publish_renewals`) see them all.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::due_renewals::Publications;
use super::job_sync::Jobs;
use super::labels::Labels;
use super::lease_sync::Leases;
use super::members::Members;
use super::memory::Memory;
use super::peers::Peers;
use super::progress::Progress;
use super::reachability::Reachability;
use super::store::Store;
use super::turns::Turns;
use crate::api::DistributedLock;
use crate::lock::model::decide::WaitReason;
use crate::lock::replica::hold_table::Holds;
use crate::quorum::session::Sessions;
use crate::runtime::context::Context;
use crate::runtime::fair_queue::FairQueue;
use crate::runtime::leader::Term;

/// The number of locks that are reconciled at the same time.
const SLOTS: usize = 64;

/// All parts.
pub(super) struct Parts {
    /// Caches, clock and settings.
    pub(super) context: Context,
    /// The term.
    pub(super) reachability: Reachability,
    /// The way to the members, and the holds.
    pub(super) members: Members,
    /// The lock objects, and their Events.
    pub(super) store: Arc<Store>,
    /// The other locks.
    pub(super) peers: Arc<Peers>,
    /// The Jobs that hold locks.
    pub(super) jobs: Jobs,
    /// The leader labels.
    pub(super) labels: Labels,
    /// The Leases of elections.
    pub(super) leases: Leases,
    /// Failed attempts, and what the members said about ends.
    pub(super) memory: Memory,
    /// Read by each reconciliation of a lock that names no quorum. Whoever has it alone can move the default.
    pub(super) granting_by_default: RwLock<()>,
    /// Whose turn it is on a key.
    pub(super) turns: Turns,
    /// Which locks are looked at side by side.
    pub(super) reconciles: FairQueue,
    /// The renewals that are to be published.
    pub(super) publications: Publications,
    /// The panics in a row while a lock was handled, by UID.
    pub(super) panics: Mutex<HashMap<String, u32>>,
}

impl Parts {
    /// For a new term; nothing is carried over from an earlier one but the holds.
    pub(super) fn new(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) -> Self {
        let store = Arc::new(Store::new(context.clone()));
        let peers = Arc::new(Peers::new(context.clone(), store.clone()));
        Self {
            reachability: Reachability::new(term, context.clock.boottime()),
            members: Members::new(context.clone(), sessions, holds),
            jobs: Jobs::new(&context),
            labels: Labels::new(&context),
            leases: Leases::default(),
            memory: Memory::default(),
            granting_by_default: RwLock::default(),
            turns: Turns::default(),
            reconciles: FairQueue::new(SLOTS),
            publications: Publications::default(),
            panics: Mutex::default(),
            context,
            store,
            peers,
        }
    }

    /// Leaves the next attempt to acquire a lock to a later reconcile. The next decision says why in the status.
    ///
    /// The others on the key may have come to be ahead of the lock. No status need tell them: it may be just what cannot be written.
    pub(super) fn postpone(&self, lock: &Arc<DistributedLock>, reason: WaitReason) -> Progress {
        if self.memory.postpone(&lock.uid().unwrap_or_default(), reason, self.members.now()) {
            self.peers.nudge_others(lock);
        }
        Progress::Next(lock.clone())
    }

    /// Drops what is remembered of an object that is gone.
    pub(super) fn forget(&self, lock: &DistributedLock) {
        let uid = lock.uid().unwrap_or_default();
        self.memory.forget(&uid);
        self.leases.forget(&uid);
        self.store.forget(&uid);
        self.panics.lock().remove(&uid);
    }
}
