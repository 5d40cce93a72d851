//! All locks of a namespace from the view of a holder.
//!
//! They come from a watch, which breaks with the API server and begins again.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::runtime::{
    WatchStreamExt as _,
    reflector::{self, ObjectRef, Store},
    watcher::{self, watcher},
};
use redlock_operator::api::DistributedLock;
use tokio::{sync::watch, task::AbortHandle};

use crate::{bench::Bench, record::Steady};

/// The server ends a watch after this number of seconds, so that a hanging watch is replaced.
const WATCH_FOR: u32 = 20;

/// The locks in the watch's latest state.
pub(crate) struct Watched {
    namespace: String,
    locks: Store<DistributedLock>,
    changes: watch::Receiver<()>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    pub(crate) fn start(bench: &Bench) -> Self {
        let (locks, writer) = reflector::store();
        let (changed, changes) = watch::channel(());
        let config = watcher::Config::default().timeout(WATCH_FOR);
        let events = watcher(bench.api::<DistributedLock>(), config).backoff(Steady);
        let mut events = events.reflect(writer).boxed();
        let task = tokio::spawn(async move {
            while events.next().await.is_some() {
                changed.send_replace(());
            }
        });
        Self { namespace: bench.namespace.clone(), locks, changes, task: task.abort_handle() }
    }

    /// A handle on one lock.
    pub(crate) fn lock(&self, name: &str) -> Watch {
        let lock = ObjectRef::new(name).within(&self.namespace);
        Watch { lock, locks: self.locks.clone(), changes: self.changes.clone() }
    }
}

/// One lock, which need not exist.
pub(crate) struct Watch {
    lock: ObjectRef<DistributedLock>,
    locks: Store<DistributedLock>,
    changes: watch::Receiver<()>,
}

impl Watch {
    pub(crate) fn now(&mut self) -> Option<Arc<DistributedLock>> {
        self.changes.mark_unchanged();
        self.locks.get(&self.lock)
    }

    /// Waits until something changes, or the time has passed.
    pub(crate) async fn changed_within(&mut self, limit: Duration) {
        // The watch ends only at the end of the test.
        let _over = tokio::time::timeout(limit, self.changes.changed()).await;
    }
}
