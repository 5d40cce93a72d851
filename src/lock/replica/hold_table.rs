//! The table of holds that this replica renews.
//!
//! Every replica has such a table. The leader adds its grants, and every replica adopts the holds in the status of locks, because it can
//! lead next. A round of this replica has earned each validity in this table (docs/dev/algorithm.md, "Continuity").

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use super::observation_times::ObservationTimes;
use crate::api::DistributedLock;
use crate::lock::model::hold::{Hold, RenewalOutcome};
use crate::lock::model::orphans::holder_nonce;
use crate::redlock::Nonce;
use crate::runtime::cache;
use crate::time::Boottime;

/// Renewals due within this time go together, as one pipeline to each member.
const BATCH_WINDOW: Duration = Duration::from_millis(25);
/// Capacity of the queue of changed holds. A receiver that lags behind checks all locks.
const NEWS_CAPACITY: usize = 4096;

/// The table of holds.
#[derive(Debug)]
pub struct Holds {
    /// When this replica first observed each hold, and its end.
    pub observation_times: ObservationTimes,
    table: Mutex<HashMap<String, Hold>>,
    wake: Notify,
    news: broadcast::Sender<ObjectRef<DistributedLock>>,
}

impl Default for Holds {
    fn default() -> Self {
        let news = broadcast::channel(NEWS_CAPACITY).0;
        Self { observation_times: ObservationTimes::default(), table: Mutex::default(), wake: Notify::new(), news }
    }
}

impl Holds {
    /// Adds a hold in place of an earlier one, or updates the settings of the hold with the same nonce.
    ///
    /// `published` is true if the watch has reported the hold. The watch will then also report its end.
    pub fn adopt(&self, mut hold: Hold, published: bool) {
        hold.published = published;
        let mut table = self.table.lock();
        match table.get_mut(&hold.terms.uid) {
            Some(existing) if existing.terms.nonce == hold.terms.nonce => {
                existing.terms.ttl = hold.terms.ttl;
                existing.terms.renew_interval = hold.terms.renew_interval;
                existing.published |= hold.published;
                existing.written = hold.written.or(existing.written.take()).filter(|_| !existing.published);
            }
            _ => {
                table.insert(hold.terms.uid.clone(), hold);
            }
        }
        drop(table);
        self.wake.notify_one();
    }

    /// Stops renewing a lock's hold, whatever its nonce.
    pub fn forget(&self, uid: &str) {
        self.table.lock().remove(uid);
    }

    /// Drops the hold of a deleted lock, and the times of its observation.
    pub fn forget_deleted(&self, uid: &str) {
        self.forget(uid);
        self.observation_times.forget(uid);
    }

    /// Records the object with which the API server confirmed the status write of this hold.
    ///
    /// The watch can report it much later, for example after an outage of the API server.
    pub fn written(&self, uid: &str, nonce: &Nonce, lock: &Arc<DistributedLock>) {
        let mut table = self.table.lock();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce && !hold.published) {
            hold.written = Some(lock.clone());
        }
    }

    /// Drops a lock's hold, because this version of the object names no hold.
    ///
    /// A version from before the hold does not end it.
    pub fn forget_ended(&self, uid: &str, version: Option<u64>) {
        let mut table = self.table.lock();
        let is_newer = |written: &Arc<DistributedLock>| version > cache::version(&**written);
        if table.get(uid).is_some_and(|hold| hold.published || hold.written.as_ref().is_some_and(is_newer)) {
            table.remove(uid);
        }
    }

    /// Drops grants whose status write is not confirmed, when this replica stops leading.
    ///
    /// Their keys expire, and the next leader recognises them as orphans.
    pub fn forget_unwritten(&self) {
        self.table.lock().retain(|_, hold| hold.is_written());
    }

    /// The state of the hold with this nonce. An earlier hold of the same lock proves nothing about it.
    pub fn get(&self, uid: &str, nonce: &Nonce) -> Option<Hold> {
        self.table.lock().get(uid).filter(|hold| hold.terms.nonce == *nonce).cloned()
    }

    /// The state of the hold that the status of `lock` names.
    pub fn of(&self, lock: &DistributedLock) -> Option<Hold> {
        self.get(lock.metadata.uid.as_deref()?, &holder_nonce(lock)?)
    }

    /// Subscribes to the locks whose hold was renewed, failed to renew, or was lost.
    pub fn news(&self) -> broadcast::Receiver<ObjectRef<DistributedLock>> {
        self.news.subscribe()
    }

    /// Resolves when a renewal can be due earlier than before.
    ///
    /// A hold was added or hastened, or a renewal ended. The caller then reads the whole table, so changes within `BATCH_WINDOW` count as one.
    pub async fn changed(&self) {
        self.wake.notified().await;
        tokio::time::sleep(BATCH_WINDOW).await;
    }

    /// When the next renewal is due.
    pub fn next_due(&self) -> Option<Boottime> {
        let table = self.table.lock();
        table.values().filter(|hold| !hold.refused && !hold.under_way).map(|hold| hold.due).min()
    }

    /// Takes the holds whose renewal is due.
    pub fn take_due(&self, now: Boottime) -> Vec<Hold> {
        let mut table = self.table.lock();
        let is_due = |hold: &&mut Hold| !hold.refused && !hold.under_way && now + BATCH_WINDOW >= hold.due;
        let take = |hold: &mut Hold| {
            hold.under_way = true;
            hold.clone()
        };
        table.values_mut().filter(is_due).map(take).collect()
    }

    /// Makes renewals on this quorum due whose last round lacked a vote.
    pub fn hasten(&self, quorum_uid: &str, now: Boottime) {
        let mut table = self.table.lock();
        let on_quorum = table.values_mut().filter(|hold| hold.terms.quorum.uid == quorum_uid);
        on_quorum.for_each(|hold| hold.hasten(now));
        drop(table);
        self.wake.notify_one();
    }

    /// Records the results of a check of the holder, for its next check.
    pub fn note_checks(&self, checked: &Hold) {
        let Hold { terms, failures, heartbeat, .. } = checked;
        let mut table = self.table.lock();
        if let Some(hold) = table.get_mut(&terms.uid).filter(|hold| hold.terms.nonce == terms.nonce) {
            (hold.failures, hold.heartbeat) = (*failures, heartbeat.clone());
        }
    }

    /// Records a successful check of the holder. The next renewal is due by `check_by`.
    pub fn checked(&self, uid: &str, nonce: &Nonce, check_by: Option<Boottime>) {
        if let Some(hold) = self.table.lock().get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.checked(check_by);
        }
    }

    /// Records the outcome of a renewal of the hold with this nonce.
    ///
    /// Every renewal of [`Self::take_due`] ends here.
    pub fn apply_outcome(&self, uid: &str, nonce: &Nonce, outcome: RenewalOutcome, now: Boottime) {
        let is_postponed = matches!(outcome, RenewalOutcome::Postponed(_));
        let mut table = self.table.lock();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.apply_outcome(outcome, now);
            if !is_postponed {
                // A replica that does not lead has no receiver.
                let _ = self.news.send(hold.terms.lock.clone());
            }
        }
        self.wake.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests;
