//! Publishes renewals beside the reconciles: none of them waits for it with a turn or a slot in hand.

use std::time::Duration;

use futures::StreamExt;
use kube::runtime::reflector::ObjectRef;

use super::due_renewals::is_mere_renewal;
use super::parts::Parts;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR};
use super::reconcile::next_step;
use crate::api::DistributedLock;
use crate::api::requests::RequestError;
use crate::lock::model::decide::{Rest, Step};
use crate::runtime::fair_queue::{Class, Slot};
use crate::runtime::panics::caught;
use crate::time::Boottime;

/// Publishes what is asked for. Does not end.
pub(super) async fn tend(parts: &Parts) {
    let Some(due) = parts.publications.take() else { return std::future::pending().await };
    due.for_each_concurrent(None, async |(lock, runs_out)| {
        let done = caught(publish(parts, &lock, runs_out)).await.unwrap_or(Err(AFTER_ERROR));
        if let Err(pause) = done {
            tokio::time::sleep(pause).await;
        }
        parts.publications.end(&lock);
        // The lock is reconciled after a failure, and if more than the renewal has changed.
        if done.is_err() {
            parts.peers.nudge(lock);
        }
    })
    .await;
}

/// Publishes the newest renewal of a lock when a request may be made. An error says how long to wait before the lock is looked at again.
async fn publish(parts: &Parts, reference: &ObjectRef<DistributedLock>, runs_out: Boottime) -> Result<(), Duration> {
    let slot = parts.store.enter(reference.namespace.as_deref().unwrap_or_default(), Class::Renewal(runs_out)).await;
    // In a box, which only a lock with a slot makes.
    Box::pin(publish_in(parts, reference, slot)).await
}

async fn publish_in(parts: &Parts, reference: &ObjectRef<DistributedLock>, slot: Slot) -> Result<(), Duration> {
    let store = &parts.store;
    let Some(lock) = store.get(reference) else { return Ok(()) };
    let Step::Keep(Rest { status, renewal: Some(renewal), .. }) = next_step(parts, &lock) else { return Ok(()) };
    if !is_mere_renewal(&lock, &status) {
        return Err(Duration::ZERO);
    }
    match store.replace_status_in(slot, &lock, status).await {
        Ok(_published) => {
            store.observe_lateness(renewal.lateness);
            Ok(())
        }
        Err(RequestError::Conflict) => {
            // The watch can stand still.
            let _newest = store.read(&lock).await;
            Err(AFTER_CONFLICT)
        }
        Err(_not_written) => Err(AFTER_ERROR),
    }
}
