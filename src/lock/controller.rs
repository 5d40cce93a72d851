//! Wiring of the lock controller: what makes a lock be looked at again.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use kube::runtime::{Config, Controller, controller::Action, reflector::ObjectRef};
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use super::{
    holds::Holds,
    reconcile::{Error, Locks},
    replicas::Replicas,
    writes::WriteError,
};
use crate::{
    api::DistributedLock,
    operator::{cache::Change, context::Context, leader::Term},
    quorum::session::Sessions,
};

/// So many locks are looked at side by side. More requests at once would only wait for each other in the API server, and keep
/// the leader's own Lease waiting.
const CONCURRENCY: u16 = 32;
/// After a conflict the watch has news soon.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// After any other error.
const AFTER_ERROR: Duration = Duration::from_millis(500);

/// Runs until the term is over.
pub async fn run(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) {
    let locks = Arc::new(Locks::new(context.clone(), sessions, holds, term.clone()));
    let over = term.over.clone();
    let controller = Controller::for_shared_stream(stream::pending(), context.locks.store())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(triggers(&locks))
        .graceful_shutdown_on(async move { over.cancelled().await })
        .run(|lock, locks: Arc<Locks>| locks.reconcile(lock), error_policy, locks.clone());
    tokio::select! {
        () = controller.for_each(|_outcome| std::future::ready(())) => {}
        () = term.over.cancelled() => {}
    }
    // Grants whose status write is still on its way belong to nobody now.
    locks.holds.forget_unpublished();
}

fn error_policy(lock: Arc<DistributedLock>, error: &Error, locks: Arc<Locks>) -> Action {
    locks.context.metrics.count(&locks.context.metrics.reconcile_errors, "lock");
    let lock = ObjectRef::from_obj(&*lock);
    match error {
        Error::Write(WriteError::Conflict) => Action::requeue(AFTER_CONFLICT),
        Error::Write(WriteError::Gone) => Action::await_change(),
        error => {
            tracing::warn!(%lock, error = error as &dyn std::error::Error, "will try again");
            Action::requeue(AFTER_ERROR)
        }
    }
}

/// Every event that may change the decision about some lock.
fn triggers(locks: &Arc<Locks>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    let context = &locks.context;
    let index = locks.clone();
    let changed = context.locks.changes().flat_map(move |change| {
        let mut concerned = index.index.lock_changed(&change);
        if let Change::Applied(lock) = &change {
            concerned.push(ObjectRef::from_obj(&**lock));
        }
        stream::iter(concerned)
    });
    let index = locks.clone();
    let replicas = Replicas::default();
    let pods = context.pods.changes().flat_map(move |change| {
        if replicas.is_new(&index.context, change.object()) {
            index.holds.announce_all();
        }
        stream::iter(index.index.pod_changed(change.object()))
    });
    let index = locks.clone();
    let nodes = context.nodes.changes().flat_map(move |change| stream::iter(index.index.node_changed(change.object())));
    let index = locks.clone();
    let lost_nodes =
        WatchStream::from_changes(context.node_watch.changes()).flat_map(move |()| stream::iter(index.index.bound()));
    let index = locks.clone();
    let quorums = context.quorums.changes().flat_map(move |_| stream::iter(index.index.all()));
    let index = locks.clone();
    let namespaces = context.namespaces.changes().flat_map(move |_| stream::iter(index.index.all()));
    // A reader that lags behind the renewals of many locks looks at all of them.
    let index = locks.clone();
    let renewals = BroadcastStream::new(locks.holds.news())
        .flat_map(move |news| stream::iter(news.map_or_else(|_lagged| index.index.all(), |lock| vec![lock])));
    let index = locks.clone();
    let nudges = BroadcastStream::new(locks.nudges.subscribe())
        .flat_map(move |nudge| stream::iter(nudge.map_or_else(|_lagged| index.index.all(), |lock| vec![lock])));
    stream::select_all([
        changed.boxed(),
        pods.boxed(),
        nodes.boxed(),
        lost_nodes.boxed(),
        quorums.boxed(),
        namespaces.boxed(),
        renewals.boxed(),
        nudges.boxed(),
    ])
}
