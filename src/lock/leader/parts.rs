//! What one term of leadership works with. Each part is a type of its own, and a step is given those that it needs; only the drivers
//! (`controller`, `reconcile` and `publisher`) see them all.

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::candidates::Candidates;
use super::jobs::Jobs;
use super::labels::Labels;
use super::leases::Leases;
use super::members::Members;
use super::memory::Memory;
use super::peers::Peers;
use super::publications::Publications;
use super::reachability::Reachability;
use super::store::Store;
use super::turns::Turns;
use crate::api::DistributedLock;
use crate::lock::replica::holds::Holds;
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
    /// Who could hold a lock.
    pub(super) candidates: Candidates,
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
            candidates: Candidates::new(context.clone()),
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

    /// Drops what is remembered of an object that is gone.
    pub(super) fn forget(&self, lock: &DistributedLock) {
        let uid = lock.uid().unwrap_or_default();
        self.memory.forget(&uid);
        self.leases.forget(&uid);
        self.store.forget(&uid);
        self.panics.lock().remove(&uid);
    }
}
