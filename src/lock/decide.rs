//! Pure: the one next step for a lock, from what is known about it.

use std::time::Duration;

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{
    candidate::Candidate,
    holds::{Hold, Loss},
    queue::Place,
    standing::Standing,
    status::{Draft, remaining_after_finish},
};
use crate::{
    api::{
        BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, DistributedLockStatus, LOCK_FINALIZER, RedisQuorum,
        STEP_DOWN_ANNOTATION, Validity,
        conditions::{AcceptedReason, HeldReason, LockCondition, is_true},
    },
    time::{Boottime, UnixMillis},
};

/// Renewals are published no more often than this.
const PUBLISH_INTERVAL: i64 = 1_000;
/// Annotations by which people ask for a hold to end. They are meant for the hold of the moment, not for a later one.
pub const REQUESTS: [&str; 3] = [STEP_DOWN_ANNOTATION, BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION];
/// A hold that the members do not answer for is offered to another replica when so much of its validity is left, or a third of
/// its TTL if that is less.
const SLIPPING: Duration = Duration::from_secs(1);
/// A seal that no majority confirmed is tried again this soon.
const SEAL_RETRY: Duration = Duration::from_millis(200);

/// Who would hold the lock if it were acquired now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A free-text identity.
    Identity(String),
    /// A container instance.
    Instance(Box<Candidate>),
}

/// Why the spec cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the condition Accepted.
    pub reason: AcceptedReason,
    /// What to write or wait for.
    pub message: String,
}

/// Why no attempt is made before `until`: the last one's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When the next attempt is due.
    pub until: Boottime,
    /// For the condition Held.
    pub reason: HeldReason,
    /// What was answered.
    pub message: String,
}

/// What is known about a lock that its status says is held.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What is to become of it.
    pub standing: Standing,
    /// What this replica knows of its validity.
    pub hold: Option<Hold>,
    /// Whether a majority confirmed its seal to this replica.
    pub sealed: bool,
}

/// Everything that a decision depends on.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The object, no older than this replica's own last write to it.
    pub lock: &'a DistributedLock,
    /// Present if its status names a holder.
    pub held: Option<Held>,
    /// Whether its spec can be served.
    pub refusal: Option<Refusal>,
    /// Who would hold it, or why nobody can.
    pub contender: Result<Contender, String>,
    /// Its place in the queue.
    pub place: Place,
    /// Set after an attempt without success.
    pub pause: Option<Pause>,
    /// When this replica came to lead.
    pub term_began: Boottime,
    /// For validities and pauses.
    pub now: Boottime,
    /// For published times.
    pub wall: UnixMillis,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Step {
    /// Make sure that the object cannot vanish while its key is held.
    AddFinalizer,
    /// Nothing is held any more: let the object go.
    RemoveFinalizer,
    /// A finished claim has been kept long enough.
    Delete,
    /// Try to acquire the key for this contender.
    Acquire(Contender),
    /// Take the leader label off, clear the status, then delete the key.
    Free(Freed),
    /// What a person asked for by annotation is done: take the annotations off.
    ClearRequests,
    /// The hold is lost: take the label off and clear the status; the key has run out or is somebody else's.
    Lose(String),
    /// Let another replica lead, which may reach the quorum and have renewed what this one could not.
    HandOver(ObjectRef<RedisQuorum>, String),
    /// Say in the status that the hold ends, stop renewing it and seal it.
    RunOut(HeldReason, String),
    /// Seal it (again), until a majority has confirmed it.
    Seal,
    /// Keep it: see to the leader label.
    Keep(Rest),
    /// Nothing to do but to have the status say so.
    Rest(Rest),
}

/// Why a hold ends, and what becomes of its seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    /// For the condition Held and the history.
    pub reason: HeldReason,
    /// For people.
    pub why: String,
    /// The seal stays and runs out: `lockDelay` binds everybody else, foreign clients too.
    pub leave_seal: bool,
}

/// The status to have, and when to look again without being told.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// What the status ought to say; written if it says something else.
    pub status: DistributedLockStatus,
    /// Look again after this time.
    pub wake: Option<Duration>,
}

/// Decides.
pub fn decide(view: &View<'_>) -> Step {
    match &view.held {
        Some(held) => decide_held(view, held),
        None => decide_free(view),
    }
}

