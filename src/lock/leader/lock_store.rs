//! Reads and writes of lock objects by the leader, and the memory of its writes.
//!
//! Every write of holder, token or validity carries the resourceVersion that it was decided on. The store remembers each write until the
//! watch has caught up, so that no decision uses a state that this replica has replaced.

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::api::requests::{RequestError, request, unless_gone, unless_undone};
use crate::api::{DistributedLock, DistributedLockStatus, LEASE_LABEL, LOCK_FINALIZER};
use crate::lock::model::contention::LockRef;
use crate::lock::model::decide::{has_finalizer, is_labelled};
use crate::lock::model::events::LockEvent;
use crate::runtime::cache::{Guarded, version};
use crate::runtime::context::Context;
use crate::runtime::fair_queue::{Class, Slot};

/// The object after a write.
pub(super) type Newer = Result<Arc<DistributedLock>, RequestError>;
/// The object by a read, if it exists.
pub(super) type Read = Result<Option<Arc<DistributedLock>>, RequestError>;

/// The lock objects, with their Events and metrics.
pub(super) struct LockStore {
    pub(super) context: Context,
    written: Written,
}

impl LockStore {
    /// No write is remembered yet.
    pub(super) fn new(context: Context) -> Self {
        Self { context, written: Written::default() }
    }

    /// The object by the watch, or as this replica last wrote it.
    pub(super) fn get(&self, lock: &LockRef) -> Option<Arc<DistributedLock>> {
        self.context.locks.get(lock).map(|cached| self.written.newest(cached))
    }

    /// Drops the memory of a deleted object.
    pub(super) fn forget(&self, uid: &str) {
        self.written.0.lock().remove(uid);
    }

    /// Waits for a slot for a request about this lock.
    pub(super) async fn slot(&self, lock: &DistributedLock) -> Slot {
        self.context.requests.enter(&lock.namespace().unwrap_or_default(), Class::Change).await
    }

