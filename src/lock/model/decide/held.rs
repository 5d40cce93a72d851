//! Pure: the next step for a lock that has a holder.

use std::time::Duration;

use kube::ResourceExt;

use super::{Freed, Held, Renewal, Rest, Sealing, Step, View, is_labelled, rest};
use crate::api::conditions::HeldReason;
use crate::api::{DistributedLock, LOCK_FINALIZER, RELEASE_ANNOTATION, Validity};
use crate::lock::model::end::End;
use crate::lock::model::hold::Hold;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::publications::Urgency;
use crate::lock::model::status::{Draft, is_unconfirmed};
use crate::lock::model::verdict::{Verdict, is_deleting};
use crate::time::{Boottime, UnixMillis};

/// With so much validity left, a hold whose members do not answer is offered to another replica.
/// Where a third of its ttl is less than this, that counts.
const SLIPPING: Duration = Duration::from_secs(1);

pub(super) fn decide(view: &View<'_>, held: &Held) -> Step {
    let ending = view.lock.status.as_ref().and_then(|status| status.ending.as_ref());
    match &held.verdict {
        Verdict::Release(reason, why) => Step::Free(Freed { reason: *reason, why: why.clone(), leave_seal: false }),
        Verdict::LetExpire(reason, why) => match ending {
            None => Step::RunOut(*reason, why.clone()),
            Some(_ends) => decide_ending(view, held, (*reason, why)),
        },
        Verdict::Stop(reason, why) => Step::StopJob(*reason, why.clone()),
        Verdict::Keep => decide_good(view, held),
    }
}

/// A hold that runs out has ended when a majority of the members says so.
///
/// If none answers, its holder has lost the lock when no member can remember the hold. The lock stays ending, since no majority would grant
/// it to another holder either.
fn decide_ending(view: &View<'_>, held: &Held, (reason, why): (HeldReason, &str)) -> Step {
    let waited = held.sighting.ending.map_or(Duration::ZERO, |since| view.now.since(since));
    let left = longest_memory(view, held).saturating_sub(waited);
    let until = match held.sealing {
        Sealing::Unconfirmed if left.is_zero() => return unconfirmed(view, held, (reason, why)),
        Sealing::Unconfirmed if held.quorum_exists => return Step::Seal,
        Sealing::Unconfirmed => return rest(Draft::of(view.lock, view.api_now), Some(left)),
        Sealing::RunsOut(until) => until.since(view.now),
        Sealing::Gone => Duration::ZERO,
    };
    if !until.is_zero() {
        return rest(Draft::of(view.lock, view.api_now), Some(until));
    }
    // The keys are left to run out, which costs others a hundredth of a ttl and needs no trust in this replica's clock.
    Step::Free(Freed { reason, why: format!("{why}; its validity has run out"), leave_seal: true })
}

/// A hold that no member can remember, and whose end no majority has confirmed.
fn unconfirmed(view: &View<'_>, held: &Held, (reason, why): (HeldReason, &str)) -> Step {
    let has_finalizer = view.lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER);
    match () {
        // No member can ever confirm it.
        () if !held.quorum_exists || holder_nonce(view.lock).is_none() => {
            Step::Free(Freed { reason, why: why.to_owned(), leave_seal: true })
        }
        () if !is_unconfirmed(view.lock) => Step::LeaveUnconfirmed(reason, why.to_owned()),
        // No object waits longer for members.
        () if is_deleting(view.lock) && has_finalizer => Step::RemoveFinalizer,
        () => Step::Seal,
    }
}

/// How long the members may remember a hold after its last renewal.
fn longest_memory(view: &View<'_>, held: &Held) -> Duration {
    // A person has removed the record. No operator grants for longer than the specification.
    let spec = &view.lock.spec;
    let promised = || (spec.ttl.get() + spec.lock_delay.unwrap_or_default().get()) * 2;
    held.record.as_ref().map_or_else(promised, |record| record.rejoin_delay)
}

fn decide_good(view: &View<'_>, held: &Held) -> Step {
    if let Some(stale) = stale_word(view.lock) {
        return Step::ClearRequests(vec![stale]);
    }
    match held.hold.as_ref() {
        None => decide_unknown(view, held),
        Some(Hold { refused: true, trouble, .. }) => {
            let trouble = trouble.clone().unwrap_or_default();
            lost(view.lock, End::Refused { trouble }.to_string())
        }
        Some(hold) if is_slipping(hold, view.now) && view.may_hand_over => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "not renewed in time".into());
            Step::HandOver(hold.terms.quorum.reference(), trouble)
        }
        Some(hold) if !hold.is_valid(view.now) => {
            run_out(&End::NotRenewed { trouble: hold.trouble.clone().unwrap_or_else(|| "too late".into()) })
        }
        Some(_valid) if !is_labelled(view.lock) => Step::Prepare,
        Some(hold) => keep(view, held, hold),
    }
}

fn run_out(end: &End) -> Step {
    Step::RunOut(end.reason(), end.to_string())
}