fn decide_held(view: &View<'_>, held: &Held) -> Step {
    let ending = view.lock.status.as_ref().and_then(|status| status.ending.as_ref());
    match &held.standing {
        Standing::Free(reason, why) => Step::Free(Freed { reason: *reason, why: why.clone(), leave_seal: false }),
        Standing::RunsOut(reason, why) => match ending {
            None => Step::RunOut(*reason, why.clone()),
            Some(ending) => {
                let until = ending.until.map_or(view.wall.0, |until| until.as_millis());
                match u64::try_from(until.saturating_sub(view.wall.0)) {
                    Ok(left) if left > 0 && !held.sealed => Step::Seal,
                    Ok(left) if left > 0 => rest(Draft::of(view.lock, view.wall), Some(Duration::from_millis(left))),
                    _ => Step::Free(Freed {
                        reason: *reason,
                        why: format!("{why}; its validity has run out"),
                        leave_seal: view.lock.spec.lock_delay.is_some_and(|delay| !delay.get().is_zero()),
                    }),
                }
            }
        },
        Standing::Good => decide_good(view, held.hold.as_ref()),
    }
}

fn decide_good(view: &View<'_>, hold: Option<&Hold>) -> Step {
    match hold {
        None => Step::Lose(
            "the operator's new leader found no validity in the status that had not run out, so it cannot know that nobody \
             else held the key meanwhile"
                .into(),
        ),
        Some(Hold { loss: Some(Loss::Refused), trouble, .. }) => Step::Lose(format!(
            "a majority of the members no longer has the key: {}",
            trouble.clone().unwrap_or_default()
        )),
        Some(hold) if is_slipping(hold, view.now) && hold.won.is_some_and(|won| won >= view.term_began) => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "not renewed in time".into());
            Step::HandOver(hold.terms.quorum.clone(), trouble)
        }
        Some(hold) if !hold.is_valid(view.now) => {
            let trouble = hold.trouble.clone().unwrap_or_else(|| "it was not renewed in time".into());
            Step::Lose(format!("its validity ran out: {trouble}"))
        }
        Some(hold) => {
            let draft = Draft::of(view.lock, view.wall).accepted();
            let draft = if is_due_for_publication(view.lock, hold) { draft.renewed(hold) } else { draft };
            let wake = hold.valid_until.since(view.now).min(until_max_hold(view)).min(until_min_hold(view));
            Step::Keep(Rest { status: draft.finish(), wake: Some(wake) })
        }
    }
}

/// Every replica renews, so what one cannot renew for want of answers another perhaps can. Only what this leader has renewed in this
/// term is offered: whoever gets it and cannot renew it either declares it lost.
fn is_slipping(hold: &Hold, now: Boottime) -> bool {
    let left = hold.valid_until.since(now);
    let is_unanswered = hold.silence || hold.trouble.is_none();
    is_unanswered && !hold.is_valid(now) || hold.silence && left < SLIPPING.min(hold.terms.ttl / 3)
}

/// A change of votes or of the quorum's availability is published at once, a mere renewal at most once a second unless what is
/// published would run out meanwhile (with a TTL below 3 s), and with `validity: Transitions` only when somebody is about to
/// depend on it.
fn is_due_for_publication(lock: &DistributedLock, hold: &Hold) -> bool {
    let Some(status) = &lock.status else { return true };
    let published = status.renewed_at.map_or(i64::MIN, |time| time.as_millis());
    let available = is_true(&status.conditions, LockCondition::QuorumAvailable);
    let renewal_is_news = lock.spec.validity == Validity::Published;
    let interval = i64::try_from(hold.terms.renew_interval.as_millis()).unwrap_or(i64::MAX);
    let runs_out = status.valid_until.map_or(i64::MIN, |time| time.as_millis());
    let due = published.saturating_add(PUBLISH_INTERVAL).min(runs_out.saturating_sub(interval.saturating_mul(2)));
    hold.announce
        || renewal_is_news && hold.renewed_at.0 > published && hold.renewed_at.0 >= due
        || hold.votes.is_some_and(|votes| status.votes.as_deref() != Some(votes.to_string().as_str()))
        || available == hold.trouble.is_some()
}

