//! Reads the Leases of elections, and corrects those that do not have the holder of the lock.
//!
//! The policy of the chart refuses a holder without the lock. Exclusion needs one of these writes: a Lease is closed before its lock is freed for
//! the end of a container. Each write carries the resourceVersion that it was decided on.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;

use super::lock_store::LockStore;
use super::progress::Error;
use crate::api::DistributedLock;
use crate::api::requests::{RequestError, as_operator, request};
use crate::lock::model::lease::{self, Change, Unchanged};
use crate::lock::model::refusal::Refusal;
use crate::runtime::fair_queue::Class;
use crate::runtime::settings::Settings;
use crate::time::{Boottime, UnixMillis};

/// The pause after a simultaneous write by a candidate, and after the first label.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// The last reading of each Lease in this term, by the UID of its lock.
#[derive(Debug, Default)]
pub(super) struct LeaseSync(Mutex<HashMap<String, Observed>>);

#[derive(Debug)]
struct Observed {
    unchanged: Unchanged,
    misfit: Option<Refusal>,
}

impl LeaseSync {
    /// Writes the Lease that the state of the lock requires. Returns the time after which to read it again.
    ///
    /// That is `None` if an event reports the next change.
    pub(super) async fn ensure(
        &self,
        store: &LockStore,
        settings: &Settings,
        lock: &DistributedLock,
        now: Boottime,
    ) -> Result<Option<Duration>, Error> {
        match self.correct(store, settings, lock, now).await {
            Ok(None) => Ok(lease::read_again(lock)),
            Err(Error::Write(RequestError::Conflict | RequestError::Gone)) => Ok(Some(AFTER_CONFLICT)),
            waits => waits,
        }
    }

    /// As [`Self::ensure`], but a simultaneous write by a candidate is an error.
    ///
    /// After that the policy concerns the Lease.
    pub(super) async fn correct(
        &self,
        store: &LockStore,
        settings: &Settings,
        lock: &DistributedLock,
        now: Boottime,
    ) -> Result<Option<Duration>, Error> {
        let Some(name) = gated(settings, lock) else { return Ok(None) };
        let decide = |lease: Option<&Lease>, unchanged: Option<&Unchanged>| {
            lease::decide(lock, lease, unchanged, (now, store.api_now()))
        };
        self.change(store, lock, name, now, decide).await
    }

    /// Closes the Lease of a lock whose holder's container has terminated, so that the lock can be freed.
    ///
    /// Returns how long the next container of the pod possibly leads. `None` if it does not lead, and cannot begin to.
    pub(super) async fn close(
        &self,
        store: &LockStore,
        settings: &Settings,
        lock: &DistributedLock,
        successor_since: UnixMillis,
        now: Boottime,
    ) -> Result<Option<Duration>, Error> {
        let Some(name) = gated(settings, lock) else { return Ok(None) };
        let decide = |lease: Option<&Lease>, unchanged: Option<&Unchanged>| {
            lease::close(lock, lease, unchanged, successor_since, (now, store.api_now()))
        };
        self.change(store, lock, name, now, decide).await
    }

    /// Reads a Lease and makes the change that it needs. Returns how long its holder possibly leads without the lock.
    async fn change(
        &self,
        store: &LockStore,
        lock: &DistributedLock,
        name: &str,
        now: Boottime,
        decide: impl FnOnce(Option<&Lease>, Option<&Unchanged>) -> Change,
    ) -> Result<Option<Duration>, Error> {
        let namespace = lock.namespace().unwrap_or_default();
        let leases: Api<Lease> = Api::namespaced(store.client().clone(), &namespace);
        let slot = store.enter(&namespace, Class::Change).await;
        let found = request(leases.get_opt(name)).await?;
        drop(slot);
        let unchanged = self.observe(lock, found.as_ref(), now);
        let refused = |cause| Refusal::LeaseNotWritten { lease: format!("{namespace}/{name}"), cause };
        let written = match decide(found.as_ref(), unchanged.as_ref()) {
            Change::Leave => return Ok(None),
            Change::Wait(left) => return Ok(Some(left)),
            Change::Label(lease) => {
                let written = store.write(&lock.metadata, leases.replace(name, &as_operator(), &lease)).await;
                return written.map(|_written| Some(AFTER_CONFLICT)).map_err(|error| Error::of_write(error, refused));
            }
            Change::Write(lease) if found.is_some() => {
                store.write(&lock.metadata, leases.replace(name, &as_operator(), &lease)).await
            }
            Change::Write(lease) => store.write(&lock.metadata, leases.create(&as_operator(), &lease)).await,
        };
        written.map(|_written| None).map_err(|error| Error::of_write(error, refused))
    }

    /// Remembers a Lease that was read. Returns since when it has not changed.
    fn observe(&self, lock: &DistributedLock, found: Option<&Lease>, now: Boottime) -> Option<Unchanged> {
        let (mut observed, uid) = (self.0.lock(), lock.uid().unwrap_or_default());
        let before = observed.remove(&uid).map(|lease| lease.unchanged);
        let unchanged = Unchanged::after(before, found?, now);
        observed.insert(uid, Observed { unchanged: unchanged.clone(), misfit: lease::misfit(lock, found) });
        Some(unchanged)
    }

    /// The reason why its Lease does not fit the lock.
    pub(super) fn misfit(&self, lock: &DistributedLock) -> Option<Refusal> {
        self.0.lock().get(&lock.uid().unwrap_or_default())?.misfit.clone()
    }

    /// Drops the memory of a deleted object.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// The name of the Lease of a lock, if the policy of the chart compares its writes with the lock.
fn gated<'a>(settings: &Settings, lock: &'a DistributedLock) -> Option<&'a str> {
    let namespace = lock.namespace().unwrap_or_default();
    let name = lock.lease().filter(|_| settings.gates_leases(&namespace))?;
    let is_own = settings.operator == format!("{namespace}/{name}");
    (!is_own && lock.metadata.deletion_timestamp.is_none()).then_some(name)
}
