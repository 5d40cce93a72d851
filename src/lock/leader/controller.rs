//! Wiring of the lock controller: what makes a lock be looked at again.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Config, Controller};
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use super::parts::Parts;
use super::progress::{AFTER_CONFLICT, AFTER_ERROR, Error};
use super::reconcile::reconcile;
use super::{default, labels, publish_renewals};
use crate::api::DistributedLock;
use crate::api::requests::RequestError;
use crate::lock::model::decide::WaitReason;
use crate::lock::model::said::Said;
use crate::lock::replica::hold_table::Holds;
use crate::quorum::session::Sessions;
use crate::runtime::cache::Change;
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::runtime::panics::caught;

/// After the first panic. The pause doubles with each later one in a row.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const AFTER_PANICS: Duration = Duration::from_secs(600);

/// Runs until the term ends.
pub async fn run(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) {
    let parts = Arc::new(Parts::new(context.clone(), sessions, holds.clone(), term.clone()));
    default::begin(&context, &parts.store);
    let controller = Controller::for_shared_stream(stream::pending(), context.locks.store())
        // A lock that waits for a turn or a slot costs little, and must not keep others from theirs.
        .with_config(Config::default().concurrency(0))
        .reconcile_on(triggers(&parts))
        .run(handle, error_policy, parts.clone());
    let controlled = controller.for_each(|_outcome| std::future::ready(()));
    let scope = &context.replica.settings.locks;
    let working = async {
        tokio::select! {
            () = controlled => {}
            () = labels::tend(&parts.labels, &parts.store, &parts.peers, scope) => {}
            () = publish_renewals::tend(&parts) => {}
            () = default::tend(&parts) => {}
        }
    };
    term.bound(&*context.clock, working).await;
    // A grant whose status write is still on its way has no owner now.
    holds.forget_unpublished();
}

