//! Wiring of the lock controller: what makes a lock be looked at again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use kube::{
    ResourceExt,
    runtime::{Config, Controller, controller::Action, reflector::ObjectRef},
};
use parking_lot::{Mutex, MutexGuard};
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use super::{
    locks::{Error, Locks},
    replicas::Replicas,
};
use crate::{
    api::{DistributedLock, conditions::HeldReason},
    lock::{
        model::{
            decide::Pause,
            unreadable::{Panics, Raw},
        },
        replica::{
            holds::Holds,
            writes::{Found, WriteError},
        },
    },
    quorum::session::Sessions,
    runtime::{cache::Change, context::Context, leader::Term, panics::caught},
};

/// After a conflict, when the newest version has been read.
const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// After the first panic, and after each later one in a row.
const AFTER_PANIC: Duration = Duration::from_secs(1);
const AFTER_PANICS: Duration = Duration::from_secs(5);
/// After any other error.
const AFTER_ERROR: Duration = Duration::from_millis(500);

/// What the reconciles of one term work with.
struct Work {
    locks: Arc<Locks>,
    /// The panics in a row while a lock was handled, by UID.
    panics: Mutex<HashMap<String, Panics>>,
}

/// Why a lock is looked at again.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Error(#[from] Error),
    /// So many times in a row.
    #[error("handling it panicked, {0} times in a row")]
    Panicked(u32),
}

/// Runs until the term is over.
pub async fn run(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) {
    let clock = context.clock.clone();
    let locks = Arc::new(Locks::new(context.clone(), sessions, holds, term.clone()));
    let work = Arc::new(Work { locks: locks.clone(), panics: Mutex::default() });
    let controller = Controller::for_shared_stream(stream::pending(), context.locks.store())
        // Who waits for a turn or a slot costs little, and must not keep others from theirs.
        .with_config(Config::default().concurrency(0))
        .reconcile_on(triggers(&work))
        .run(handle, error_policy, work);
    let controlled = controller.for_each(|_outcome| std::future::ready(()));
    let working = async {
        tokio::select! {
            () = controlled => {}
            () = locks.tend_labels() => {}
            () = locks.tend_unreadable() => {}
        }
    };
    term.bound(&*clock, working).await;
    // Grants whose status write is still on its way belong to nobody now.
    locks.holds.forget_unpublished();
}

/// A panic while one lock is handled harms only that lock.
async fn handle(lock: Arc<DistributedLock>, work: Arc<Work>) -> Result<Action, Failure> {
    let uid = lock.uid().unwrap_or_default();
    if let Some((left, count)) = work.given_up(&lock) {
        return Ok(work.handle_raw(&lock, left, count).await);
    }
    if work.panics().contains_key(&uid) {
        // It may have been changed into one that can be handled: then nothing keeps it from the key.
        work.locks.pause(&uid, None);
    }
    match caught(look_after(&work.locks, &lock)).await {
        Ok(handled) => {
            work.panics().remove(&uid);
            Ok(handled?)
        }
        Err(_panic) => {
            let (mut panics, now) = (work.panics(), work.locks.context.clock.boottime());
            let known = panics.entry(uid).or_default();
            // The panic may have come after a write.
            let written = work.locks.written.newest(lock.clone()).resource_version();
            known.add([lock.resource_version(), written], now);
            Err(Failure::Panicked(known.count()))
        }
    }
}

/// Decides anew at once, on what another hand has written: if the watch stands still, nothing else would show it.
async fn look_after(locks: &Arc<Locks>, lock: &Arc<DistributedLock>) -> Result<Action, Error> {
    let handled = locks.clone().reconcile(lock.clone()).await;
    if !matches!(handled, Err(Error::Write(WriteError::Conflict))) {
        return handled;
    }
    let Some(cached) = locks.context.locks.get(&ObjectRef::from_obj(&**lock)) else { return handled };
    let decided_on = locks.written.newest(cached);
    match locks.written.read(&locks.context.client, &decided_on).await? {
        Found::Lock(_) => handled,
        Found::Unreadable(_) | Found::Gone => Ok(Action::await_change()),
    }
}

fn error_policy(lock: Arc<DistributedLock>, failure: &Failure, work: Arc<Work>) -> Action {
    let metrics = &work.locks.context.metrics;
    metrics.count(&metrics.reconcile_errors, "lock");
    let lock = ObjectRef::from_obj(&*lock);
    match failure {
        Failure::Error(Error::Write(WriteError::Conflict)) => Action::requeue(AFTER_CONFLICT),
        Failure::Error(Error::Write(WriteError::Gone)) => Action::await_change(),
        Failure::Error(error) => {
            tracing::warn!(%lock, error = error as &dyn std::error::Error, "will try again");
            Action::requeue(AFTER_ERROR)
        }
        Failure::Panicked(count) => {
            metrics.count(&metrics.panics, "lock");
            tracing::error!(%lock, count, "handling this lock panicked");
            Action::requeue(if *count > 1 { AFTER_PANICS } else { AFTER_PANIC })
        }
    }
}

