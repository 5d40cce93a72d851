//! The holds that this replica renews, and what it knows of each.
//!
//! Every replica has such a table. The leader fills it when it grants; every replica, the leader of tomorrow among them,
//! also adopts what a lock's status names. A validity in this table was earned by a round of this replica (docs/dev/algorithm.md,
//! "Continuity").

use std::collections::HashMap;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

use super::sightings::Sightings;
use crate::api::DistributedLock;
use crate::lock::model::end::End;
use crate::lock::model::hold::Hold;
use crate::lock::model::orphans::holder_nonce;
use crate::redlock::{Extend, Nonce};
use crate::time::Boottime;

/// Renewals due within so much of each other go out together, as one pipeline to each member.
const BATCH_WINDOW: Duration = Duration::from_millis(5);
/// Locks whose hold changed while no reader listened are found by the next look at all of them.
const NEWS_CAPACITY: usize = 4096;

/// The table.
#[derive(Debug)]
pub struct Holds {
    /// When this replica first saw each hold, and its end.
    pub sightings: Sightings,
    table: Mutex<HashMap<String, Hold>>,
    wake: Notify,
    news: broadcast::Sender<ObjectRef<DistributedLock>>,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            sightings: Sightings::default(),
            table: Mutex::default(),
            wake: Notify::new(),
            news: broadcast::channel(NEWS_CAPACITY).0,
        }
    }
}

impl Holds {
    /// Starts to renew a hold. Of a hold with the same nonce only the settings count. `seen`:
    /// the watch has shown it, so the watch will also show its end.
    pub fn adopt(&self, mut hold: Hold, seen: bool) {
        hold.published = seen;
        let mut table = self.table.lock();
        match table.get_mut(&hold.terms.uid) {
            Some(known) if known.terms.nonce == hold.terms.nonce => {
                known.terms.ttl = hold.terms.ttl;
                known.terms.renew_interval = hold.terms.renew_interval;
                known.published |= hold.published;
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

    /// Stops renewing a hold that was published, if the status now names another one, or none (`named`).
    ///
    /// A grant that is still being published stays.
    pub fn keep_only(&self, uid: &str, named: Option<&Nonce>) {
        let mut table = self.table.lock();
        if table.get(uid).is_some_and(|hold| hold.published && named != Some(&hold.terms.nonce)) {
            table.remove(uid);
        }
    }

    /// Stops renewing grants that are not published, when this replica stops leading.
    ///
    /// Their keys run out, and the next leader recognises them as orphans.
    pub fn forget_unpublished(&self) {
        self.table.lock().retain(|_, hold| hold.published);
    }

    /// The state of one hold of a lock. An earlier hold of the same lock proves nothing about this one.
    pub fn get(&self, uid: &str, nonce: &Nonce) -> Option<Hold> {
        self.table.lock().get(uid).filter(|hold| hold.terms.nonce == *nonce).cloned()
    }

    /// The state of the hold that the status of `lock` names.
    pub fn of(&self, lock: &DistributedLock) -> Option<Hold> {
        self.get(lock.metadata.uid.as_deref()?, &holder_nonce(lock)?)
    }

    /// Whether any hold of this lock is renewed.
    pub fn has(&self, uid: &str) -> bool {
        self.table.lock().contains_key(uid)
    }

    /// All holds known here.
    pub fn all(&self) -> Vec<Hold> {
        self.table.lock().values().cloned().collect()
    }

    /// The locks whose hold was renewed, failed to renew, or was lost.
    pub fn news(&self) -> broadcast::Receiver<ObjectRef<DistributedLock>> {
        self.news.subscribe()
    }

    /// Resolves when a renewal can be due earlier than the next one known.
    ///
    /// A hold was added, or a renewal ended.
    pub async fn changed(&self) {
        self.wake.notified().await;
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

    /// Postpones a renewal that was taken but may not be done now.
    pub fn postpone(&self, uid: &str, until: Boottime) {
        if let Some(hold) = self.table.lock().get_mut(uid) {
            hold.under_way = false;
            hold.due = until;
        }
        self.wake.notify_one();
    }

    /// Notes that the holder failed its liveness check or heartbeat, as far as this replica can tell.
    ///
    /// This renewal is left out, and the leader ends the hold. The holder is asked again when the next renewal is due.
    pub fn condemn(&self, uid: &str, nonce: &Nonce, end: End, now: Boottime) {
        let mut table = self.table.lock();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.under_way = false;
            hold.due = now + hold.terms.renew_interval;
            hold.unwell = Some((now, end));
            self.tell(&hold.terms.lock);
        }
        self.wake.notify_one();
    }

    /// The holder has shown that it is well.
    pub fn acquit(&self, uid: &str, nonce: &Nonce) {
        if let Some(hold) = self.table.lock().get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.unwell = None;
        }
    }

    /// The next renewal begins at this time, if it would begin later.
    pub fn hasten(&self, uid: &str, nonce: &Nonce, due: Boottime) {
        if let Some(hold) = self.table.lock().get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.due = hold.due.min(due);
        }
        self.wake.notify_one();
    }

    /// Records the outcome of a renewal of the hold with this nonce.
    pub fn settle(&self, uid: &str, nonce: &Nonce, outcome: Extend, now: Boottime) {
        let mut table = self.table.lock();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.settle(outcome, now);
            self.tell(&hold.terms.lock);
        }
        self.wake.notify_one();
    }

    /// On a replica that does not lead there is no reader.
    fn tell(&self, lock: &ObjectRef<DistributedLock>) {
        let _ = self.news.send(lock.clone());
    }
}

#[cfg(test)]
mod tests;
