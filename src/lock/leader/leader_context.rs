//! Everything that one term of leadership works with.
//!
//! Each field is a separate type, and a step with one area gets only its field. The drivers (`controller`, `reconcile` and
//! `publish_renewals`) have all of them, and so have the steps of an observation, a grant and a release.

use std::sync::Arc;

use kube::ResourceExt;
use tokio::sync::RwLock;

use super::due_renewals::DueRenewals;
use super::key_mutexes::KeyMutexes;
use super::lease_sync::LeaseSync;
use super::lock_store::LockStore;
use super::member_access::MemberAccess;
use super::memory::Memory;
use super::peers::Peers;
use super::progress::Progress;
use super::reachability::Reachability;
use crate::api::DistributedLock;
use crate::lock::model::decide::WaitReason;
use crate::runtime::context::Context;
use crate::runtime::fair_queue::FairQueue;
use crate::runtime::leader::Term;

/// The number of locks that are reconciled at the same time.
const SLOTS: usize = 64;

/// The state and the clients of a term. The controller makes one for each term.
pub(super) struct LeaderContext {
    /// Caches, clock and settings.
    pub(super) context: Context,
    /// The term, and the quorums that this leader reaches.
    pub(super) reachability: Reachability,
    /// The sessions with the quorums, and the holds.
    pub(super) members: MemberAccess,
    /// The lock objects, and their Events.
    pub(super) store: Arc<LockStore>,
    /// The other locks.
    pub(super) peers: Arc<Peers>,
    /// The Leases of elections.
    pub(super) leases: LeaseSync,
    /// Pauses after failed attempts, results of seals, and refused writes.
    pub(super) memory: Arc<Memory>,
    /// Each reconcile of a lock without a quorum of its own holds the read lock.
    ///
    /// A change of the default quorum holds the write lock.
    pub(super) granting_by_default: RwLock<()>,
    /// One mutex for each key.
    pub(super) key_mutexes: KeyMutexes,
    /// The slots for concurrent reconciles.
    pub(super) reconciles: FairQueue,
    /// The queue of renewals to publish.
    pub(super) due_renewals: DueRenewals,
}

impl LeaderContext {
    /// Creates the state of a term. Only the holds outlive it.
    pub(super) fn new(context: Context, members: MemberAccess, term: Term, due_renewals: DueRenewals) -> Self {
        let store = Arc::new(LockStore::new(context.clone()));
        let memory = Arc::new(Memory::default());
        let peers = Arc::new(Peers::new(store.clone(), memory.clone()));
        Self {
            reachability: Reachability::new(term, context.clock.boottime()),
            leases: LeaseSync::default(),
            memory,
            granting_by_default: RwLock::default(),
            key_mutexes: KeyMutexes::default(),
            reconciles: FairQueue::new(SLOTS),
            due_renewals,
            context,
            members,
            store,
            peers,
        }
    }

    /// Leaves the next attempt to acquire a lock to a later reconcile, whose status has the reason.
    ///
    /// It also reconciles the locks that this one no longer blocks. A change of its status cannot do that, because the API server possibly
    /// refuses the status.
    pub(super) fn postpone(&self, lock: &Arc<DistributedLock>, reason: WaitReason) -> Progress {
        if self.memory.postpone(&lock.uid().unwrap_or_default(), reason, self.members.now()) {
            self.peers.request_reconcile_of_other_locks(lock);
        }
        Progress::Next(lock.clone())
    }

    /// Drops the memory of a deleted object.
    pub(super) fn forget(&self, lock: &DistributedLock) {
        let uid = lock.uid().unwrap_or_default();
        self.memory.forget(&uid);
        self.leases.forget(&uid);
        self.store.forget(&uid);
    }
}
