//! The queue of renewals that the leader publishes.

use std::collections::HashSet;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::api::{DistributedLock, DistributedLockStatus};
use crate::time::Boottime;

/// A lock with a renewal to publish, and the end of the validity that its status has now.
pub(super) type DueRenewal = (ObjectRef<DistributedLock>, Boottime);

/// The queue of renewals that the leader publishes.
#[derive(Debug)]
pub(super) struct DueRenewals {
    due: mpsc::UnboundedSender<DueRenewal>,
    taken: Mutex<Option<mpsc::UnboundedReceiver<DueRenewal>>>,
    /// Locks in the queue.
    waiting: Mutex<HashSet<ObjectRef<DistributedLock>>>,
}

impl Default for DueRenewals {
    fn default() -> Self {
        let (due, taken) = mpsc::unbounded_channel();
        Self { due, taken: Mutex::new(Some(taken)), waiting: Mutex::default() }
    }
}

impl DueRenewals {
    /// Adds a lock to the queue, unless it is there.
    pub(super) fn enqueue(&self, lock: &DistributedLock, needed_by: Boottime) {
        let lock = ObjectRef::from_obj(lock);
        if self.waiting.lock().insert(lock.clone()) {
            // The queue has no receiver only while the controller stops.
            let _ = self.due.send((lock, needed_by));
        }
    }

    /// Returns the receiver of the queue, once.
    pub(super) fn take(&self) -> Option<UnboundedReceiverStream<DueRenewal>> {
        self.taken.lock().take().map(UnboundedReceiverStream::new)
    }

    /// Removes a published lock, which can then enter the queue again.
    pub(super) fn end(&self, lock: &ObjectRef<DistributedLock>) {
        self.waiting.lock().remove(lock);
    }
}

/// Whether the status differs only by the times and votes of a renewal.
pub(super) fn is_mere_renewal(lock: &DistributedLock, status: &DistributedLockStatus) -> bool {
    let Some(before) = &lock.status else { return false };
    let timeless = |status: &DistributedLockStatus| {
        let mut status = status.clone();
        (status.renewed_at, status.valid_until) = (None, None);
        (status.votes, status.votes_granted, status.member_count) = (None, None, None);
        status
    };
    timeless(before) == timeless(status)
}
