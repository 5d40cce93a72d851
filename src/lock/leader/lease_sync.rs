//! Reads the Leases of elections, and corrects those that do not have the holder of the lock.
//!
//! Exclusion needs none of these writes, because the policy of the chart refuses a holder without the lock. Each write carries the
//! resourceVersion that it was decided on.

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
use crate::time::Boottime;

/// The pause after a simultaneous write by a candidate.
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
        let namespace = lock.namespace().unwrap_or_default();
        let Some(name) = lock.lease().filter(|_| settings.gates_leases(&namespace)) else { return Ok(None) };
        if lock.metadata.deletion_timestamp.is_some() || settings.operator == format!("{namespace}/{name}") {
            return Ok(None);
        }
        let leases: Api<Lease> = Api::namespaced(store.client().clone(), &namespace);
        let slot = store.enter(&namespace, Class::Change).await;
        let found = request(leases.get_opt(name)).await?;
        drop(slot);
        let change = {
            let mut observed = self.0.lock();
            let uid = lock.uid().unwrap_or_default();
            let before = observed.remove(&uid).map(|lease| lease.unchanged);
            let unchanged = found.as_ref().map(|lease| Unchanged::after(before, lease, now));
            let change = lease::decide(lock, found.as_ref(), unchanged.as_ref(), (now, store.api_now()));
            if let Some(unchanged) = unchanged {
                observed.insert(uid, Observed { unchanged, misfit: lease::misfit(lock, found.as_ref()) });
            }
            change
        };
        let written = match change {
            Change::Leave => return Ok(lease::read_again(lock)),
            Change::Wait(left) => return Ok(Some(left)),
            Change::Write(lease) if found.is_some() => {
                store.write(&lock.metadata, leases.replace(name, &as_operator(), &lease)).await
            }
            Change::Write(lease) => store.write(&lock.metadata, leases.create(&as_operator(), &lease)).await,
        };
        match written {
            Ok(_) => Ok(lease::read_again(lock)),
            Err(RequestError::Conflict | RequestError::Gone) => Ok(Some(AFTER_CONFLICT)),
            Err(error) => Err(Error::of_write(error, |cause| Refusal::LeaseNotWritten {
                lease: format!("{namespace}/{name}"),
                cause,
            })),
        }
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
