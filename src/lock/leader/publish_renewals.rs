//! Publishes renewals apart from the reconciles, so that none of them waits with a mutex or a slot.

use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::due_renewals::{DueRenewal, is_mere_renewal};
use super::leader_context::LeaderContext;
use super::observation;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR};
use crate::api::requests::RequestError;
use crate::lock::model::contention::LockRef;
use crate::lock::model::decide::{Rest, Step, decide};
use crate::runtime::fair_queue::{Class, Slot};
use crate::runtime::panics::caught;

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
        leader.due_renewals.end(&lock);
        // The lock is reconciled after a failure, and after changes beyond the renewal.
        if done.is_err() {
            leader.peers.request_reconcile(lock);
        }
    });
    publishing.await;
}

/// Publishes the newest renewal of a lock.
///
/// An error is the pause before the lock is reconciled.
async fn publish(leader: &LeaderContext, reference: &LockRef, slot: Slot) -> Result<(), Duration> {
    let store = &leader.store;
    let Some(lock) = store.get(reference) else { return Ok(()) };
    let step = decide(&observation::observe(leader, &lock, &observation::access(leader, &lock)));
    let Step::Keep(Rest { status, publish_by: Some(_), .. }) = step else { return Ok(()) };
    if !is_mere_renewal(&lock, &status) {
        return Err(Duration::ZERO);
    }
    match store.replace_status_in(slot, &lock, status).await {
        Ok(_published) => Ok(()),
        Err(RequestError::Conflict) => {
            // The watch can have stopped, so this reads the newest version.
            let _newest = store.read(&lock).await;
            Err(AFTER_CONFLICT)
        }
        Err(_not_written) => Err(AFTER_ERROR),
    }
}
