//! Writes of lock objects to the API server, and the memory of what was written.
//!
//! Every write of holder, token or validity carries the resourceVersion that it was decided on. What this replica wrote is
//! remembered until the watch has caught up, so that no decision is taken on a state that it has itself replaced.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::shares::Slots;
use crate::{
    api::{DistributedLock, DistributedLockStatus, LOCK_FINALIZER},
    runtime::{
        cache::{Guarded, Unreadable},
        metrics::Metrics,
    },
};

/// So many writes of locks are under way at once. More of them only wait for each other in the API server, which knows no namespaces
/// among the requests of one account.
const AT_ONCE: usize = 8;
/// For one request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an object could not be written, or that nobody knows whether it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody else changed the object first: read it again.
    #[error("the object changed in the meantime")]
    Conflict,
    /// The object does not exist any more.
    #[error("the object is gone")]
    Gone,
    /// The API server refused.
    #[error("the API server refused")]
    Refused(#[source] Box<kube::Error>),
    /// No answer, or none that settles it (one that cannot be read, too): the write may have happened or may yet happen.
    #[error("no answer from the API server that can be read")]
    Unknown(#[source] Option<Box<kube::Error>>),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            kube::Error::Api(status) if status.is_not_found() => Self::Gone,
            kube::Error::Api(status) if (400..500).contains(&status.code) && ![408, 429].contains(&status.code) => {
                Self::Refused(Box::new(error))
            }
            _ => Self::Unknown(Some(Box::new(error))),
        }
    }
}

/// What the API server has of a lock.
#[derive(Debug)]
pub enum Found {
    /// The object.
    Lock(Arc<DistributedLock>),
    /// It was changed into something that cannot be read.
    Unreadable(Box<Unreadable>),
    /// Nothing, or another object under its name.
    Gone,
}

/// Awaits a request to the API server for a limited time.
pub async fn request<T>(future: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    Ok(timeout(REQUEST_TIMEOUT, future).await.map_err(|_elapsed| WriteError::Unknown(None))??)
}

/// The lock objects as this replica last wrote them.
#[derive(Debug)]
pub struct Written {
    metrics: Arc<Metrics>,
    slots: Slots,
    newest: Mutex<HashMap<String, Version>>,
}

#[derive(Debug)]
struct Version {
    object: Arc<DistributedLock>,
    /// Versions that this object replaced; the cache may still show them.
    replaced: HashSet<String>,
}

impl Written {
    /// Nothing written yet; writes are counted in `metrics`.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, slots: Slots::new(AT_ONCE), newest: Mutex::default() }
    }

    /// Awaits a write of this object, and counts what became of it. The writes of one namespace do not keep those of
    /// another one waiting.
    pub(in crate::lock) async fn write<T>(
        &self,
        object: &ObjectMeta,
        future: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let slot = self.slots.enter(object.namespace.as_deref().unwrap_or_default()).await;
        let result = request(future).await;
        drop(slot);
        let outcome = match &result {
            Ok(_) => "written",
            Err(WriteError::Conflict) => "conflict",
            Err(WriteError::Gone) => "gone",
            Err(WriteError::Refused(_)) => "refused",
            Err(WriteError::Unknown(_)) => "unknown",
        };
        self.metrics.count(&self.metrics.api_writes, outcome);
        result
    }

    /// The newer of the cached object and what was written here.
    pub fn newest(&self, cached: Arc<DistributedLock>) -> Arc<DistributedLock> {
        let (Some(uid), Some(version)) = (cached.uid(), cached.resource_version()) else { return cached };
        let mut newest = self.newest.lock();
        match newest.get(&uid) {
            Some(written) if written.replaced.contains(&version) => written.object.clone(),
            Some(_) => {
                newest.remove(&uid);
                cached
            }
            None => cached,
        }
    }

    fn remember(&self, replaced: Option<String>, object: DistributedLock) -> Arc<DistributedLock> {
        let object = Arc::new(object);
        if let (Some(uid), Some(replaced)) = (object.uid(), replaced) {
            let mut newest = self.newest.lock();
            let mut version =
                newest.remove(&uid).unwrap_or(Version { object: object.clone(), replaced: HashSet::new() });
            // A write that changed nothing keeps its version.
            if object.resource_version().as_ref() != Some(&replaced) {
                version.replaced.insert(replaced);
                version.object = object.clone();
                newest.insert(uid, version);
            }
        }
        object
    }

    /// Drops what is remembered of an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.newest.lock().remove(uid);
    }
}

/// The API of the locks in one namespace.
pub fn locks(client: &Client, lock: &DistributedLock) -> Api<DistributedLock> {
    Api::namespaced(client.clone(), &lock.namespace().unwrap_or_default())
}

