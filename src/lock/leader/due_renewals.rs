//! The queue of renewals that the leader publishes.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::api::{DistributedLock, DistributedLockStatus};
use crate::lock::model::contention::LockRef;
use crate::time::Boottime;

/// A lock with a renewal to publish, and the end of the validity that its status has now.
pub(super) type DueRenewal = (LockRef, Boottime);

/// The queue of renewals that the leader publishes.
#[derive(Debug)]
pub(super) struct DueRenewals {
    due: mpsc::UnboundedSender<DueRenewal>,
    /// Locks in the queue.
    waiting: Mutex<HashSet<LockRef>>,
}

impl DueRenewals {
    /// An empty queue, and its receiver.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<DueRenewal>) {
        let (due, taken) = mpsc::unbounded_channel();
        (Self { due, waiting: Mutex::default() }, taken)
    }

    /// Adds a lock to the queue, unless it is there.
    pub(super) fn enqueue(&self, lock: &DistributedLock, needed_by: Boottime) {
        let lock = LockRef::from_obj(lock);
        if self.waiting.lock().insert(lock.clone()) {
            // The queue has no receiver only while the controller stops.
            let _ = self.due.send((lock, needed_by));
        }
    }

    /// Removes a published lock, which can then enter the queue again.
    pub(super) fn end(&self, lock: &LockRef) {
        self.waiting.lock().remove(lock);
    }
}

/// Whether the status differs only by the times and votes of a renewal.
pub(super) fn is_mere_renewal(lock: &DistributedLock, status: &DistributedLockStatus) -> bool {
    let Some(before) = lock.status.clone() else { return false };
    let DistributedLockStatus { renewed_at, valid_until, votes, votes_granted, member_count, .. } = status.clone();
    DistributedLockStatus { renewed_at, valid_until, votes, votes_granted, member_count, ..before } == *status
}
