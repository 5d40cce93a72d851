//! Pure: the next step for a lock that has a holder.

use std::time::Duration;

use kube::ResourceExt;

use super::{HoldInput, LockInput, Rest, Step, accepted, has_finalizer, rest};
use crate::api::{DistributedLock, MilliTime, RELEASE_ANNOTATION, Validity};
use crate::lock::model::end::{End, Phase};
use crate::lock::model::hold::{HeldFor, Hold, left_of_max_hold, left_of_min_hold};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::status::{Draft, is_unconfirmed};
use crate::lock::model::verdict::{Verdict, is_deleting};
use crate::time::{Boottime, ClockOffset, UnixMillis};

/// The rest of a validity at which a hold is handed over if its members do not answer.
///
/// For a short ttl it is a third of the ttl.
const HAND_OVER_WHEN_LEFT: Duration = Duration::from_secs(1);

/// The pause before a hold is freed whose key this replica cannot delete.
const UNREACHED: Duration = Duration::from_millis(500);

pub(super) fn decide(input: &LockInput<'_>, held: &HoldInput) -> Step {
    match &held.verdict {
        // A replica without an API server would renew the key that stays. Another leader possibly reaches the members.
        Verdict::Release(_) if !held.can_delete && input.can_hand_over => {
            rest(Draft::of(input.lock, input.api_now), Some(UNREACHED))
        }
        Verdict::Release(end) => Step::Advance(Phase::Freed(end.clone())),
        Verdict::LetExpire(end) if input.lock.ending().is_some() => decide_ending(input, held, end),
        Verdict::LetExpire(end) => Step::Advance(Phase::Ending(end.clone())),
        Verdict::Stop(end) => Step::Advance(Phase::Stopping(end.clone())),
        Verdict::Keep | Verdict::Minimum(_) => decide_good(input, held),
    }
}

/// The step for a hold that runs out, which ends when a majority of the members confirms it.
///
/// If no majority answers, its holder has lost the lock when no member can remember the hold. The lock stays in this state, because no
/// majority would grant it to another holder.
fn decide_ending(input: &LockInput<'_>, held: &HoldInput, end: &End) -> Step {
    let waited = held.observed.ending.map_or(Duration::ZERO, |since| input.now.since(since));
    let left = longest_memory(input, held).saturating_sub(waited);
    match held.sealed_until {
        None if left.is_zero() => unconfirmed(input, held, end),
        None if held.quorum_exists => Step::Seal,
        None => rest(Draft::of(input.lock, input.api_now), Some(left)),
        Some(until) if until > input.now => rest(Draft::of(input.lock, input.api_now), Some(until.since(input.now))),
        // The operator does not delete the keys, because they expire, and a deletion would depend on this replica's clock. The expiry costs other
        // clients a hundredth of a ttl.
        Some(_past) => {
            let message = format!("{end}; its validity has run out");
            Step::Advance(Phase::RanOut(End::Recorded { reason: end.reason(), message }))
        }
    }
}

/// The step for a hold that no member can remember, and whose end no majority has confirmed.
fn unconfirmed(input: &LockInput<'_>, held: &HoldInput, end: &End) -> Step {
    match () {
        // Without the quorum or the nonce, no member can confirm the end.
        () if !held.quorum_exists || holder_nonce(input.lock).is_none() => Step::Advance(Phase::RanOut(end.clone())),
        () if !is_unconfirmed(input.lock) => Step::Advance(Phase::Unconfirmed(end.clone())),
        // The deletion of an object does not wait for members.
        () if is_deleting(input.lock) && has_finalizer(input.lock) => Step::RemoveFinalizer,
        () => Step::Seal,
    }
}

/// How long the members can remember a hold after its last renewal.
fn longest_memory(input: &LockInput<'_>, held: &HoldInput) -> Duration {
    // The status possibly has no record of the quorum. No operator grants for longer than the specification or some quorum allows.
    let spec = &input.lock.spec;
    let promised = || (spec.ttl.get() + spec.lock_delay.unwrap_or_default().get()) * 2;
    let longest = || promised().max(held.rejoin_delay.unwrap_or_default());
    held.record.as_ref().map_or_else(longest, |record| record.rejoin_delay)
}

fn decide_good(input: &LockInput<'_>, held: &HoldInput) -> Step {
    match held.hold.as_ref() {
        None => decide_without_session(input, held),
        // A majority confirmed that the key is gone. Only lockDelay still excludes other locks.
        Some(Hold { refused: true, trouble, .. }) => {
            let end = End::Refused { trouble: trouble.clone().unwrap_or_default() };
            let is_delayed = input.lock.spec.lock_delay.is_some_and(|delay| !delay.get().is_zero());
            Step::Advance(if is_delayed { Phase::Ending(end) } else { Phase::Freed(end) })
        }
        Some(hold) if should_hand_over(hold, input.now) && input.can_hand_over => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "not renewed in time".into());
            Step::HandOver(hold.terms.quorum.reference(), trouble)
        }
        Some(hold) if !hold.is_valid(input.now) => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "too late".into());
            Step::Advance(Phase::Ending(End::NotRenewed { trouble }))
        }
        Some(hold) => keep(input, held, hold),
    }
}

