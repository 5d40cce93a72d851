//! Pure: a hold on one replica, its change by a renewal, and the time for which it has lasted.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;

use super::end::End;
use super::heartbeat::Heartbeat;
use crate::api::{DistributedLock, HeldQuorum};
use crate::redlock::{Extend, LockKey, MemberFailure, MemberName, Missing, Nonce, Votes, is_silence};
use crate::time::{Boottime, ClockOffset};

/// The pause before a renewal without a majority is repeated. It is at most a third of the interval.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// When this replica first observed a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedSince {
    /// The first observation of the hold.
    pub held: Boottime,
    /// The first observation of its end, if it ends.
    pub ending: Option<Boottime>,
}

/// The identity of a hold, and the settings of its renewals.
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
    /// The nonce of this grant. The value is derived from it, the UID and the quorum's key.
    pub nonce: Nonce,
    /// Time to live set by each renewal.
    pub ttl: Duration,
    /// Time between the starts of two renewals.
    pub renew_interval: Duration,
}

/// The outcome of an attempt to renew a hold.
#[derive(Clone, Debug)]
pub enum RenewalOutcome {
    /// A round at the members.
    Round(Extend),
    /// No round was possible. The renewal is due again at this time.
    Postponed(Boottime),
    /// The holder failed its liveness check or heartbeat, so there was no round.
    ///
    /// The leader ends the hold. The holder is checked again when the next renewal is due.
    Unhealthy(End),
}

/// The state of a hold on this replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// Identity and settings.
    pub terms: Terms,
    /// The time until which this replica counts the hold as valid.
    ///
    /// Its last round earned this time. Before its first round, this is one ttl after the adoption.
    pub valid_until: Boottime,
    /// The votes of that round. An adopted hold has none before its first renewal.
    pub votes: Option<Votes>,
    /// Start of the last round by this replica that had a majority.
    pub last_majority_at: Option<Boottime>,
    /// Members that lacked the key in that round.
    pub missing: Vec<Missing>,
    /// The failure of the last round, if it had no majority.
    pub trouble: Option<String>,
    /// The last round had no majority because members did not answer. A refusal is an answer.
    pub unanswered: bool,
    /// A majority of the members has confirmed that the key is gone. Nothing revives the hold.
    pub refused: bool,
    /// Failures of its liveness check in a row.
    pub(in crate::lock) failures: i32,
    /// The heartbeat of its holder, after the first check.
    pub(in crate::lock) heartbeat: Option<Heartbeat>,
    /// The last failure of its liveness check or heartbeat, and its time on this replica.
    pub(in crate::lock) unhealthy: Option<(Boottime, End)>,
    /// The watch has reported the status with this hold.
    ///
    /// Before that, other replicas possibly have not adopted the hold.
    pub published: bool,
    /// The object that the status write of the hold returned, until the watch reports it.
    pub(in crate::lock) written: Option<Arc<DistributedLock>>,
    pub(in crate::lock) due: Boottime,
    /// When the next round is due at the latest, according to a check before the round that is under way.
    pub(in crate::lock) check_by: Option<Boottime>,
    /// A renewal is under way.
    pub(in crate::lock) under_way: bool,
    /// The next round is early, together with those of other holds.
    pub(in crate::lock) is_hastened: bool,
}

/// The failures of members in a round without a majority, for messages.
pub(in crate::lock) fn described(failures: &[(MemberName, MemberFailure)]) -> String {
    if failures.is_empty() {
        return "neither a yes nor a refusal has a majority of the members".to_owned();
    }
    failures.iter().map(|(member, failure)| format!("{member}: {failure}")).collect::<Vec<_>>().join("; ")
}

impl Hold {
    /// Whether a status in the API server names the hold.
    pub fn is_written(&self) -> bool {
        self.published || self.written.is_some()
    }

    /// A hold that is valid until `valid_until`, and is renewed next at `due`.
    pub fn new(terms: Terms, valid_until: Boottime, due: Boottime) -> Self {
        Self {
            terms,
            valid_until,
            votes: None,
            last_majority_at: None,
            missing: Vec::new(),
            trouble: None,
            unanswered: false,
            refused: false,
            failures: 0,
            heartbeat: None,
            unhealthy: None,
            published: false,
            written: None,
            due,
            check_by: None,
            under_way: false,
            is_hastened: false,
        }
    }

    /// A hold that a status names. The leader waits for one ttl for the first round of this replica.
    pub fn named(terms: Terms, now: Boottime, due: Boottime) -> Self {
        let first_round_by = now + terms.ttl;
        Self::new(terms, first_round_by, due)
    }

    /// Adds the votes and the start of the round that granted the hold.
    #[must_use]
    pub fn granted(mut self, votes: Votes, started: Boottime) -> Self {
        (self.votes, self.last_majority_at) = (Some(votes), Some(started));
        self
    }

    /// The failure of its liveness check or heartbeat, if that was after `moment`.
    ///
    /// A new leader ends no hold for a failure before its term.
    pub fn unhealthy_since(&self, moment: Boottime) -> Option<&End> {
        self.unhealthy.as_ref().filter(|(at, _)| *at >= moment).map(|(_, end)| end)
    }

