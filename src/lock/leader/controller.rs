//! Wiring of the lock controller: the events that reconcile a lock.

use std::pin::pin;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use super::due_renewals::DueRenewals;
use super::leader_context::LeaderContext;
use super::member_access::MemberAccess;
use super::peers::Peers;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR, Error};
use super::reconcile::reconcile;
use super::{default, labels, publish_renewals};
use crate::api::DistributedLock;
use crate::api::requests::RequestError;
use crate::lock::model::contention::LockRef;
use crate::lock::model::decide::WaitReason;
use crate::lock::model::held_message::HeldMessage;
use crate::lock::replica::hold_table::Holds;
use crate::quorum::session::Sessions;
use crate::runtime::cache::Change;
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::runtime::leader::Term;
use crate::runtime::panics::{AFTER_PANIC, Panicked, caught};
use crate::runtime::reconciles::{self, Action};

/// Runs until the term ends.
pub async fn run(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) {
    let (due_renewals, due) = DueRenewals::new();
    let members = MemberAccess { context: context.clone(), sessions, holds: holds.clone() };
    let leader = Arc::new(LeaderContext::new(context.clone(), members, term.clone(), due_renewals));
    default::begin(&context, &leader.store, &term);
    let controlled = reconciles::run(triggers(&leader), |lock| handle_in_term(lock, leader.clone(), term.clone()));
    let working = async {
        tokio::select! {
            () = controlled => {}
            () = labels::correct_all(&leader.store, &leader.peers) => {}
            () = publish_renewals::run(&leader, due) => {}
            () = default::follow(&leader, &term) => {}
        }
    };
    term.bound(&*context.clock, working).await;
    // After its term, this replica must not renew a grant whose status write is still open.
    holds.forget_unwritten();
}

/// Reconciles one lock while the term lasts. Its task is not polled by the driver of the term.
async fn handle_in_term(reference: LockRef, leader: Arc<LeaderContext>, term: Term) -> Action {
    let clock = leader.context.clock.clone();
    // `bound` would otherwise contain the future twice: as its argument, and pinned.
    let handled = pin!(handle(reference, leader));
    term.bound(&*clock, handled).await.unwrap_or(Action::await_change())
}

/// Reconciles one lock, and chooses the pause after an error.
///
/// A panic delays only this lock, and its hold is still renewed.
async fn handle(lock: LockRef, leader: Arc<LeaderContext>) -> Action {
    let handled = caught(reconcile_or_reread(&leader, &lock)).await;
    let metrics = &leader.context.metrics;
    if !matches!(handled, Ok(Ok(_))) {
        metrics.count(&metrics.reconcile_errors, "lock");
    }
    match handled {
        Ok(Ok(action)) => action,
        Ok(Err(Error::Write(RequestError::Conflict))) => Action::requeue(AFTER_CONFLICT),
        Ok(Err(Error::Write(RequestError::Gone))) => Action::await_change(),
        Ok(Err(error)) => {
            tracing::warn!(%lock, error = &error as &dyn std::error::Error, "the operator did not finish this lock, and tries again");
            Action::requeue(AFTER_ERROR)
        }
        Err(Panicked) => {
            metrics.count(&metrics.panics, "lock");
            tracing::error!(%lock, "handling this lock panicked");
            // During the pause the lock does not block other locks on its key. This reads the same object, so it can panic as well.
            let reason = WaitReason { message: HeldMessage::Fault, retry_after: Some(AFTER_PANIC) };
            if let Some(cached) = leader.context.locks.get(&lock) {
                let _panicked_again = caught(async { leader.postpone(&cached, reason) }).await;
            }
            Action::requeue(AFTER_PANIC)
        }
    }
}