fn until_max_hold(view: &View<'_>) -> Duration {
    let (Some(max_hold), Some(held)) = (view.lock.spec.max_hold, held_for(view)) else { return Duration::MAX };
    max_hold.get().saturating_sub(held)
}

/// Until what waits for the end of minHold may happen, if something can.
fn until_min_hold(view: &View<'_>) -> Duration {
    let (Some(min_hold), Some(held)) = (view.lock.spec.min_hold, held_for(view)) else { return Duration::MAX };
    min_hold.get().checked_sub(held).filter(|left| !left.is_zero()).unwrap_or(Duration::MAX)
}

fn held_for(view: &View<'_>) -> Option<Duration> {
    let acquired = view.lock.status.as_ref()?.acquired_at?;
    let held = view.wall.0.saturating_sub(acquired.as_millis());
    Some(Duration::from_millis(u64::try_from(held).unwrap_or(0)))
}

fn decide_free(view: &View<'_>) -> Step {
    let lock = view.lock;
    let has_finalizer = lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER);
    let draft = Draft::of(lock, view.wall);
    if lock.metadata.deletion_timestamp.is_some() {
        return if has_finalizer { Step::RemoveFinalizer } else { rest(draft, None) };
    }
    if REQUESTS.iter().any(|request| lock.annotations().contains_key(*request)) {
        return Step::ClearRequests;
    }
    if lock.status.as_ref().is_some_and(|status| is_true(&status.conditions, LockCondition::Finished)) {
        return match remaining_after_finish(lock, view.wall) {
            Some(Duration::ZERO) => Step::Delete,
            wake => rest(draft, wake),
        };
    }
    if let Some(refusal) = &view.refusal {
        return rest(draft.refused(refusal.reason, &refusal.message), None);
    }
    let draft = draft.accepted();
    if lock.spec.suspend {
        return rest(
            draft.waiting(HeldReason::Suspended, "spec.suspend is true: set it to false to queue again", None),
            None,
        );
    }
    let patience = patience(view);
    if patience == Some(Duration::ZERO) {
        let message = "spec.waitTimeout is over: a claim waits once, create another one to queue again";
        return rest(
            draft.waiting(HeldReason::WaitTimeout, message, None).finished(HeldReason::WaitTimeout, message),
            None,
        );
    }
    let contender = match &view.contender {
        Ok(contender) => contender,
        Err(why) => return rest(draft.waiting(HeldReason::NoCandidate, why, None), patience),
    };
    match &view.place {
        Place::Behind { holder, position } => {
            let message = format!("held by {holder}: waits until that is released or runs out, at position {position}");
            return rest(draft.waiting(HeldReason::Queued, &message, Some(*position)), patience);
        }
        Place::Waiting { position } => {
            let message = format!("waits for {} before it in the queue", position - 1);
            return rest(draft.waiting(HeldReason::Queued, &message, Some(*position)), patience);
        }
        Place::First => {}
    }
    if let Some(pause) = view.pause.as_ref().filter(|pause| pause.until > view.now) {
        let trouble = (pause.reason == HeldReason::NoQuorum).then_some(pause.message.as_str());
        let draft = draft.waiting(pause.reason, &pause.message, Some(1)).quorum_available(trouble);
        let wake = pause.until.since(view.now);
        return rest(draft, Some(patience.map_or(wake, |patience| wake.min(patience))));
    }
    if has_finalizer { Step::Acquire(contender.clone()) } else { Step::AddFinalizer }
}

/// How long the lock still waits for its turn, if its spec limits that.
fn patience(view: &View<'_>) -> Option<Duration> {
    let timeout = view.lock.spec.wait_timeout?.get();
    let created = view.lock.metadata.creation_timestamp.as_ref()?.0.as_millisecond();
    let waited = u64::try_from(view.wall.0.saturating_sub(created)).unwrap_or(0);
    Some(timeout.saturating_sub(Duration::from_millis(waited)))
}

fn rest(draft: Draft, wake: Option<Duration>) -> Step {
    Step::Rest(Rest { status: draft.finish(), wake })
}

/// How soon to try again what no majority confirmed.
pub const fn seal_retry() -> Duration {
    SEAL_RETRY
}

#[cfg(test)]
mod tests;