impl Written {
    /// Replaces the status of exactly this version of the object.
    pub async fn replace_status(
        &self,
        client: &Client,
        lock: &DistributedLock,
        status: DistributedLockStatus,
    ) -> Result<Arc<DistributedLock>, WriteError> {
        let mut object = lock.clone();
        object.status = Some(status);
        let api = locks(client, lock);
        let written =
            self.write(&lock.metadata, api.replace_status(&lock.name_any(), &PostParams::default(), &object)).await?;
        Ok(self.remember(lock.resource_version(), written))
    }

    /// Adds our finalizer to exactly this version of the object, or takes it off.
    pub async fn set_finalizer(
        &self,
        client: &Client,
        lock: &DistributedLock,
        present: bool,
    ) -> Result<Arc<DistributedLock>, WriteError> {
        let mut finalizers: Vec<_> = lock.finalizers().iter().filter(|name| *name != LOCK_FINALIZER).cloned().collect();
        if present {
            finalizers.push(LOCK_FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": lock.resource_version()}});
        let api = locks(client, lock);
        let written = self
            .write(&lock.metadata, api.patch(&lock.name_any(), &PatchParams::default(), &Patch::Merge(patch)))
            .await?;
        Ok(self.remember(lock.resource_version(), written))
    }

    /// Takes annotations off exactly this version of the object.
    pub async fn clear_annotations(
        &self,
        client: &Client,
        lock: &DistributedLock,
        names: &[&str],
    ) -> Result<Arc<DistributedLock>, WriteError> {
        let nulls: serde_json::Map<_, _> = names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
        let patch = json!({"metadata": {"annotations": nulls, "resourceVersion": lock.resource_version()}});
        let api = locks(client, lock);
        let written = self
            .write(&lock.metadata, api.patch(&lock.name_any(), &PatchParams::default(), &Patch::Merge(patch)))
            .await?;
        Ok(self.remember(lock.resource_version(), written))
    }

    /// Deletes exactly this object.
    pub async fn delete(&self, client: &Client, lock: &DistributedLock) -> Result<(), WriteError> {
        let preconditions = Preconditions { uid: lock.uid(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.write(&lock.metadata, locks(client, lock).delete(&lock.name_any(), &parameters)).await {
            Ok(_) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the object from the API server.
    pub async fn read(&self, client: &Client, lock: &DistributedLock) -> Result<Found, WriteError> {
        let api: Api<Guarded<DistributedLock>> = Api::namespaced(client.clone(), &lock.namespace().unwrap_or_default());
        let read = request(api.get_opt(&lock.name_any())).await?;
        Ok(match read.filter(|read| read.meta().uid == lock.metadata.uid) {
            Some(Guarded::Read(read)) => Found::Lock(self.remember(lock.resource_version(), read)),
            Some(Guarded::Unreadable(raw)) => Found::Unreadable(raw),
            None => Found::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str) -> DistributedLock {
        let mut lock = DistributedLock::new("lock", Default::default());
        lock.metadata.uid = Some("uid".into());
        lock.metadata.resource_version = Some(version.into());
        lock
    }

    fn seen(written: &Written, cached: &str) -> String {
        written.newest(Arc::new(version(cached))).resource_version().unwrap()
    }

    #[test]
    fn only_an_answer_that_can_be_read_settles_what_became_of_a_write() {
        let answered = |code: u16, reason: &str| {
            let status = json!({"status": "Failure", "message": "", "reason": reason, "code": code});
            WriteError::from(kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        for code in [408, 429, 500, 503, 504] {
            assert!(matches!(answered(code, "Timeout"), WriteError::Unknown(_)), "{code}");
        }
        assert!(matches!(answered(422, "Invalid"), WriteError::Refused(_)));
        assert!(matches!(answered(409, "Conflict"), WriteError::Conflict));
        assert!(matches!(answered(404, "NotFound"), WriteError::Gone));
        // It was carried out, and the object as written is one that our types refuse.
        let unreadable = serde_json::from_str::<DistributedLock>("{}").unwrap_err();
        assert!(matches!(WriteError::from(kube::Error::SerdeError(unreadable)), WriteError::Unknown(_)));
    }

    #[test]
    fn a_cache_that_lags_behind_our_writes_is_not_believed() {
        let written = Written::new(Arc::default());
        written.remember(Some("1".into()), version("2"));
        written.remember(Some("2".into()), version("3"));
        assert_eq!(seen(&written, "1"), "3");
        assert_eq!(seen(&written, "2"), "3");
        assert_eq!(seen(&written, "3"), "3");
    }

    #[test]
    fn a_later_write_of_somebody_else_wins() {
        let written = Written::new(Arc::default());
        written.remember(Some("1".into()), version("2"));
        assert_eq!(seen(&written, "7"), "7");
        assert_eq!(seen(&written, "1"), "1", "and what was remembered is dropped");
    }

    #[test]
    fn a_write_that_changed_nothing_is_not_remembered() {
        let written = Written::new(Arc::default());
        written.remember(Some("1".into()), version("1"));
        assert_eq!(seen(&written, "1"), "1");
    }
}
