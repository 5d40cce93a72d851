//! The holds that this replica renews, and what it knows of each.
//!
//! Every replica has such a table. The leader fills it when it grants; every replica, the leader of tomorrow among them,
//! also adopts what it sees published in a lock's status. A validity in this table is this replica's own knowledge: its
//! last successful renewal, or the published one. A hold without such knowledge is not renewed (docs/algorithm.md,
//! "Continuity").

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::runtime::reflector::ObjectRef;
use tokio::sync::{Notify, broadcast};

use super::sightings::Sightings;
use crate::{
    api::{DistributedLock, HeldQuorum},
    redlock::{Extend, LockKey, Missing, Nonce, Votes, is_silence},
    time::{Boottime, UnixMillis},
};

/// Renewals due within so much of each other go out together, as one pipeline to each member.
const BATCH_WINDOW: Duration = Duration::from_millis(5);
/// A renewal without a majority is tried again this soon, or in a third of the interval if that is shorter.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Locks whose hold changed while nobody listened are found by the next look at all of them.
const NEWS_CAPACITY: usize = 4096;

/// What identifies a hold and says how to renew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lock object.
    pub lock: ObjectRef<DistributedLock>,
    /// Its UID, part of the value's signature.
    pub uid: String,
    /// The quorum that granted it.
    pub quorum: HeldQuorum,
    /// The key in Redis.
    pub key: LockKey,
    /// This grant's nonce; with the UID and the quorum's key it gives the value.
    pub nonce: Nonce,
    /// Time to live set by each renewal.
    pub ttl: Duration,
    /// Between the starts of two renewals.
    pub renew_interval: Duration,
}

/// Why a hold was lost; nothing makes it valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A majority of members says that the key is not ours.
    Refused,
    /// Its validity ended before a renewal succeeded.
    Expired,
}

/// How a hold stands, as far as this replica knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Identity and settings.
    pub terms: Terms,
    /// The end of the known validity.
    pub valid_until: Boottime,
    /// The same moment on the quorum's clock, fixed when the round that earned it began.
    pub valid_until_there: UnixMillis,
    /// The quorum's clock at the start of that round.
    pub renewed_at: UnixMillis,
    /// That validity was never earned: a status publishes more than any round earns, and the key counts as valid for one ttl until a
    /// round has asked the members. It is published to nobody.
    pub assumed: bool,
    /// Votes of that round; none for a hold that was adopted and not renewed yet.
    pub votes: Option<Votes>,
    /// Start of the last round by this replica that had a majority.
    pub won: Option<Boottime>,
    /// Members that lacked the key in that round.
    pub missing: Vec<Missing>,
    /// The last round's trouble in words, if it had no majority.
    pub trouble: Option<String>,
    /// The last round had no majority because members were silent. One that answers no has been heard.
    pub silence: bool,
    /// Set when the hold is lost.
    pub loss: Option<Loss>,
    /// Why the holder failed its own liveness check or heartbeat, and when this replica judged so.
    unwell: Option<(Boottime, String)>,
    /// Its validity is to be published once more, though nothing has changed: somebody is about to depend on it.
    pub announce: bool,
    /// The watch has shown it in the lock's status. A grant that is not may still be unknown to everybody else.
    pub published: bool,
    due: Boottime,
    /// The validity that the renewal under way builds on.
    builds_on: Option<Boottime>,
}

impl Hold {
    /// A hold whose last round began at `renewed_at` and is valid until `valid_until`.
    pub fn new(
        terms: Terms,
        valid_until: Boottime,
        valid_until_there: UnixMillis,
        renewed_at: UnixMillis,
        due: Boottime,
    ) -> Self {
        Self {
            terms,
            valid_until,
            valid_until_there,
            renewed_at,
            assumed: false,
            votes: None,
            won: None,
            missing: Vec::new(),
            trouble: None,
            silence: false,
            loss: None,
            unwell: None,
            announce: false,
            published: false,
            due,
            builds_on: None,
        }
    }

    /// Takes up a later validity that another replica has published: this one was cut off from the members for a while, or has
    /// only just started. What a majority has refused stays lost.
    fn learn(&mut self, published: &Self) {
        if published.valid_until_there > self.valid_until_there && self.loss != Some(Loss::Refused) {
            self.valid_until = self.valid_until.max(published.valid_until);
            self.valid_until_there = published.valid_until_there;
            self.renewed_at = self.renewed_at.max(published.renewed_at);
            self.assumed = published.assumed;
            // The leader has asked the holder since, and found it well.
            self.unwell = None;
            if self.loss.take().is_some() {
                self.due = published.due;
            }
        }
    }

