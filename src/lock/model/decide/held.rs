//! Pure: the next step for a lock that has a holder.

use std::time::Duration;

use kube::ResourceExt;

use super::{Held, Renewal, Rest, Sealing, Step, View, is_labelled, rest};
use crate::api::{DistributedLock, LOCK_FINALIZER, MilliTime, RELEASE_ANNOTATION, Validity};
use crate::lock::model::end::{End, Phase};
use crate::lock::model::held_for::HeldFor;
use crate::lock::model::hold::Hold;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::status::{Draft, is_unconfirmed};
use crate::lock::model::verdict::{Verdict, is_deleting};
use crate::time::{Boottime, ClockOffset, UnixMillis};

/// With so much validity left, a hold whose members do not answer is offered to another replica.
/// Where a third of its ttl is less than this, that counts.
const SLIPPING: Duration = Duration::from_secs(1);

pub(super) fn decide(view: &View<'_>, held: &Held) -> Step {
    let ending = view.lock.status.as_ref().and_then(|status| status.ending.as_ref());
    match &held.verdict {
        Verdict::Release(end) => Step::Advance(Phase::Freed(end.clone())),
        Verdict::LetExpire(end) => match ending {
            None => Step::Advance(Phase::Ending(end.clone())),
            Some(_ends) => decide_ending(view, held, end),
        },
        Verdict::Stop(end) => Step::Advance(Phase::Stopping(end.clone())),
        Verdict::Keep | Verdict::Minimum(_) => decide_good(view, held),
    }
}

/// A hold that runs out has ended when a majority of the members says so.
///
/// If none answers, its holder has lost the lock when no member can remember the hold. The lock stays ending, since no majority would grant
/// it to another holder either.
fn decide_ending(view: &View<'_>, held: &Held, end: &End) -> Step {
    let waited = held.sighting.ending.map_or(Duration::ZERO, |since| view.now.since(since));
    let left = longest_memory(view, held).saturating_sub(waited);
    let until = match held.sealing {
        Sealing::Unconfirmed if left.is_zero() => return unconfirmed(view, held, end),
        Sealing::Unconfirmed if held.quorum_exists => return Step::Seal,
        Sealing::Unconfirmed => return rest(Draft::of(view.lock, view.api_now), Some(left)),
        Sealing::RunsOut(until) => until.since(view.now),
        Sealing::Gone => Duration::ZERO,
    };
    if !until.is_zero() {
        return rest(Draft::of(view.lock, view.api_now), Some(until));
    }
    // The keys are left to run out, which costs others a hundredth of a ttl and needs no trust in this replica's clock.
    let message = format!("{end}; its validity has run out");
    Step::Advance(Phase::RanOut(End::Recorded { reason: end.reason(), message }))
}

/// A hold that no member can remember, and whose end no majority has confirmed.
fn unconfirmed(view: &View<'_>, held: &Held, end: &End) -> Step {
    let has_finalizer = view.lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER);
    match () {
        // No member can ever confirm it.
        () if !held.quorum_exists || holder_nonce(view.lock).is_none() => Step::Advance(Phase::RanOut(end.clone())),
        () if !is_unconfirmed(view.lock) => Step::Advance(Phase::Unconfirmed(end.clone())),
        // No object waits longer for members.
        () if is_deleting(view.lock) && has_finalizer => Step::RemoveFinalizer,
        () => Step::Seal,
    }
}

/// How long the members may remember a hold after its last renewal.
fn longest_memory(view: &View<'_>, held: &Held) -> Duration {
    // The status does not say where it is held. No operator grants for longer than the specification, or than some quorum allows.
    let spec = &view.lock.spec;
    let promised = || (spec.ttl.get() + spec.lock_delay.unwrap_or_default().get()) * 2;
    let longest = || promised().max(held.rejoin_delay.unwrap_or_default());
    held.record.as_ref().map_or_else(longest, |record| record.rejoin_delay)
}

fn decide_good(view: &View<'_>, held: &Held) -> Step {
    if let Some(stale) = stale_word(view.lock) {
        return Step::ClearRequests(vec![stale]);
    }
    match held.hold.as_ref() {
        None => decide_unknown(view, held),
        Some(Hold { refused: true, trouble, .. }) => {
            refused(view.lock, End::Refused { trouble: trouble.clone().unwrap_or_default() })
        }
        Some(hold) if is_slipping(hold, view.now) && view.may_hand_over => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "not renewed in time".into());
            Step::HandOver(hold.terms.quorum.reference(), trouble)
        }
        Some(hold) if !hold.is_valid(view.now) => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "too late".into());
            Step::Advance(Phase::Ending(End::NotRenewed { trouble }))
        }
        Some(_valid) if !is_labelled(view.lock) => Step::Prepare,
        Some(hold) => keep(view, held, hold),
    }
}

/// A refusal by a majority is the members' word that the key is gone. Only a delay still keeps others out.
fn refused(lock: &DistributedLock, end: End) -> Step {
    let is_delayed = lock.spec.lock_delay.is_some_and(|delay| !delay.get().is_zero());
    Step::Advance(if is_delayed { Phase::Ending(end) } else { Phase::Freed(end) })
}

