//! Publishes renewals apart from the reconciles, so that none of them waits with a mutex or a slot.

use std::time::Duration;

use futures::StreamExt;
use kube::runtime::reflector::ObjectRef;

use super::due_renewals::is_mere_renewal;
use super::leader_context::LeaderContext;
use super::observation;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR};
use crate::api::DistributedLock;
use crate::api::requests::RequestError;
use crate::lock::model::decide::{Rest, Step, decide};
use crate::runtime::fair_queue::{Class, Slot};
use crate::runtime::panics::caught;
use crate::time::Boottime;

/// Publishes the renewals of the queue. Does not end.
pub(super) async fn run(leader: &LeaderContext) {
    let Some(due) = leader.due_renewals.take() else { return std::future::pending().await };
    due.for_each_concurrent(None, async |(lock, needed_by)| {
        let done = caught(publish(leader, &lock, needed_by)).await.unwrap_or(Err(AFTER_ERROR));
        if let Err(pause) = done {
            tokio::time::sleep(pause).await;
        }
        leader.due_renewals.end(&lock);
        // The lock is reconciled after a failure, and after changes beyond the renewal.
        if done.is_err() {
            leader.peers.nudge(lock);
        }
    })
    .await;
}

/// Publishes the newest renewal of a lock when it has a slot for the request.
///
/// An error is the pause before the lock is reconciled.
async fn publish(
    leader: &LeaderContext,
    reference: &ObjectRef<DistributedLock>,
    needed_by: Boottime,
) -> Result<(), Duration> {
    let slot = leader.store.enter(reference.namespace.as_deref().unwrap_or_default(), Class::Renewal(needed_by)).await;
    // Only a lock with a slot allocates this future.
    Box::pin(publish_in(leader, reference, slot)).await
}

async fn publish_in(
    leader: &LeaderContext,
    reference: &ObjectRef<DistributedLock>,
    slot: Slot,
) -> Result<(), Duration> {
    let store = &leader.store;
    let Some(lock) = store.get(reference) else { return Ok(()) };
    let Step::Keep(Rest { status, renewal: Some(renewal), .. }) =
        decide(&observation::observe(leader, &lock, &observation::access(leader, &lock)))
    else {
        return Ok(());
    };
    if !is_mere_renewal(&lock, &status) {
        return Err(Duration::ZERO);
    }
    match store.replace_status_in(slot, &lock, status).await {
        Ok(_published) => {
            store.metrics().publication_lateness.observe(renewal.lateness.as_secs_f64());
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