impl Work {
    fn panics(&self) -> MutexGuard<'_, HashMap<String, Panics>> {
        self.panics.lock()
    }

    /// For how long this version of a lock is handled no more, and how many panics led to that.
    fn given_up(&self, lock: &DistributedLock) -> Option<(Duration, u32)> {
        let panics = self.panics();
        let known = panics.get(&lock.uid().unwrap_or_default())?;
        let left = known.left(lock.resource_version().as_deref(), self.locks.context.clock.boottime())?;
        Some((left, known.count()))
    }

    /// The lock ends, if it is held, and keeps no other one waiting.
    async fn handle_raw(&self, lock: &Arc<DistributedLock>, left: Duration, count: u32) -> Action {
        let (uid, raw) =
            (lock.uid().unwrap_or_default(), Raw::failing(&self.locks.written.newest(lock.clone()), count));
        let until = self.locks.context.clock.boottime() + left;
        let pause = Pause { until, reason: HeldReason::Pending, message: raw.trouble.to_string(), unanswered: 0 };
        if !self.locks.is_unable(&uid) {
            self.locks.pause(&uid, Some(pause));
            self.locks.nudge_others(lock);
        }
        let Ok((wait, written)) = caught(self.locks.tend_raw(&raw)).await else {
            tracing::error!(
                lock = raw.full_name(),
                "what is to become of this lock could not be found out: that panicked, too"
            );
            return Action::requeue(AFTER_PANICS);
        };
        if let Some(panics) = self.panics().get_mut(&uid) {
            panics.wrote(written);
        }
        Action::requeue(wait.max(AFTER_CONFLICT).min(left))
    }

    /// What is remembered of an object that is gone.
    fn forget(&self, lock: &DistributedLock) {
        let uid = lock.uid().unwrap_or_default();
        self.panics().remove(&uid);
        self.locks.forget(&uid);
    }
}

/// Every event that may change the decision about some lock.
fn triggers(work: &Arc<Work>) -> impl Stream<Item = ObjectRef<DistributedLock>> + Send + 'static {
    let (locks, context) = (&work.locks, &work.locks.context);
    let work = work.clone();
    // Each lock is looked at in the beginning, so none has to be told of what is there already.
    for lock in context.locks.all() {
        let spans = locks.spans_namespaces(&lock);
        locks.index.lock_changed(&Change::Applied(lock), spans, |lock| locks.newest_of(lock));
    }
    let changed = context.locks.changes().flat_map(move |change| {
        let (locks, spans) = (&work.locks, work.locks.spans_namespaces(change.object()));
        let mut concerned = locks.index.lock_changed(&change, spans, |lock| locks.newest_of(lock));
        match &change {
            Change::Applied(lock) => concerned.push(ObjectRef::from_obj(&**lock)),
            Change::Deleted(lock) | Change::Vanished(lock) => {
                work.forget(lock);
                concerned.extend(work.locks.follows(lock));
            }
        }
        stream::iter(concerned)
    });
    let index = locks.clone();
    let replicas = Replicas::default();
    // All of them, so that each counts as seen.
    if context.pods.all().iter().filter(|pod| replicas.is_new(context, pod)).count() > 0 {
        locks.holds.announce_all();
    }
    let pods = context.pods.news().flat_map(move |change| {
        index.wearers.see(change.object());
        if replicas.is_new(&index.context, change.object()) {
            index.holds.announce_all();
        }
        stream::iter(index.index.pod_changed(change.object()))
    });
    // After the stream has begun, so that no change lies in between.
    context.pods.all().iter().for_each(|pod| locks.wearers.see(pod));
    let index = locks.clone();
    let nodes = context.nodes.news().flat_map(move |change| stream::iter(index.index.node_changed(&change)));
    let index = locks.clone();
    let lost_nodes =
        WatchStream::from_changes(context.node_watch.changes()).flat_map(move |()| stream::iter(index.index.bound()));
    let index = locks.clone();
    let quorums = context.quorums.news().flat_map(move |change| stream::iter(index.of_quorum(change.object())));
    let index = locks.clone();
    let namespaces = context
        .namespaces
        .news()
        .flat_map(move |change| stream::iter(index.index.in_namespace(&change.object().name_any())));
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
