//! Reads the Leases of elections, and corrects those that do not have the holder of the lock.
//!
//! The policy of the chart refuses a holder without the lock. Exclusion needs only one of these writes: the operator closes a Lease before it
//! frees the lock of a terminated container. Each write carries the resourceVersion that it was decided on.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;

use super::lock_store::LockStore;
use super::progress::{Error, Synced};
use crate::api::DistributedLock;
use crate::api::conditions::{AcceptedReason, LockCondition};
use crate::api::requests::{RequestError, as_operator, request, unless_undone};
use crate::lock::model::end::End;
use crate::lock::model::heartbeat::Heartbeat;
use crate::lock::model::lease::{self, Change};
use crate::lock::model::refusal::Refusal;
use crate::runtime::settings::Settings;
use crate::time::{Boottime, UnixMillis};

/// The pause after a simultaneous write by a candidate, and after the first label.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// The Leases of elections, with the last reading of each in this term.
#[derive(Default)]
pub(super) struct LeaseSync {
    /// By the UID of the lock.
    observed: Mutex<HashMap<String, Observed>>,
}

#[derive(Debug)]
struct Observed {
    heartbeat: Heartbeat,
    misfit: Option<Refusal>,
    /// The end of the hold with this token.
    idle: Option<(i64, End)>,
}

impl LeaseSync {
    /// Writes the Lease that the state of the lock requires. Returns the time after which to read it again.
    ///
    /// That is `None` if an event reports the next change. If two locks name a Lease, it belongs to the first one. The published status of the
    /// second one has the refusal, so this writes nothing for it.
    pub(super) async fn ensure(&self, store: &LockStore, lock: &DistributedLock) -> Synced {
        let accepted = lock.condition(LockCondition::Accepted);
        if accepted.is_some_and(|accepted| accepted.reason == AcceptedReason::LeaseNotServed.as_str()) {
            return Ok(None);
        }
        match self.correct(store, lock).await {
            Ok(None) => Ok(lease::read_again(lock)),
            Err(Error::Write(RequestError::Conflict | RequestError::Gone)) => Ok(Some(AFTER_CONFLICT)),
            waits => waits,
        }
    }

    /// As [`Self::ensure`], but it fails if a candidate writes at the same time. When it succeeds, the policy applies to the Lease.
    pub(super) async fn correct(&self, store: &LockStore, lock: &DistributedLock) -> Synced {
        self.change(store, lock, |lease, times| lease::decide(lock, lease, times)).await
    }

    /// Closes the Lease of a lock whose holder's container has terminated, so that the lock can be freed.
    ///
    /// The next container of its pod began at `since` or later. Returns how long that container possibly leads. `None` if it does not lead, and
    /// cannot begin to.
    pub(super) async fn close(&self, store: &LockStore, lock: &DistributedLock, since: UnixMillis) -> Synced {
        self.change(store, lock, |lease, times| lease::close(lock, lease, since, times)).await
    }

    /// Reads a Lease and makes the change that it needs.
    ///
    /// Returns how long its holder possibly leads without the lock.
    async fn change(
        &self,
        store: &LockStore,
        lock: &DistributedLock,
        decide: impl FnOnce(Option<(&Lease, &Heartbeat)>, (Boottime, UnixMillis)) -> Change,
    ) -> Synced {
        let Some(name) = gated(&store.context.replica.settings, lock) else { return Ok(None) };
        let namespace = lock.namespace().unwrap_or_default();
        let leases: Api<Lease> = Api::namespaced(store.context.client.clone(), &namespace);
        let slot = store.slot(lock).await;
        let found = request(leases.get_opt(name)).await?;
        drop(slot);
        let now = store.context.clock.boottime();
        let heartbeat = self.observe(lock, found.as_ref(), now);
        let refused = |cause| Refusal::LeaseNotWritten { lease: format!("{namespace}/{name}"), cause };
        let observed = found.as_ref().zip(heartbeat.as_ref());
        let (lease, read_again) = match decide(observed, (now, store.context.api_now())) {
            Change::Leave => return Ok(None),
            Change::Wait(left) => return Ok(Some(left)),
            Change::Label(lease) => (lease, Some(AFTER_CONFLICT)),
            Change::Write(lease) => (lease, None),
        };
        let slot = store.slot(lock).await;
        let written = match found {
            Some(_) => store.write(slot, leases.replace(name, &as_operator(), &lease)).await,
            None => store.write(slot, leases.create(&as_operator(), &lease)).await,
        };
        let labelled = written.and_then(|lease| unless_undone(lease, lease::is_labelled));
        labelled.map(|_lease| read_again).map_err(|error| Error::of_write(error, refused))
    }

    /// Remembers a Lease that was read. Returns since when it has not changed.
    fn observe(&self, lock: &DistributedLock, found: Option<&Lease>, now: Boottime) -> Option<Heartbeat> {
        let mut observed = self.observed.lock();
        let uid = lock.uid().unwrap_or_default();
        let before = observed.remove(&uid).map(|lease| lease.heartbeat);
        // A Lease that is gone leaves no observation.
        let lease = found?;
        let mut heartbeat = before.unwrap_or(Heartbeat::new(now));
        heartbeat.observe(lease.resource_version(), now);
        let (misfit, idle) = (lease::misfit(lock, lease), lease::idle(lock, lease, &heartbeat, now));
        observed.insert(uid, Observed { heartbeat: heartbeat.clone(), misfit, idle });
        Some(heartbeat)
    }

    /// The reason why its Lease does not fit the lock.
    pub(super) fn misfit(&self, lock: &DistributedLock) -> Option<Refusal> {
        self.observed.lock().get(&lock.uid().unwrap_or_default())?.misfit.clone()
    }

    /// The end of a hold whose leader does not renew the Lease, although its container runs.
    pub(super) fn idle(&self, lock: &DistributedLock) -> Option<End> {
        let (token, end) = self.observed.lock().get(&lock.uid().unwrap_or_default())?.idle.clone()?;
        (lock.fencing_token() == Some(token)).then_some(end)
    }

    /// Drops the memory of a deleted object.
    pub(super) fn forget(&self, uid: &str) {
        self.observed.lock().remove(uid);
    }
}

/// The name of the Lease of a lock, if the policy of the chart compares its writes with the lock.
fn gated<'a>(settings: &Settings, lock: &'a DistributedLock) -> Option<&'a str> {
    let namespace = lock.namespace().unwrap_or_default();
    let name = lock.lease().filter(|_| settings.gates_leases(&namespace))?;
    let is_own = settings.operator == format!("{namespace}/{name}");
    (!is_own && lock.metadata.deletion_timestamp.is_none()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;

    #[test]
    fn an_idle_lease_ends_only_the_hold_of_its_token() {
        let lock = |token: i64| lock(json!({}), json!({"transitions": 1, "fencingToken": token}));
        let leases = LeaseSync::default();
        let end = End::LeaseIdle { lease: "app".to_owned(), silent: Duration::from_secs(9).into() };
        let heartbeat = Heartbeat::new(Boottime::default());
        let observed = Observed { heartbeat, misfit: None, idle: Some((6, end.clone())) };
        leases.observed.lock().insert("u".to_owned(), observed);
        assert_eq!((leases.idle(&lock(6)), leases.idle(&lock(7))), (Some(end), None));
    }
}