    /// Awaits a write with a slot, and counts its outcome.
    pub(super) async fn write<T>(
        &self,
        slot: Slot,
        future: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, RequestError> {
        let result = request(future).await;
        drop(slot);
        let outcome = match &result {
            Ok(_) => "written",
            Err(RequestError::Conflict) => "conflict",
            Err(RequestError::Gone) => "gone",
            Err(RequestError::Refused(_)) => "refused",
            Err(RequestError::Unknown(_)) => "unknown",
        };
        self.context.metrics.count(&self.context.metrics.api_writes, outcome);
        result
    }

    /// Replaces the status of exactly this version of the object.
    pub(super) async fn replace_status(&self, lock: &DistributedLock, status: DistributedLockStatus) -> Newer {
        self.replace_status_in(self.slot(lock).await, lock, status).await
    }

    /// Like [`Self::replace_status`], with a slot.
    pub(super) async fn replace_status_in(
        &self,
        slot: Slot,
        lock: &DistributedLock,
        status: DistributedLockStatus,
    ) -> Newer {
        let object = Guarded::Read(DistributedLock { status: Some(status), ..lock.clone() });
        let (api, name) = (self.api(lock), lock.name_any());
        let replaced = self.write(slot, api.replace_status(&name, &PostParams::default(), &object)).await?;
        self.remember(lock, replaced)
    }

    /// Gives exactly this version of the object the metadata of a held lock.
    ///
    /// These are the operator's finalizer and the label by which the policy on Leases finds the lock. It removes the annotations `stale`.
    pub(super) async fn prepare(&self, lock: &DistributedLock, stale: &[&str]) -> Newer {
        let mut finalizers = other_finalizers(lock);
        finalizers.push(LOCK_FINALIZER.to_owned());
        let nulls: Map<_, _> = stale.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
        let mut metadata = json!({"finalizers": finalizers, "annotations": nulls});
        if lock.lease().is_some() {
            metadata["labels"] = json!({LEASE_LABEL: "true"});
        }
        let prepared = self.patch_metadata(lock, metadata).await?;
        let has_stale = |lock: &DistributedLock| stale.iter().any(|name| lock.annotations().contains_key(*name));
        unless_undone(prepared, |lock| has_finalizer(lock) && is_labelled(lock) && !has_stale(lock))
    }

    /// Removes the operator's finalizer from exactly this version of the object.
    pub(super) async fn remove_finalizer(&self, lock: &DistributedLock) -> Newer {
        self.patch_metadata(lock, json!({"finalizers": other_finalizers(lock)})).await
    }

    async fn patch_metadata(&self, lock: &DistributedLock, mut metadata: Value) -> Newer {
        metadata["resourceVersion"] = json!(lock.resource_version());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let (api, name) = (self.api(lock), lock.name_any());
        let patched = self.write(self.slot(lock).await, api.patch(&name, &PatchParams::default(), &patch)).await?;
        self.remember(lock, patched)
    }

    fn remember(&self, lock: &DistributedLock, newer: Guarded<DistributedLock>) -> Newer {
        let newer = newer.object().ok_or(RequestError::Unknown(None))?;
        Ok(self.written.remember(lock.resource_version(), newer))
    }

    /// Deletes exactly this version of the object.
    pub(super) async fn delete(&self, lock: &DistributedLock) -> Result<(), RequestError> {
        let preconditions = Preconditions { uid: lock.uid(), resource_version: lock.resource_version() };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let (api, name) = (self.api(lock), lock.name_any());
        unless_gone(self.write(self.slot(lock).await, api.delete(&name, &parameters)).await)
    }

    fn api(&self, lock: &DistributedLock) -> Api<Guarded<DistributedLock>> {
        Api::namespaced(self.context.client.clone(), &lock.namespace().unwrap_or_default())
    }

    /// Publishes an Event, and does not wait for it.
    ///
    /// Claims have no Events of type Normal, because their history has the same content. Two Events for each claim would be half of all
    /// writes.
    pub(super) fn event(&self, lock: &Arc<DistributedLock>, event: LockEvent) {
        if lock.spec.election.is_none() && matches!(event.kind(), EventType::Normal) {
            return;
        }
        let (context, lock, note) = (self.context.clone(), lock.clone(), event.to_string());
        tokio::spawn(async move { context.event(&*lock, (event.reason(), event.kind()), note, None).await });
    }

    /// Reads the object from the API server.
    ///
    /// Returns `None` if it is deleted, or if another object has its name.
    pub(super) async fn read(&self, lock: &DistributedLock) -> Read {
        let slot = self.slot(lock).await;
        let read = request(self.api(lock).get_opt(&lock.name_any())).await?;
        drop(slot);
        read.filter(|read| read.meta().uid == lock.metadata.uid).map(|read| self.remember(lock, read)).transpose()
    }
}

/// The finalizers of other controllers.
fn other_finalizers(lock: &DistributedLock) -> Vec<String> {
    lock.finalizers().iter().filter(|name| *name != LOCK_FINALIZER).cloned().collect()
}

/// Pure: the last write of each lock object by this replica, by UID.
#[derive(Debug, Default)]
struct Written(Mutex<HashMap<String, Arc<DistributedLock>>>);

impl Written {
    fn newest(&self, cached: Arc<DistributedLock>) -> Arc<DistributedLock> {
        let Some(uid) = &cached.metadata.uid else { return cached };
        let mut newest = self.0.lock();
        match newest.get(uid) {
            Some(written) if version(&*cached) < version(&**written) => written.clone(),
            _ => {
                newest.remove(uid);
                cached
            }
        }
    }

    fn remember(&self, replaced: Option<String>, mut object: DistributedLock) -> Arc<DistributedLock> {
        // The reply to a write has these fields, which are more than half of the object.
        object.metadata.managed_fields = None;
        let object = Arc::new(object);
        // A write that changed nothing keeps its version.
        if let Some(uid) = object.uid().filter(|_| replaced.is_some() && object.resource_version() != replaced) {
            self.0.lock().insert(uid, object.clone());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_version_replaces_an_older_cached_one() {
        let version = |version: &str| {
            let mut lock = DistributedLock::new("lock", Default::default());
            lock.metadata.uid = Some("uid".into());
            lock.metadata.resource_version = Some(version.into());
            lock
        };
        let written = Written::default();
        let newest = |cached: &str| written.newest(Arc::new(version(cached))).resource_version().unwrap();
        written.remember(Some("1".into()), version("1"));
        assert_eq!(newest("1"), "1", "a write that changed nothing is not remembered");
        written.remember(Some("1".into()), version("2"));
        written.remember(Some("2".into()), version("3"));
        assert_eq!(["1", "2", "3"].map(newest), ["3", "3", "3"]);
        // A conflict with writes of other clients, which the watch has not delivered.
        written.remember(Some("3".into()), version("8"));
        written.remember(Some("8".into()), version("9"));
        assert_eq!(newest("7"), "9", "a version between two known ones is older, too");
        assert_eq!(newest("10"), "10", "a later write of another client wins");
        assert_eq!(newest("1"), "1", "the remembered write is dropped");
    }
}
