//! Publishing renewals, beside the reconciles: none of them waits for it with a turn or a slot in hand.

use std::collections::HashSet;

use futures::StreamExt;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::parts::Parts;
use super::reconcile::next_step;
use crate::api::{DistributedLock, DistributedLockStatus};
use crate::lock::model::decide::{Rest, Step};
use crate::runtime::fair_queue::Class;
use crate::runtime::panics::caught;
use crate::time::Boottime;

/// A lock whose renewal is to be published, and when the validity ends that its status publishes.
type Due = (ObjectRef<DistributedLock>, Boottime);

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
}

/// Publishes what is asked for. Does not end.
pub(super) async fn tend(parts: &Parts) {
    let Some(due) = parts.publications.taken.lock().take() else { return std::future::pending().await };
    let due = UnboundedReceiverStream::new(due);
    due.for_each_concurrent(None, async |(lock, runs_out)| {
        // What went wrong is decided again, in the turn of the lock.
        if caught(publish(parts, &lock, runs_out)).await.is_err() {
            parts.peers.nudge(lock);
        }
    })
    .await;
}

/// Publishes the newest renewal of a lock when a request may be made.
async fn publish(parts: &Parts, reference: &ObjectRef<DistributedLock>, runs_out: Boottime) {
    let Parts { store, peers, publications, .. } = parts;
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    let slot = store.enter(namespace, Class::Renewal(runs_out)).await;
    publications.waiting.lock().remove(reference);
    let Some(lock) = store.get(reference) else { return };
    let Step::Keep(Rest { status, renewal: Some(renewal), .. }) = next_step(parts, &lock) else { return };
    if !is_mere_renewal(&lock, &status) {
        return peers.nudge(reference.clone());
    }
    match store.replace_status_in(slot, &lock, status).await {
        Ok(_published) => store.observe_lateness(renewal.lateness),
        Err(_decided_again) => peers.nudge(reference.clone()),
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
