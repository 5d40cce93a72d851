//! Watches that record every version with its time.
//!
//! Tests await versions and examine earlier ones. Nothing is polled.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt as _,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use parking_lot::Mutex;
use redlock_operator::time::{Boottime, Clock, SystemClock, UnixMillis};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::watch, task::AbortHandle, time::timeout};

/// A watch begins within this time.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The backoff of broken watches.
///
/// It is constant, because tests check what happens right after an API server returned.
pub(crate) struct Steady;

impl Iterator for Steady {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(200))
    }
}

impl Backoff for Steady {
    fn reset(&mut self) {}
}

/// One version of an object, or its deletion.
#[derive(Clone, Debug)]
pub(crate) struct Version<K> {
    /// When it arrived.
    pub(crate) at: Boottime,
    /// The same moment on the wall clock, for a comparison with times in objects.
    pub(crate) wall: UnixMillis,
    /// Whether the object was deleted, or no longer matches the selection.
    pub(crate) gone: bool,
    pub(crate) object: K,
}

impl<K> Version<K> {
    fn now(gone: bool, object: K) -> Self {
        Self { at: SystemClock.boottime(), wall: SystemClock.wall(), gone, object }
    }
}

/// The objects that exist after all these versions.
fn present<K: Resource>(versions: &[Version<K>]) -> impl Iterator<Item = &K> {
    let last: HashMap<_, _> = versions.iter().filter_map(|version| Some((version.object.uid()?, version))).collect();
    last.into_values().filter(|version| !version.gone).map(|version| &version.object)
}

/// Records every version of the watched objects, oldest first.
pub(crate) struct Recorder<K> {
    what: String,
    versions: Arc<Mutex<Vec<Version<K>>>>,
    count: watch::Receiver<usize>,
    task: AbortHandle,
}

impl<K> Drop for Recorder<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A kind whose objects can be watched.
pub(crate) trait Watchable:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K: Watchable> Recorder<K> {
    /// Watches one object, which does not need to exist yet.
    pub(crate) async fn of(api: Api<K>, name: &str) -> anyhow::Result<Self> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self::start(api, config, format!("{} {name}", K::kind(&()))).await
    }

    /// Watches all objects with these labels.
    pub(crate) async fn labelled(api: Api<K>, labels: &str) -> anyhow::Result<Self> {
        let config = watcher::Config::default().labels(labels);
        Self::start(api, config, format!("{} with {labels}", K::plural(&()))).await
    }

    /// Watches all objects with these fields.
    pub(crate) async fn of_fields(api: Api<K>, fields: &str) -> anyhow::Result<Self> {
        let config = watcher::Config::default().fields(fields);
        Self::start(api, config, format!("{} with {fields}", K::plural(&()))).await
    }

    async fn start(api: Api<K>, config: watcher::Config, what: String) -> anyhow::Result<Self> {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let (observed, count) = watch::channel(0);
        let (started, has_started) = tokio::sync::oneshot::channel();
        let mut events = watcher(api, config).backoff(Steady).boxed();
        let (kept, mut started) = (versions.clone(), Some(started));
        let task = tokio::spawn(async move {
            let mut listed = HashSet::new();
            while let Some(event) = events.next().await {
                let mut versions = kept.lock();
                match event {
                    Ok(Event::Apply(object)) => versions.push(Version::now(false, object)),
                    Ok(Event::Delete(object)) => versions.push(Version::now(true, object)),
                    // Watches break when an API server ends, and begin again. Objects that the new list lacks were
                    // deleted in between.
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(object)) => {
                        listed.extend(object.uid());
                        versions.push(Version::now(false, object));
                    }
                    Ok(Event::InitDone) => {
                        let is_missing = |object: &&K| object.uid().is_some_and(|uid| !listed.contains(&uid));
                        let missing: Vec<_> = present(&versions).filter(is_missing).cloned().collect();
                        versions.extend(missing.into_iter().map(|object| Version::now(true, object)));
                        let _waited = started.take().map(|started| started.send(()));
                    }
                    Err(_) => continue,
                }
                observed.send_replace(versions.len());
            }
        });
        let recorder = Self { what, versions, count: count.clone(), task: task.abort_handle() };
        let begun = timeout(START_LIMIT, has_started).await;
        begun.ok().and_then(Result::ok).with_context(|| format!("the watch of {} did not begin", recorder.what))?;
        Ok(recorder)
    }

    /// All versions up to now.
    pub(crate) fn versions(&self) -> Vec<Version<K>> {
        self.versions.lock().clone()
    }

    /// The last version.
    pub(crate) fn last(&self) -> anyhow::Result<Version<K>> {
        self.versions.lock().last().cloned().with_context(|| format!("{}: never seen", self.what))
    }

    /// The versions after the first `mark`, when there are any.
    ///
    /// It waits without end if the watch has ended.
    pub(crate) async fn after(&self, mark: usize) -> Vec<Version<K>> {
        let mut count = self.count.clone();
        if count.wait_for(|count| *count > mark).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.versions.lock().get(mark..).unwrap_or_default().to_vec()
    }

    /// The number of versions up to now.
    ///
    /// [`Self::until_after`] uses it as a starting point.
    pub(crate) fn mark(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits for the first version that matches.
    pub(crate) async fn until(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Version<K>) -> bool,
    ) -> anyhow::Result<Version<K>> {
        self.until_after(0, limit, what, is_so).await
    }

    /// Waits for the first version that matches, after the first `mark` versions.
    pub(crate) async fn until_after(
        &self,
        mark: usize,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Version<K>) -> bool,
    ) -> anyhow::Result<Version<K>> {
        match timeout(limit, self.find_after(mark, is_so)).await {
            Ok(found) => found,
            Err(_elapsed) => bail!("{}: not within {limit:?}: {what}. Last seen:\n{}", self.what, self.describe_last()),
        }
    }

    async fn find_after(&self, mark: usize, is_so: impl Fn(&Version<K>) -> bool) -> anyhow::Result<Version<K>> {
        let (mut count, mut next) = (self.count.clone(), mark);
        loop {
            count.borrow_and_update();
            let fresh = self.versions.lock().get(next..).unwrap_or_default().to_vec();
            next += fresh.len();
            if let Some(version) = fresh.into_iter().find(&is_so) {
                return Ok(version);
            }
            if count.changed().await.is_err() {
                bail!("the watch of {} ended", self.what);
            }
        }
    }

    /// Checks that no version after the first `mark` matches for this time.
    pub(crate) async fn never_during(
        &self,
        mark: usize,
        lasts: Duration,
        what: &str,
        is_so: impl Fn(&Version<K>) -> bool,
    ) -> anyhow::Result<()> {
        match timeout(lasts, self.find_after(mark, is_so)).await {
            Ok(Ok(_seen)) => bail!("{}: {what}. Last seen:\n{}", self.what, self.describe_last()),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Ok(()),
        }
    }

    /// Waits until the object is gone.
    pub(crate) async fn until_gone(&self, limit: Duration) -> anyhow::Result<Version<K>> {
        self.until(limit, "gone", |version| version.gone).await
    }

    fn describe_last(&self) -> String {
        let Ok(Version { gone, mut object, .. }) = self.last() else { return "nothing".into() };
        object.managed_fields_mut().clear();
        let text = serde_yaml::to_string(&object).unwrap_or_else(|error| error.to_string());
        if gone { format!("(deleted)\n{text}") } else { text }
    }
}