/// Reconciles a lock, and reads the object immediately after a conflict.
///
/// The next decision then uses the write of the other client, even if the watch has stopped.
async fn reconcile_or_reread(leader: &LeaderContext, lock: &LockRef) -> Result<Action, Error> {
    let handled = reconcile(leader, lock).await;
    if matches!(handled, Err(Error::Write(RequestError::Conflict)))
        && let Some(decided_on) = leader.store.get(lock)
        && Box::pin(leader.store.read(&decided_on)).await?.is_none()
    {
        return Ok(Action::await_change());
    }
    handled
}

/// Every event that can change the decision about some lock.
fn triggers(leader: &Arc<LeaderContext>) -> impl Stream<Item = LockRef> + Send + 'static {
    let LeaderContext { context, members, peers, .. } = &**leader;
    // A receiver that lags behind reconciles all locks.
    let notified = |news| {
        concerned(peers, BroadcastStream::new(news), |peers, lock| {
            lock.map_or_else(|_lagged| peers.index.all(), |lock| vec![lock])
        })
    };
    let lost_nodes = WatchStream::from_changes(context.node_watch.changes());
    stream::select_all([
        lock_changes(leader).boxed(),
        concerned(peers, context.pods.news(), |peers, pod| peers.index.pod_changed(pod.object())),
        match &context.jobs {
            Some(jobs) => concerned(peers, jobs.news(), |peers, job| peers.index.job_changed(job.object())),
            None => stream::pending().boxed(),
        },
        concerned(peers, context.nodes.news(), |peers, node| peers.index.node_changed(&node)),
        concerned(peers, lost_nodes, |peers, ()| peers.index.bound()),
        concerned(peers, context.quorums.news(), |peers, quorum| peers.of_quorum(quorum.object())),
        concerned(peers, context.namespaces.news(), |peers, namespace| peers.index.namespace_changed(&namespace)),
        notified(members.holds.news()),
        notified(peers.reconcile_requests()),
    ])
}

/// The locks that each of these events concerns.
fn concerned<E>(
    peers: &Arc<Peers>,
    events: impl Stream<Item = E> + Send + 'static,
    locks: impl Fn(&Peers, E) -> Vec<LockRef> + Send + 'static,
) -> BoxStream<'static, LockRef> {
    let peers = peers.clone();
    events.flat_map(move |event| stream::iter(locks(&peers, event))).boxed()
}

/// The locks that changed, and those that a change of a lock concerns.
fn lock_changes(leader: &Arc<LeaderContext>) -> impl Stream<Item = LockRef> + Send + 'static {
    // The controller reconciles each lock at the start, so existing locks concern no other lock.
    for lock in leader.context.locks.all() {
        leader.peers.lock_changed(&Change::Applied(lock));
    }
    let changes = leader.context.locks.changes();
    let leader = leader.clone();
    changes.flat_map(move |change| {
        let mut concerned = leader.peers.lock_changed(&change);
        concerned.extend(with_the_same_lease(&leader, change.object()));
        match &change {
            Change::Applied(lock) => concerned.push(LockRef::from_obj(&**lock)),
            Change::Deleted(lock) | Change::Vanished(lock) => {
                leader.forget(lock);
                concerned.extend(leader.peers.admitted_after_deletion_of(lock));
            }
        }
        stream::iter(concerned)
    })
}

/// The other elections with the Lease of a lock that is free or gone. One of them can be served then.
fn with_the_same_lease(leader: &LeaderContext, lock: &DistributedLock) -> Vec<LockRef> {
    let Some(lease) = lock.lease().filter(|_| lock.holder().is_none()) else { return Vec::new() };
    let sharing = leader.context.locks.under(&keys::lease(&lock.namespace().unwrap_or_default(), lease));
    sharing.iter().filter(|other| other.uid() != lock.uid()).map(|other| LockRef::from_obj(&**other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, F: Future>(_handler: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// After a start with 10,000 locks, each of them has a waiting future.
    #[test]
    fn a_lock_that_waits_for_a_slot_takes_a_kilobyte_at_most() {
        let size = size_of_future(handle_in_term);
        assert!(size <= 1024, "{size} bytes");
    }
}
