//! Pure: the status of a lock after each transition.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::end::End;
use super::held_message::HeldMessage;
use super::hold::Hold;
use super::hold_record::HoldRecord;
use super::readiness::{self, set_ready};
use super::refusal::Refusal;
use crate::api::conditions::{
    AcceptedReason, HeldReason, LockCondition, Status, beginning, find_condition, is_true, set_condition,
    transition_time,
};
use crate::api::{DistributedLock, DistributedLockStatus, Ending, LockHolder, MilliTime, PastHold, Stopping};
use crate::redlock::{FencingToken, Votes};
use crate::time::{Boottime, ClockOffset, UnixMillis};

/// Maximum number of past holds in a status.
const HISTORY: usize = 10;
/// Maximum length of the reason for an end in the history.
const LONGEST_MESSAGE: usize = 512;
/// The last queue position that a status records.
///
/// If all positions were recorded, a release would need a write for every waiting lock.
pub const LAST_POSITION: usize = 10;

/// A status under construction, with the inputs of conditions.
#[must_use]
pub struct Draft {
    status: DistributedLockStatus,
    ttl: Option<Duration>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Draft {
    /// A draft from the present status of a lock.
    pub fn of(lock: &DistributedLock, now: UnixMillis) -> Self {
        let generation = lock.metadata.generation;
        let mut status = lock.status.clone().unwrap_or_default();
        status.observed_generation = generation;
        status.key = Some(lock.key());
        let now = Timestamp::from_millisecond(now.0).unwrap_or_default();
        let draft = Self { status, ttl: readiness::ttl(lock), generation, now };
        match Refusal::of_reading(lock) {
            Some(refusal) => draft.not_accepted(&refusal),
            None => draft,
        }
    }

    /// A draft from another status of the same lock.
    pub fn from_status(lock: &DistributedLock, status: DistributedLockStatus, now: UnixMillis) -> Self {
        Self { status, ..Self::of(lock, now) }
    }

    /// The finished status.
    pub fn finish(mut self) -> DistributedLockStatus {
        set_ready(&mut self.status, self.ttl, (self.generation, self.now));
        self.status
    }

    fn set(mut self, type_: LockCondition, is_true: bool, reason: impl Into<&'static str>, message: String) -> Self {
        set_condition(&mut self.status.conditions, type_, is_true, reason, message, (self.generation, self.now));
        self
    }

    fn held(self, is_held: bool, message: &HeldMessage) -> Self {
        self.set(LockCondition::Held, is_held, message.reason(), message.to_string())
    }

    /// The lock is served, perhaps with a fault.
    pub fn accepted(self, trouble: Option<&Refusal>) -> Self {
        let reason = trouble.map_or(AcceptedReason::Accepted, Refusal::reason);
        self.set(LockCondition::Accepted, true, reason, trouble.map(Refusal::to_string).unwrap_or_default())
    }

    /// The specification cannot be served.
    pub fn refused(self, refusal: &Refusal) -> Self {
        self.not_accepted(refusal).waiting(HeldReason::NotAccepted, refusal.to_string(), None)
    }

    /// The specification cannot be served, but the hold continues.
    pub fn not_accepted(self, refusal: &Refusal) -> Self {
        self.set(LockCondition::Accepted, false, refusal.reason(), refusal.to_string())
    }

    /// Records the place of the hold, and for how long the members can remember it.
    ///
    /// That delay only grows.
    pub fn recorded(mut self, record: &HoldRecord, rejoin_delay: Option<Duration>) -> Self {
        if let Some(holder) = &mut self.status.holder {
            holder.quorum = Some(record.quorum.clone());
            holder.key = Some(record.key.as_str().to_owned());
            let longest = record.rejoin_delay.max(rejoin_delay.unwrap_or_default());
            holder.rejoin_delay = holder.rejoin_delay.max(Some(longest.into()));
        }
        self
    }

    /// The lock has no holder, for this reason.
    fn waiting(mut self, reason: HeldReason, message: String, position: Option<usize>) -> Self {
        // A wait begins at the end of a suspension, so the condition gets a new time of transition.
        if reason != HeldReason::Suspended {
            self.forget_held(|held| held.reason == HeldReason::Suspended.as_str());
        }
        let position = position.filter(|position| *position <= LAST_POSITION);
        self.status.queue_position = position.and_then(|position| i32::try_from(position).ok());
        self.set(LockCondition::Held, false, reason, message)
    }

    /// Removes a condition Held with this property. The next one gets a new time of transition.
    fn forget_held(&mut self, is_old: impl Fn(&Condition) -> bool) {
        let is_held = |condition: &Condition| condition.type_ == LockCondition::Held.as_str();
        self.status.conditions.retain(|condition| !(is_held(condition) && is_old(condition)));
    }

    /// The lock has no holder, for the reason of this message.
    pub fn not_held(self, message: &HeldMessage, position: Option<usize>) -> Self {
        self.waiting(message.reason(), message.to_string(), position)
    }

    /// The lock is held from now on, by a holder with its record.
    ///
    /// The times are the latest reading of the API server's clock when a majority had voted, and the earliest one at the end of the validity.
    pub fn granted(
        mut self,
        holder: LockHolder,
        token: FencingToken,
        (acquired_at, valid_until): (UnixMillis, UnixMillis),
        votes: Votes,
    ) -> Self {
        if !is_true(&self.status.conditions, LockCondition::Accepted) {
            self = self.accepted(None);
        }
        let key = holder.key.clone().unwrap_or_default();
        let message = HeldMessage::Held { holder: holder.identity.clone(), key, token };
        self.status.holder = Some(holder);
        self.status.fencing_token = Some(token.get());
        self.status.acquired_at = MilliTime::from_millis(acquired_at.0);
        (self.status.stopping, self.status.ending) = (None, None);
        self.status.queue_position = Some(0);
        self.status.transitions += 1;
        self.held(true, &message).validity(acquired_at, valid_until, Some(votes))
    }

    /// The lock is still held.
    ///
    /// With `minimum` its holder has ended, and `minHold` keeps the lock until that time.
    pub fn still_held(self, key: &str, minimum: Option<(&End, MilliTime)>) -> Self {
        let token = self.status.fencing_token.and_then(FencingToken::new);
        let is_held = is_true(&self.status.conditions, LockCondition::Held) && self.status.stopping.is_none();
        let (Some(holder), Some(token), true) = (&self.status.holder, token, is_held) else { return self };
        let message = match minimum {
            Some((end, until)) => HeldMessage::HeldForMinimum { why: end.to_string(), until },
            None => HeldMessage::Held { holder: holder.identity.clone(), key: key.to_owned(), token },
        };
        self.held(true, &message)
    }

    /// Publishes a renewal, by the earliest reading of the API server's clock.
    ///
    /// A validity that no round earned is not published.
    pub fn renewed(self, hold: &Hold, clock: ClockOffset, now: Boottime) -> Self {
        let Some(last_majority_at) = hold.last_majority_at else { return self };
        // A published validity was earned, perhaps by another replica, and no extension shortens a key. But no renewal earns more than one ttl.
        // A longer validity comes from a wrong clock, and this corrects it.
        let later = |published: Option<MilliTime>, here: UnixMillis, latest: i64| {
            let published = published.map(MilliTime::as_millis).filter(|published| *published <= latest);
            UnixMillis(published.map_or(here.0, |published| published.max(here.0)))
        };
        let latest = |at: Boottime| clock.latest(at).ceil().0;
        let renewed_at = later(self.status.renewed_at, clock.earliest(last_majority_at).floor(), latest(now));
        let valid_until = clock.earliest(hold.valid_until).floor();
        let valid_until = later(self.status.valid_until, valid_until, latest(now + hold.terms.ttl));
        self.validity(renewed_at, valid_until, hold.votes)
    }

    fn validity(mut self, renewed_at: UnixMillis, valid_until: UnixMillis, votes: Option<Votes>) -> Self {
        self.status.renewed_at = MilliTime::from_millis(renewed_at.0);
        self.status.valid_until = MilliTime::from_millis(valid_until.0);
        if let Some(votes) = votes {
            self.status.votes = Some(votes.to_string());
            self.status.votes_granted = i32::try_from(votes.yes).ok();
            self.status.member_count = i32::try_from(votes.of).ok();
        }
        self
    }

    /// Its Job is suspended, and the hold is renewed until the pods of the Job have ended.
    pub fn stopping(mut self, end: &End) -> Self {
        let (since, reason, why) = (MilliTime::from(self.now), end.reason().to_string(), end.to_string());
        self.status.stopping = Some(Stopping { since, reason, message: shortened(&why) });
        self.held(true, &HeldMessage::Stopping { why })
    }

    /// The hold is no longer renewed. It ends with its validity, or with its container if that is earlier.
    ///
    /// `until` is the end of the validity and of lockDelay, by the API server's clock.
    pub fn ending(mut self, end: &End, until: Option<MilliTime>) -> Self {
        let (since, why, is_lost) = (MilliTime::from(self.now), end.to_string(), end.reason() == HeldReason::Expired);
        self.status.ending = Some(Ending { since, reason: end.reason().to_string(), until, message: shortened(&why) });
        let message = match until {
            _ if is_lost => HeldMessage::Lost { why },
            Some(until) => HeldMessage::Ending { why, until },
            None => HeldMessage::RunOut { why },
        };
        self.held(!is_lost, &message)
    }

    /// No majority has confirmed the end, and no member can remember the hold.
    pub fn unconfirmed(self) -> Self {
        let quorum = self.status.holder.as_ref().and_then(|holder| holder.quorum.clone()).unwrap_or_default();
        self.held(false, &HeldMessage::Unconfirmed { quorum })
    }

    /// The hold ended at `at`, or with its validity if it ran out before.
    ///
    /// Both times have the clock of `acquiredAt`.
    pub fn ended(mut self, end: &End, at: UnixMillis) -> Self {
        let (reason, why) = (end.reason(), end.to_string());
        let at = MilliTime::from_millis(at.0).unwrap_or_else(|| MilliTime::from(self.now));
        let ran_out = self.status.ending.as_ref().map(|ending| self.status.valid_until.max(Some(ending.since)));
        let at = ran_out.flatten().map_or(at, |until| at.min(until));
        if let Some(holder) = self.status.holder.take() {
            // The wait for the next hold begins now, even if an unconfirmed end made the condition false long ago.
            self.forget_held(|held| held.status == Status::False.as_str());
            let past = PastHold {
                identity: holder.identity,
                fencing_token: self.status.fencing_token,
                from: self.status.acquired_at,
                to: self.status.acquired_at.map_or(at, |from| at.max(from)),
                reason: reason.to_string(),
                message: shortened(&why),
            };
            self.status.history.insert(0, past);
            self.status.history.truncate(HISTORY);
        }
        // All other fields describe the hold.
        let DistributedLockStatus { observed_generation, key, transitions, history, conditions, .. } = self.status;
        self.status =
            DistributedLockStatus { observed_generation, key, transitions, history, conditions, ..Default::default() };
        self.waiting(reason, why, None)
    }

    /// The claim never queues again, for the reason in the condition Held.
    pub fn finished(self) -> Self {
        let held = find_condition(&self.status.conditions, LockCondition::Held);
        match held.and_then(|held| Some((HeldReason::named(&held.reason)?, held.message.clone()))) {
            Some((reason, message)) => self.set(LockCondition::Finished, true, reason, message),
            None => self,
        }
    }
}

/// Whether the holder has lost the lock according to the status, and no majority has confirmed that.
pub fn is_unconfirmed(lock: &DistributedLock) -> bool {
    let held = lock.condition(LockCondition::Held).filter(|_| lock.holder().is_some());
    held.is_some_and(|held| held.status == "False" && held.reason == HeldReason::NoQuorum.as_str())
}

/// The text, limited to its maximum length.
fn shortened(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| beginning(text, LONGEST_MESSAGE).to_owned())
}

/// Time until a finished claim is deleted.
pub fn remaining_after_finish(lock: &DistributedLock, now: UnixMillis) -> Option<Duration> {
    let keep = lock.spec.ttl_after_finished?.get();
    Some(keep.saturating_sub(now.since(transition_time(lock.condition(LockCondition::Finished)?))))
}

/// `namespace/name` for messages.
pub fn full_name(lock: &DistributedLock) -> String {
    format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any())
}
