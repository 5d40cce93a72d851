//! All locks of a namespace as a holder sees them: by a watch, which breaks when the API server goes, and begins anew.

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

/// A Kubernetes client notices that a server answers no more within this time; a watch that hangs is not seen to.
const WATCH_FOR: u32 = 20;

/// The locks as they are known to be.
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

    /// One of them.
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

    /// Something changed, or the time is over.
    pub(crate) async fn changed_within(&mut self, limit: Duration) {
        // An end of the watch is an end of the test.
        let _over = tokio::time::timeout(limit, self.locks.changed()).await;
    }
}