    /// With the votes of the round that made it, and its start.
    #[must_use]
    pub fn granted(mut self, votes: Votes, started: Boottime) -> Self {
        (self.votes, self.won) = (Some(votes), Some(started));
        self
    }

    /// Why the holder failed its own liveness check or heartbeat, if that was after `moment`: a new leader ends no hold for what
    /// it missed before it led.
    pub fn unwell_since(&self, moment: Boottime) -> Option<&str> {
        self.unwell.as_ref().filter(|(at, _)| *at >= moment).map(|(_, why)| why.as_str())
    }

    /// When the next renewal is to begin.
    pub fn due(&self) -> Boottime {
        self.due
    }

    /// Whether the hold is known to be valid at `now`.
    pub fn is_valid(&self, now: Boottime) -> bool {
        self.loss.is_none() && now < self.valid_until
    }

    /// Takes the outcome of a renewal that began at `started`.
    fn settle(&mut self, outcome: Extend, started: (Boottime, UnixMillis), now: Boottime) {
        let builds_on = self.builds_on.take();
        if self.loss.is_some() {
            return;
        }
        self.trouble = None;
        self.silence = match &outcome {
            Extend::NoQuorum { failures } => is_silence(failures),
            Extend::TooLate => true,
            Extend::Renewed { .. } | Extend::Refused { .. } => false,
        };
        match outcome {
            Extend::Renewed { started: began, valid_until, votes, missing, .. } => {
                let earned = i64::try_from(valid_until.since(began).as_millis()).unwrap_or(i64::MAX);
                let there = UnixMillis(started.1.0.saturating_add(earned));
                if std::mem::take(&mut self.assumed) {
                    (self.valid_until, self.valid_until_there) = (valid_until, there);
                }
                self.valid_until_there = UnixMillis(self.valid_until_there.0.max(there.0));
                self.valid_until = self.valid_until.max(valid_until);
                self.renewed_at = started.1;
                self.votes = Some(votes);
                self.won = Some(began);
                self.missing = missing;
                self.due = began + self.terms.renew_interval;
            }
            Extend::Refused { refusals } => {
                self.trouble = Some(format!("{refusals} members say that the key is not ours"));
                self.loss = Some(Loss::Refused);
            }
            // What was known has ended; what another replica has published since has not.
            Extend::TooLate if builds_on.is_some_and(|known| known < self.valid_until) => self.due = now,
            Extend::TooLate => self.loss = Some(Loss::Expired),
            Extend::NoQuorum { failures } => {
                let failures: Vec<_> =
                    failures.iter().map(|(member, failure)| format!("{member}: {failure}")).collect();
                self.trouble = Some(failures.join("; "));
                self.due = now + RETRY_AFTER.min(self.terms.renew_interval / 3);
            }
        }
    }
}

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
    /// Starts to renew a hold. Of a hold with the same nonce only what is newer than what this replica knows counts. `seen`:
    /// the watch has shown it, so the watch will also show its end.
    pub fn adopt(&self, mut hold: Hold, seen: bool) {
        hold.published = seen;
        let mut table = self.table();
        match table.get_mut(&hold.terms.uid) {
            Some(known) if known.terms.nonce == hold.terms.nonce => {
                known.terms.ttl = hold.terms.ttl;
                known.terms.renew_interval = hold.terms.renew_interval;
                known.published |= hold.published;
                known.learn(&hold);
            }
            _ => {
                table.insert(hold.terms.uid.clone(), hold);
            }
        }
        drop(table);
        self.wake.notify_one();
    }

    /// The watch has shown the hold of this lock in its status.
    pub fn seen(&self, uid: &str) {
        if let Some(hold) = self.table().get_mut(uid) {
            hold.published = true;
        }
    }

    /// Stops renewing a lock's hold, whatever its nonce.
    pub fn forget(&self, uid: &str) {
        self.table().remove(uid);
    }

    /// Stops renewing a hold that was published and is no longer. A grant that is still being published stays.
    pub fn forget_published(&self, uid: &str) {
        let mut table = self.table();
        if table.get(uid).is_some_and(|hold| hold.published) {
            table.remove(uid);
        }
    }

    /// Stops renewing grants that nobody knows of, when this replica stops leading: their keys run out, and the next leader
    /// recognises them as orphans.
    pub fn forget_unpublished(&self) {
        self.table().retain(|_, hold| hold.published);
    }

    /// Asks for the validity of every hold to be published: another replica has started and knows none, or this one stops.
    pub fn announce_all(&self) {
        for hold in self.table().values_mut().filter(|hold| hold.loss.is_none()) {
            hold.announce = true;
            self.tell(&hold.terms.lock);
        }
    }

    /// The validity of this hold was published.
    pub fn announced(&self, uid: &str) {
        if let Some(hold) = self.table().get_mut(uid) {
            hold.announce = false;
        }
    }

    /// Whether a publication that was asked for is still to come.
    pub fn is_announcing(&self) -> bool {
        self.table().values().any(|hold| hold.announce && hold.loss.is_none())
    }

    /// What this replica knows of a lock's hold.
    pub fn get(&self, uid: &str) -> Option<Hold> {
        self.table().get(uid).cloned()
    }

    /// All holds known here.
    pub fn all(&self) -> Vec<Hold> {
        self.table().values().cloned().collect()
    }

    /// The locks whose hold was renewed, failed to renew, or was lost.
    pub fn news(&self) -> broadcast::Receiver<ObjectRef<DistributedLock>> {
        self.news.subscribe()
    }

    /// Resolves when a hold was added, which may be due before those known so far.
    pub async fn added(&self) {
        self.wake.notified().await;
    }

    /// When something is next to be done: a renewal, or noticing that a validity has ended.
    pub fn next_due(&self) -> Option<Boottime> {
        let table = self.table();
        let open = table.values().filter(|hold| hold.loss.is_none());
        open.map(|hold| if hold.builds_on.is_some() { hold.valid_until } else { hold.due.min(hold.valid_until) }).min()
    }

    /// Takes the holds whose renewal is due, and declares lost those whose validity has ended.
    pub fn take_due(&self, now: Boottime) -> Vec<Hold> {
        let mut table = self.table();
        let mut due = Vec::new();
        for hold in table.values_mut().filter(|hold| hold.loss.is_none()) {
            if now >= hold.valid_until {
                hold.loss = Some(Loss::Expired);
                self.tell(&hold.terms.lock);
            } else if hold.builds_on.is_none() && now + BATCH_WINDOW >= hold.due {
                hold.builds_on = Some(hold.valid_until);
                due.push(hold.clone());
            }
        }
        due
    }

    /// Postpones a renewal that was taken but may not be done now.
    pub fn postpone(&self, uid: &str, until: Boottime) {
        if let Some(hold) = self.table().get_mut(uid) {
            hold.builds_on = None;
            hold.due = until;
        }
    }

    /// The holder failed its liveness check or heartbeat, as far as this replica can tell: this renewal is left out, and the leader
    /// ends the hold. The holder is asked again when the next one is due.
    pub fn condemn(&self, uid: &str, nonce: &Nonce, why: String, now: Boottime) {
        let mut table = self.table();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.builds_on = None;
            hold.due = now + hold.terms.renew_interval;
            hold.unwell = Some((now, why));
            self.tell(&hold.terms.lock);
        }
    }

    /// The holder has shown that it is well.
    pub fn acquit(&self, uid: &str, nonce: &Nonce) {
        if let Some(hold) = self.table().get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.unwell = None;
        }
    }

    /// The next renewal begins at this time, if it would begin later.
    pub fn hasten(&self, uid: &str, nonce: &Nonce, due: Boottime) {
        if let Some(hold) = self.table().get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.due = hold.due.min(due);
        }
        self.wake.notify_one();
    }

    /// Records the outcome of a renewal of the hold with this nonce.
    pub fn settle(&self, uid: &str, nonce: &Nonce, outcome: Extend, started: (Boottime, UnixMillis), now: Boottime) {
        let mut table = self.table();
        if let Some(hold) = table.get_mut(uid).filter(|hold| hold.terms.nonce == *nonce) {
            hold.settle(outcome, started, now);
            self.tell(&hold.terms.lock);
        }
    }

    /// Nobody listens on a replica that does not lead.
    fn tell(&self, lock: &ObjectRef<DistributedLock>) {
        let _ = self.news.send(lock.clone());
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Hold>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