/// A refusal by a majority is the members' word that the key is gone. Only a delay still keeps others out.
fn lost(lock: &DistributedLock, why: String) -> Step {
    match lock.spec.lock_delay.filter(|delay| !delay.get().is_zero()) {
        Some(_) => Step::RunOut(HeldReason::Expired, why),
        None => Step::Lose(why),
    }
}

/// A hold that this replica cannot renew yet: it does not know the quorum.
fn decide_unknown(view: &View<'_>, held: &Held) -> Step {
    let seen_for = view.now.since(held.sighting.held);
    let left = longest_memory(view, held).saturating_sub(seen_for);
    if held.quorum_exists && !left.is_zero() {
        return rest(Draft::of(view.lock, view.api_now), Some(left.min(Duration::from_millis(500))));
    }
    run_out(&match held.quorum_exists {
        true => End::NotRenewed { trouble: "the quorum is not known".into() },
        false => End::QuorumGone,
    })
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
        Some(record) => draft.recorded(record, held.rejoin_delay),
        None => draft,
    };
    let renewal = held.quorum_now.and_then(|now| Some((now, publication(view.lock, hold, now)?)));
    let draft = match renewal {
        Some((now, _)) => draft.renewed(hold, now).published_after(gap(view.lock, now)),
        None => draft,
    };
    let wake = hold.valid_until.since(view.now).min(until_max_hold(view, held)).min(until_min_hold(view, held));
    Step::Keep(Rest { status: draft.finish(), wake: Some(wake), renewal: renewal.map(|(_, renewal)| renewal) })
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

/// A renewal is published when too little would be left
/// of what is published by the time of the next renewal: every write that is left out leaves room for that of another lock. With
/// `validity: Transitions` it is not published. What no round of this replica has earned is never published.
fn publication(lock: &DistributedLock, hold: &Hold, quorum_now: UnixMillis) -> Option<Renewal> {
    let urgent = Renewal { urgency: Urgency::Urgent, lateness: Duration::ZERO };
    let Some(status) = &lock.status else { return Some(urgent) };
    hold.won?;
    let published = status.renewed_at.map_or(i64::MIN, |time| time.as_millis());
    let renewal_is_news = lock.spec.validity == Validity::Published;
    // The policy bounds the Lease of an election by what is published.
    let until_next = match lock.lease() {
        Some(_lease) => hold.terms.ttl,
        None => hold.terms.renew_interval + left_for_publication(hold.terms.ttl),
    };
    let runs_out = status.valid_until.map_or(i64::MIN, |time| time.as_millis());
    let due = runs_out.saturating_sub(i64::try_from(until_next.as_millis()).unwrap_or(i64::MAX));
    let longest = i64::try_from(hold.terms.ttl.as_millis()).unwrap_or(i64::MAX);
    // No renewal earned that: a clock that was wrong has published it.
    let is_ahead = runs_out.saturating_sub(quorum_now.0) > longest;
    let is_due = is_ahead || renewal_is_news && hold.renewed_at.0 > published && hold.renewed_at.0 >= due;
    let quarter = i64::try_from((hold.terms.ttl / 4).as_millis()).unwrap_or(i64::MAX);
    let late = quorum_now.0.saturating_sub(runs_out.saturating_sub(quarter));
    let lateness = Duration::from_millis(u64::try_from(late).unwrap_or(0));
    let is_urgent = is_ahead || late > 0;
    is_due.then_some(match is_urgent {
        _ if !renewal_is_news => urgent,
        true => Renewal { lateness, ..urgent },
        false => Renewal { urgency: Urgency::Calm, lateness },
    })
}

/// For how long what the status publishes has run out, of a lock whose renewals are published.
fn gap(lock: &DistributedLock, quorum_now: UnixMillis) -> Duration {
    let published = lock.status.as_ref().filter(|_| lock.spec.validity == Validity::Published);
    let gap = published.and_then(|status| status.valid_until).map_or(0, |until| quorum_now.0 - until.as_millis());
    Duration::from_millis(u64::try_from(gap).unwrap_or(0))
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
fn until_max_hold(view: &View<'_>, held: &Held) -> Duration {
    if view.lock.status.as_ref().is_some_and(|status| status.stopping.is_some()) {
        return Duration::MAX;
    }
    let (Some(max_hold), Some(held)) = (view.lock.spec.max_hold, held_for(view, held)) else { return Duration::MAX };
    max_hold.get().saturating_sub(held)
}

/// Until what waits for the end of minHold may happen, if something can.
fn until_min_hold(view: &View<'_>, held: &Held) -> Duration {
    let (Some(min_hold), Some(held)) = (view.lock.spec.min_hold, held_for(view, held)) else { return Duration::MAX };
    min_hold.get().checked_sub(held).filter(|left| !left.is_zero()).unwrap_or(Duration::MAX)
}

/// By the quorum's clock, as `acquiredAt` is.
fn held_for(view: &View<'_>, held: &Held) -> Option<Duration> {
    let acquired = view.lock.status.as_ref()?.acquired_at?;
    let held = held.quorum_now?.0.saturating_sub(acquired.as_millis());
    Some(Duration::from_millis(u64::try_from(held).unwrap_or(0)))
}
