//! Who is told of what happens to a lock beside its status: Events, metrics, and the other locks on its key.

use std::{sync::Arc, time::Duration};

use kube::runtime::events::EventType;

use super::peers::Peers;
use crate::{
    api::{DistributedLock, conditions::HeldReason},
    runtime::context::Context,
};

/// The way to them.
pub(super) struct Notices {
    context: Context,
    peers: Arc<Peers>,
}

impl Notices {
    /// Through this context, and to these locks.
    pub(super) const fn new(context: Context, peers: Arc<Peers>) -> Self {
        Self { context, peers }
    }

    /// Publishes an Event and does not wait for it. What is normal for a claim is in its history: two Events for each claim would be
    /// half of all writes.
    pub(super) fn event(
        &self,
        lock: &Arc<DistributedLock>,
        type_: EventType,
        reason: impl Into<String>,
        note: impl Into<String>,
    ) {
        if lock.spec.election.is_none() && matches!(type_, EventType::Normal) {
            return;
        }
        let (context, lock, reason, note) = (self.context.clone(), lock.clone(), reason.into(), note.into());
        tokio::spawn(async move { context.event(&*lock, type_, &reason, note).await });
    }

    /// Counts the end of a hold.
    pub(super) fn count_end(&self, reason: HeldReason) {
        self.context.metrics.count(&self.context.metrics.ended, reason.as_str());
    }

    /// Notes how late a renewal was published.
    pub(super) fn observe_lateness(&self, lateness: Duration) {
        self.context.metrics.publication_lateness.observe(lateness.as_secs_f64());
    }

    /// Has the others on the key looked at again that this lock's news concern.
    pub(super) fn nudge_others(&self, lock: &DistributedLock) {
        self.peers.nudge_others(lock);
    }
}
