//! All locks of a namespace from the view of a holder.
//!
//! They come from a watch, which breaks with the API server and begins again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use redlock_operator::api::DistributedLock;
use tokio::{sync::watch, task::AbortHandle};

use crate::record::Steady;

type Locks = BTreeMap<String, Arc<DistributedLock>>;

/// The server ends a watch after this number of seconds, so that a hanging watch is replaced.
const WATCH_FOR: u32 = 20;

/// The locks in the watch's latest state.
pub(crate) struct Watched {
    locks: watch::Receiver<Locks>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    pub(crate) fn start(api: Api<DistributedLock>) -> Self {
        let (known, locks) = watch::channel(Locks::new());
        let mut events = watcher(api, watcher::Config::default().timeout(WATCH_FOR)).backoff(Steady).boxed();
        let task = tokio::spawn(async move {
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(lock)) => {
                        known.send_modify(|locks| drop(locks.insert(lock.name_any(), Arc::new(lock))));
                    }
                    Ok(Event::Delete(lock)) => known.send_modify(|locks| drop(locks.remove(&lock.name_any()))),
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(lock)) => {
                        listed.insert(lock.name_any());
                        known.send_modify(|locks| drop(locks.insert(lock.name_any(), Arc::new(lock))));
                    }
                    Ok(Event::InitDone) => {
                        known.send_modify(|locks| locks.retain(|name, _| listed.contains(name)));
                    }
                    Err(_broken) => {}
                }
            }
        });
        Self { locks, task: task.abort_handle() }
    }

    /// A handle on one lock.
    pub(crate) fn lock(&self, name: &str) -> Watch {
        Watch { name: name.to_owned(), locks: self.locks.clone() }
    }
}

/// One lock, which need not exist.
pub(crate) struct Watch {
    name: String,
    locks: watch::Receiver<Locks>,
}

impl Watch {
    pub(crate) fn now(&mut self) -> Option<Arc<DistributedLock>> {
        self.locks.borrow_and_update().get(&self.name).cloned()
    }

    /// Waits until something changes, or the time has passed.
    pub(crate) async fn changed_within(&mut self, limit: Duration) {
        // The watch ends only at the end of the test.
        let _over = tokio::time::timeout(limit, self.locks.changed()).await;
    }
}
