//! The renewals that are to be published.

use std::collections::HashSet;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::api::{DistributedLock, DistributedLockStatus};
use crate::time::Boottime;

/// A lock whose renewal is to be published, and when the validity ends that its status publishes.
pub(super) type Due = (ObjectRef<DistributedLock>, Boottime);

/// The renewals that are to be published.
#[derive(Debug)]
pub(super) struct Publications {
    due: mpsc::UnboundedSender<Due>,
    taken: Mutex<Option<mpsc::UnboundedReceiver<Due>>>,
    /// The locks that wait already.
    waiting: Mutex<HashSet<ObjectRef<DistributedLock>>>,
}

impl Default for Publications {
    fn default() -> Self {
        let (due, taken) = mpsc::unbounded_channel();
        Self { due, taken: Mutex::new(Some(taken)), waiting: Mutex::default() }
    }
}

impl Publications {
    /// Asks for a publication. A lock waits once.
    pub(super) fn ask(&self, lock: &DistributedLock, runs_out: Boottime) {
        let lock = ObjectRef::from_obj(lock);
        if self.waiting.lock().insert(lock.clone()) {
            // There is no reader only while the controller is being stopped.
            let _ = self.due.send((lock, runs_out));
        }
    }

    /// All that is asked for. `None`: it was taken before.
    pub(super) fn take(&self) -> Option<UnboundedReceiverStream<Due>> {
        self.taken.lock().take().map(UnboundedReceiverStream::new)
    }

    /// The publication has ended, and the lock can wait for another one.
    pub(super) fn end(&self, lock: &ObjectRef<DistributedLock>) {
        self.waiting.lock().remove(lock);
    }
}

/// Whether the status would only say of a hold that it has been renewed.
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
