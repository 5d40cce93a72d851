//! Publishes renewals apart from the reconciles, so that none of them waits with a mutex or a slot.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::leader_context::LeaderContext;
use super::observation;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR};
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus};
use crate::lock::model::contention::LockRef;
use crate::lock::model::decide::{Rest, Step, decide};
use crate::runtime::fair_queue::{Class, Slot};
use crate::runtime::panics::caught;
use crate::time::Boottime;

/// A lock with a renewal to publish, and the end of the validity that its status has now.
type DueRenewal = (LockRef, Boottime);

/// The queue of renewals that the leader publishes.
#[derive(Debug)]
pub(super) struct DueRenewals {
    due: mpsc::UnboundedSender<DueRenewal>,
    /// Locks in the queue.
    waiting: Mutex<HashSet<LockRef>>,
}

impl DueRenewals {
    /// An empty queue, and its receiver for [`run`].
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
}

/// Publishes the renewals of the queue. Does not end.
pub(super) async fn run(leader: &LeaderContext, due: mpsc::UnboundedReceiver<DueRenewal>) {
    let publishing = UnboundedReceiverStream::new(due).for_each_concurrent(None, async |(lock, needed_by)| {
        let published = caught(async {
            let namespace = lock.namespace.as_deref().unwrap_or_default();
            let slot = leader.context.requests.enter(namespace, Class::Renewal(needed_by)).await;
            // Only a lock with a slot allocates this future.
            Box::pin(publish(leader, &lock, slot)).await
        });
        let done = published.await.unwrap_or(Err(AFTER_ERROR));
        if let Err(pause) = done {
            tokio::time::sleep(pause).await;
        }
        leader.due_renewals.waiting.lock().remove(&lock);
        // The lock is reconciled after a failure, and after changes beyond the renewal.
        if done.is_err() {
            leader.peers.nudge(lock);
        }
    });
    publishing.await;
}

/// Publishes the newest renewal of a lock.
///
/// An error is the pause before the lock is reconciled.
async fn publish(leader: &LeaderContext, reference: &LockRef, slot: Slot) -> Result<(), Duration> {
    let LeaderContext { context, store, .. } = leader;
    let Some(lock) = store.get(reference) else { return Ok(()) };
    let step = decide(&observation::observe(leader, &lock, &observation::access(leader, &lock)));
    let Step::Keep(Rest { status, renewal: Some(renewal), .. }) = step else { return Ok(()) };
    if !is_mere_renewal(&lock, &status) {
        return Err(Duration::ZERO);
    }
    match store.replace_status_in(slot, &lock, status).await {
        Ok(_published) => {
            context.metrics.publication_lateness.observe(renewal.lateness.as_secs_f64());
            Ok(())
        }
        Err(RequestError::Conflict) => {
            // The watch can have stopped, so this reads the newest version.
            let _newest = store.read(&lock).await;
            Err(AFTER_CONFLICT)
        }
        Err(_not_written) => Err(AFTER_ERROR),
    }
}

/// Whether the status differs only by the times and votes of a renewal.
pub(super) fn is_mere_renewal(lock: &DistributedLock, status: &DistributedLockStatus) -> bool {
    let Some(before) = lock.status.clone() else { return false };
    let DistributedLockStatus { renewed_at, valid_until, votes, votes_granted, member_count, .. } = status.clone();
    DistributedLockStatus { renewed_at, valid_until, votes, votes_granted, member_count, ..before } == *status
}