/// The step for a hold that this replica cannot renew yet, because it has no session with the quorum.
fn decide_without_session(input: &LockInput<'_>, held: &HoldInput) -> Step {
    let observed_for = input.now.since(held.observed.held);
    let left = longest_memory(input, held).saturating_sub(observed_for);
    let end = match held.quorum_exists {
        false => End::QuorumGone,
        true if left.is_zero() => End::NotRenewed { trouble: "the quorum is not known".into() },
        true => return rest(Draft::of(input.lock, input.api_now), Some(left.min(Duration::from_millis(500)))),
    };
    Step::Advance(Phase::Ending(end))
}

fn keep(input: &LockInput<'_>, held: &HoldInput, hold: &Hold) -> Step {
    // The hold of a refused lock continues. The condition has the reason why the operator would not grant the lock again.
    let mut draft = accepted(input);
    if let Some(record) = &held.record {
        draft = draft.recorded(record, held.rejoin_delay).still_held(record.key.as_str(), minimum(input.lock, held));
    }
    let publish_by = held.clock.and_then(|clock| publication(input, hold, clock));
    if let Some(clock) = held.clock.filter(|_| publish_by.is_some()) {
        draft = draft.renewed(hold, clock, input.now);
    }
    let held_for = HeldFor::of(input.lock, held.clock, input.now);
    // maxHold ends neither a hold that minHold protects, nor the hold of a Job that is being stopped.
    let has_maximum = !matches!(held.verdict, Verdict::Minimum(_)) && input.lock.stopping().is_none();
    let until_max_hold = left_of_max_hold(input.lock, held_for).filter(|_| has_maximum);
    let until_min_hold = left_of_min_hold(input.lock, held_for).filter(|left| !left.is_zero());
    let until_lost = Some(hold.valid_until.since(input.now));
    let wake = [until_lost, until_max_hold, until_min_hold].into_iter().flatten().min();
    Step::Keep(Rest { status: draft.finish(), wake, publish_by })
}

/// The end that `minHold` postpones, and its time.
fn minimum<'a>(lock: &DistributedLock, held: &'a HoldInput) -> Option<(&'a End, MilliTime)> {
    let Verdict::Minimum(end) = &held.verdict else { return None };
    let (acquired, min_hold) = (lock.status.as_ref()?.acquired_at?, lock.spec.min_hold?);
    Some((end, MilliTime::from_millis(UnixMillis::from(acquired).plus(min_hold.get()).0)?))
}

/// A release annotation with the token of an earlier hold. It must not end this one.
pub(super) fn stale_release(lock: &DistributedLock) -> Option<&'static str> {
    let token_text = lock.annotations().get(RELEASE_ANNOTATION)?;
    (token_text.trim().parse() != Ok(lock.fencing_token()?)).then_some(RELEASE_ANNOTATION)
}

/// Whether this replica fails to renew because members do not answer.
///
/// Another replica can possibly reach them.
fn should_hand_over(hold: &Hold, now: Boottime) -> bool {
    let left = hold.valid_until.since(now);
    // A hold that this replica never renewed can have expired long ago, so its expiry is no reason for a hand-over.
    let is_unanswered = hold.unanswered || hold.trouble.is_none() && hold.last_majority_at.is_some();
    is_unanswered && !hold.is_valid(now) || hold.unanswered && left < HAND_OVER_WHEN_LEFT.min(hold.terms.ttl / 3)
}

/// When the published validity becomes too short, if a renewal is due to be published.
///
/// It is due when half of the ttl is left of the published validity, or when less than a quarter would be left at the next renewal. Fewer
/// writes of this lock leave capacity for the writes of other locks.
///
/// Each renewal of an election with a Lease is due. With `validity: Transitions` no renewal is published. A validity that no round of this
/// replica earned is never published.
fn publication(input: &LockInput<'_>, hold: &Hold, clock: ClockOffset) -> Option<Boottime> {
    let runs_out = input.lock.valid_until().map_or(UnixMillis(i64::MIN), UnixMillis::from);
    let (ttl, next) = (hold.terms.ttl, hold.last_majority_at? + hold.terms.renew_interval);
    let left_at = |at: Boottime| runs_out.since(clock.latest(at).ceil());
    // No renewal earns that much, so the published time comes from a wrong clock.
    let is_ahead = left_at(input.now) > ttl;
    // Each reading of the clock differs a little. Such a difference is no renewal.
    let is_longer = clock.earliest(hold.valid_until.saturating_sub(ttl / 20)).floor() > runs_out;
    // The policy refuses a renewal of the Lease unless more than half of the ttl is left of the published validity.
    let has_lease = input.lock.lease().is_some();
    let spare = if has_lease { ttl / 2 } else { Duration::ZERO };
    // For a short ttl more than a quarter must be left, up to a half, because a write takes time.
    let enough = (ttl / 4).max(Duration::from_secs(1).min(ttl / 2));
    let is_due = has_lease || left_at(input.now) <= ttl / 2 || left_at(next) <= enough;
    let is_longer_and_due = input.lock.spec.validity == Validity::Published && is_longer && is_due;
    (is_ahead || is_longer_and_due).then(|| input.now + left_at(input.now).saturating_sub(spare))
}