    /// The votes of the last renewal, if that began less than a ttl ago.
    ///
    /// A member that restarted later is not admitted before the ttl has passed. All of these votes are therefore of processes that vote
    /// now, even if this replica was frozen in between.
    pub fn votes_of(&self, now: Boottime) -> Option<Votes> {
        self.votes.filter(|_| self.last_majority_at.is_some_and(|at| now < at + self.terms.ttl))
    }

    /// Whether the hold is valid at `now`, by the rounds of this replica.
    pub fn is_valid(&self, now: Boottime) -> bool {
        !self.refused && now < self.valid_until
    }

    /// Makes the next renewal due now, if the last round lacked a vote.
    ///
    /// The outcome of a round that is under way keeps this time.
    pub(in crate::lock) fn hasten(&mut self, now: Boottime) {
        if self.votes.is_some_and(|votes| votes.yes >= votes.of) {
            return;
        }
        self.is_hastened |= !self.under_way;
        let next = if self.under_way { self.check_by.get_or_insert(now) } else { &mut self.due };
        *next = now.min(*next);
    }

    /// Records a successful check of the holder, before the round that it allows.
    pub(in crate::lock) fn checked(&mut self, check_by: Option<Boottime>) {
        (self.unhealthy, self.check_by) = (None, check_by);
    }

    /// Applies the outcome of a renewal.
    pub(in crate::lock) fn apply_outcome(&mut self, outcome: RenewalOutcome, now: Boottime) {
        self.under_way = false;
        let check_by = self.check_by.take();
        match outcome {
            RenewalOutcome::Round(_) if self.refused => {}
            RenewalOutcome::Round(round) => {
                self.apply_round(round, now);
                self.due = check_by.map_or(self.due, |check_by| self.due.min(check_by));
            }
            RenewalOutcome::Postponed(until) => self.due = until,
            RenewalOutcome::Unhealthy(end) => {
                (self.unhealthy, self.due) = (Some((now, end)), now + self.terms.renew_interval);
            }
        }
    }

    fn apply_round(&mut self, outcome: Extend, now: Boottime) {
        let is_first = self.last_majority_at.is_none() || self.trouble.is_some();
        (self.trouble, self.unanswered) = match &outcome {
            Extend::Renewed { .. } => (None, false),
            Extend::Refused { refusals } => {
                (Some(format!("{refusals} members no longer have the key with this hold's value")), false)
            }
            Extend::TooLate => (Some("the members answered too late".to_owned()), true),
            Extend::NoQuorum { failures } => (Some(described(failures)), is_silence(failures)),
        };
        match outcome {
            Extend::Renewed { started, valid_until, votes, missing, .. } => {
                let earned = self.last_majority_at.map(|_| self.valid_until);
                self.valid_until = earned.map_or(valid_until, |earned| earned.max(valid_until));
                (self.votes, self.last_majority_at, self.missing) = (Some(votes), Some(started), missing);
                let is_spread = std::mem::take(&mut self.is_hastened) || is_first;
                self.due = started + if is_spread { self.part_of_interval() } else { self.terms.renew_interval };
            }
            Extend::Refused { .. } => self.refused = true,
            Extend::TooLate | Extend::NoQuorum { .. } => self.due = self.retry(now),
        }
    }

    /// A part of the interval, which differs between holds.
    ///
    /// A replica that starts renews all holds at the same time. So does one that reaches the members again, and the leader when a member votes
    /// again. This spreads their next renewals over the interval.
    fn part_of_interval(&self) -> Duration {
        let [part, ..] = self.terms.nonce.bytes();
        self.terms.renew_interval * (u32::from(part) + 1) / 256
    }

    /// The time of the next round after one without a majority. It is soon while the hold is valid.
    fn retry(&self, now: Boottime) -> Boottime {
        let interval = self.terms.renew_interval;
        now + if self.is_valid(now) { RETRY_AFTER.min(interval / 3) } else { interval }
    }
}

/// The time since `acquiredAt`, as far as a replica can read the API server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldFor {
    /// A lower bound. `minHold` uses it.
    pub least: Duration,
    /// An upper bound. `maxHold` uses it.
    pub most: Duration,
}

impl HeldFor {
    /// The time from `acquiredAt` in the status to the API server's clock at `now`.
    pub fn of(lock: &DistributedLock, clock: Option<ClockOffset>, now: Boottime) -> Option<Self> {
        let (acquired, clock) = (lock.status.as_ref()?.acquired_at?.into(), clock?);
        Some(Self {
            least: clock.earliest(now).floor().since(acquired),
            most: clock.latest(now).ceil().since(acquired),
        })
    }
}

/// The rest of `maxHold`. `None` without a limit, or without the API server's clock.
pub fn left_of_max_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Option<Duration> {
    Some(lock.spec.max_hold?.get().saturating_sub(held_for?.most))
}

/// The rest of `minHold`. `None` without it, or without the API server's clock.
pub fn left_of_min_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Option<Duration> {
    Some(lock.spec.min_hold?.get().saturating_sub(held_for?.least))
}