/// A panic while one lock is handled harms only that lock, which is tried again later and later. Its hold is renewed all the same.
async fn handle(lock: Arc<DistributedLock>, parts: Arc<Parts>) -> Result<Action, Error> {
    let uid = lock.uid().unwrap_or_default();
    if let Ok(handled) = caught(look_after(&parts, &lock)).await {
        parts.panics.lock().remove(&uid);
        return handled;
    }
    let count = {
        let mut panics = parts.panics.lock();
        let count = panics.entry(uid.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    };
    // Until then it keeps no other lock on its key waiting.
    let reason = WaitReason { message: Said::Fault, retry_after: Some(after_panics(count)) };
    parts.memory.postpone(&uid, reason, parts.members.now());
    let _panics_too = caught(async { parts.peers.nudge_others(&lock) }).await;
    Err(Error::Panicked(count))
}

/// The pause after so many panics in a row.
fn after_panics(count: u32) -> Duration {
    AFTER_PANIC.saturating_mul(1 << count.saturating_sub(1).min(16)).min(AFTER_PANICS)
}

/// Reconciles a lock, and reads the object at once after a conflict.
///
/// So the next decision is made on what another client has written. If the watch stands still, nothing else would show
/// that.
async fn look_after(parts: &Parts, lock: &DistributedLock) -> Result<Action, Error> {
    let reference = ObjectRef::from_obj(lock);
    let handled = reconcile(parts, &reference).await;
    if !matches!(handled, Err(Error::Write(RequestError::Conflict))) {
        return handled;
    }
    let Some(decided_on) = parts.store.get(&reference) else { return handled };
    match Box::pin(parts.store.read(&decided_on)).await? {
        Some(_) => handled,
        None => Ok(Action::await_change()),
    }
}

fn error_policy(lock: Arc<DistributedLock>, error: &Error, parts: Arc<Parts>) -> Action {
    let metrics = &parts.context.metrics;
    metrics.count(&metrics.reconcile_errors, "lock");
    let lock = ObjectRef::from_obj(&*lock);
    match error {
        Error::Write(RequestError::Conflict) => Action::requeue(AFTER_CONFLICT),
        Error::Write(RequestError::Gone) => Action::await_change(),
        Error::Panicked(count) => {
            metrics.count(&metrics.panics, "lock");
            tracing::error!(%lock, count, "handling this lock panicked");
            Action::requeue(after_panics(*count))
        }
        Error::Write(_) | Error::TokenFloor(_) => {
            tracing::warn!(%lock, error = error as &dyn std::error::Error, "will try again");
            Action::requeue(AFTER_ERROR)
        }
    }
}

/// Every event that may change the decision about some lock.
fn triggers(parts: &Arc<Parts>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    let Parts { context, members, peers, .. } = &**parts;
    // A reader that lags behind looks at all locks.
    let told = |news: broadcast::Receiver<ObjectRef<DistributedLock>>| {
        let peers = peers.clone();
        BroadcastStream::new(news)
            .flat_map(move |lock| stream::iter(lock.map_or_else(|_lagged| peers.index.all(), |lock| vec![lock])))
    };
    let lost_nodes = WatchStream::from_changes(context.node_watch.changes());
    let (nodes, lost, quorums, namespaces) = (peers.clone(), peers.clone(), peers.clone(), peers.clone());
    stream::select_all([
        lock_changes(parts).boxed(),
        pod_changes(parts).boxed(),
        job_changes(parts).boxed(),
        context.nodes.news().flat_map(move |change| stream::iter(nodes.index.node_changed(&change))).boxed(),
        lost_nodes.flat_map(move |()| stream::iter(lost.index.bound())).boxed(),
        context.quorums.news().flat_map(move |change| stream::iter(quorums.of_quorum(change.object()))).boxed(),
        context
            .namespaces
            .news()
            .flat_map(move |change| stream::iter(namespaces.index.namespace_changed(&change)))
            .boxed(),
        told(members.holds.news()).boxed(),
        told(peers.nudged()).boxed(),
    ])
}

/// The locks that changed, and those that a change of a lock concerns.
fn lock_changes(parts: &Arc<Parts>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    // Each lock is looked at in the beginning, so none has to be told of what is there already.
    for lock in parts.context.locks.all() {
        parts.peers.lock_changed(&Change::Applied(lock));
    }
    let changes = parts.context.locks.changes();
    let parts = parts.clone();
    changes.flat_map(move |change| {
        let mut concerned = parts.peers.lock_changed(&change);
        match &change {
            Change::Applied(lock) => concerned.push(ObjectRef::from_obj(&**lock)),
            Change::Deleted(lock) | Change::Vanished(lock) => {
                parts.forget(lock);
                concerned.extend(parts.peers.follows(lock));
            }
        }
        stream::iter(concerned)
    })
}

/// The locks that a change of a Job concerns.
fn job_changes(parts: &Arc<Parts>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    let news = parts.context.jobs.as_ref().map(|jobs| jobs.news().boxed());
    let peers = parts.peers.clone();
    news.unwrap_or_else(|| stream::pending().boxed())
        .flat_map(move |change| stream::iter(peers.index.job_changed(change.object())))
}

/// The locks that a change of a pod concerns.
fn pod_changes(parts: &Arc<Parts>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    let pods = &parts.context.pods;
    let news = pods.news();
    // After the stream has begun, so that no change lies in between.
    pods.all().iter().for_each(|pod| parts.labels.see(pod));
    let parts = parts.clone();
    news.flat_map(move |change| {
        parts.labels.see(change.object());
        stream::iter(parts.peers.index.pod_changed(change.object()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, F: Future>(_handler: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// A start with 10,000 locks lets all of them wait.
    #[test]
    fn a_lock_that_waits_for_a_slot_takes_a_kilobyte_at_most() {
        let size = size_of_future(handle);
        assert!(size <= 1024, "{size} bytes");
    }
}