/// A hold that this replica cannot renew yet: it does not know the quorum.
fn decide_unknown(view: &View<'_>, held: &Held) -> Step {
    let seen_for = view.now.since(held.sighting.held);
    let left = longest_memory(view, held).saturating_sub(seen_for);
    if held.quorum_exists && !left.is_zero() {
        return rest(Draft::of(view.lock, view.api_now), Some(left.min(Duration::from_millis(500))));
    }
    Step::Advance(Phase::Ending(match held.quorum_exists {
        true => End::NotRenewed { trouble: "the quorum is not known".into() },
        false => End::QuorumGone,
    }))
}

fn keep(view: &View<'_>, held: &Held, hold: &Hold) -> Step {
    let draft = Draft::of(view.lock, view.api_now);
    let draft = match (&view.refusal, &view.lease_misfit) {
        // It goes on; the condition says why it would not be granted again.
        (Some(refusal), _) => draft.not_accepted(refusal),
        (None, Some(misfit)) => draft.accepted_although(misfit),
        (None, None) => draft.accepted(),
    };
    let draft = match &held.record {
        Some(record) => {
            draft.recorded(record, held.rejoin_delay).still_held(record.key.as_str(), minimum(view.lock, held))
        }
        None => draft,
    };
    let renewal = held.clock.and_then(|clock| Some((clock, publication(view, hold, clock)?)));
    let draft = match renewal {
        Some((clock, _)) => draft.renewed(hold, clock, view.now),
        None => draft,
    };
    let held_for = HeldFor::of(view.lock, held.clock, view.now);
    let limits = until_max_hold(view.lock, held_for).min(until_min_hold(view.lock, held_for));
    let wake = Some(hold.valid_until.since(view.now).min(limits));
    Step::Keep(Rest { status: draft.finish(), wake, renewal: renewal.map(|(_, renewal)| renewal) })
}

/// The reason why only `minHold` keeps a hold, and the end of it.
fn minimum<'a>(lock: &DistributedLock, held: &'a Held) -> Option<(&'a End, MilliTime)> {
    let Verdict::Minimum(end) = &held.verdict else { return None };
    let (acquired, min_hold) = (lock.status.as_ref()?.acquired_at?, lock.spec.min_hold?);
    Some((end, MilliTime::from_millis(UnixMillis::from(acquired).plus(min_hold.get()).0)?))
}

/// The word of an earlier holder, which ends nothing any more.
fn stale_word(lock: &DistributedLock) -> Option<&'static str> {
    let word = lock.annotations().get(RELEASE_ANNOTATION)?;
    let token = lock.status.as_ref()?.fencing_token?;
    (word.trim().parse() != Ok(token)).then_some(RELEASE_ANNOTATION)
}

/// Every replica renews, so what one cannot renew for want of answers another perhaps can.
fn is_slipping(hold: &Hold, now: Boottime) -> bool {
    let left = hold.valid_until.since(now);
    // One that it never renewed, and was not refused for, may have run out while no replica renewed.
    let is_unanswered = hold.silence || hold.trouble.is_none() && hold.won.is_some();
    is_unanswered && !hold.is_valid(now) || hold.silence && left < SLIPPING.min(hold.terms.ttl / 3)
}

/// A renewal is published when half of the ttl is left of what is published.
///
/// It is also published when less than a quarter would be left at the next one.
/// Every write that is left out leaves room for that of another lock. With `validity: Transitions` it is not published. What no round of
/// this replica has earned is never published.
fn publication(view: &View<'_>, hold: &Hold, clock: ClockOffset) -> Option<Renewal> {
    let published = view.lock.status.as_ref().and_then(|status| status.valid_until);
    let runs_out = published.map_or(UnixMillis(i64::MIN), UnixMillis::from);
    let (ttl, next) = (hold.terms.ttl, hold.won? + hold.terms.renew_interval);
    let left_at = |at: Boottime| runs_out.since(clock.latest(at).ceil());
    // No renewal earned that: a clock that was wrong has published it.
    let is_ahead = left_at(view.now) > ttl;
    // The clock is read a little better or worse each time. That is no renewal.
    let is_longer = clock.earliest(hold.valid_until.saturating_sub(ttl / 20)).floor() > runs_out;
    // The policy bounds the Lease of an election by what is published.
    let is_due =
        view.lock.lease().is_some() || left_at(view.now) <= ttl / 2 || left_at(next) <= left_for_publication(ttl);
    let is_news = view.lock.spec.validity == Validity::Published && is_longer && is_due;
    (is_ahead || is_news).then(|| Renewal {
        runs_out: view.now + left_at(view.now),
        lateness: clock.earliest(view.now).floor().plus(ttl / 4).since(runs_out),
    })
}

/// How much of what is published must be left for the next write.
///
/// It is a quarter of the ttl. Of a short ttl it is more, since a write takes its time.
fn left_for_publication(ttl: Duration) -> Duration {
    (ttl / 4).max(Duration::from_secs(1).min(ttl / 2))
}

/// Until maxHold ends the hold.
///
/// A Job that is being stopped has been asked to end already. Its hold goes on until its pods have ended.
fn until_max_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Duration {
    if lock.status.as_ref().is_some_and(|status| status.stopping.is_some()) {
        return Duration::MAX;
    }
    let (Some(max_hold), Some(held)) = (lock.spec.max_hold, held_for) else { return Duration::MAX };
    max_hold.get().saturating_sub(held.most)
}

/// Until what waits for the end of minHold may happen, if something can.
fn until_min_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Duration {
    let (Some(min_hold), Some(held)) = (lock.spec.min_hold, held_for) else { return Duration::MAX };
    min_hold.get().checked_sub(held.least).filter(|left| !left.is_zero()).unwrap_or(Duration::MAX)
}
