//! Pure: the next step for a lock that has no holder.

use std::time::Duration;

use super::{LockInput, Step, WaitReason, accepted, has_finalizer, is_labelled, is_prepared, rest};
use crate::api::LockHolder;
use crate::api::conditions::{AcceptedReason, HeldReason, LockCondition, transition_time};
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::queue::Place;
use crate::lock::model::readiness::until_unready;
use crate::lock::model::status::{Draft, remaining_after_finish};
use crate::lock::model::verdict::is_deleting;
use crate::time::UnixMillis;

/// The addition to waitTimeout for a claim without a status.
///
/// Its wait is measured from its creation time, which has whole seconds and comes from the clock of any API server.
const CREATION_TOLERANCE: Duration = Duration::from_secs(10);

pub(super) fn decide(input: &LockInput<'_>) -> Step {
    let (lock, draft) = (input.lock, Draft::of(input.lock, input.api_now));
    if is_deleting(lock) {
        return if has_finalizer(lock) { Step::RemoveFinalizer } else { rest(draft, None) };
    }
    if !lock.is_finished() {
        return unfinished(input, draft);
    }
    match remaining_after_finish(lock, input.api_now) {
        Some(Duration::ZERO) => Step::Delete,
        wake => rest(draft, wake),
    }
}

/// The step for a lock that is not finished, before it enters the queue.
fn unfinished(input: &LockInput<'_>, draft: Draft) -> Step {
    let lock = input.lock;
    // Candidates write the Lease as soon as they start, so the operator sets the label first. It does not wait until a candidate is ready, the
    // suspension ends or the quorum starts.
    let owns_lease = input.refusal.as_ref().is_none_or(|refusal| refusal.reason() != AcceptedReason::LeaseNotServed);
    if !is_labelled(lock) && owns_lease && input.pause.is_none() {
        return Step::Prepare;
    }
    if lock.spec.suspend {
        // A suspended lock does not wait for its turn, so its waitTimeout does not pass.
        return rest(accepted(input).not_held(&HeldMessage::Suspended, None), None);
    }
    let wait_left = left_of_wait_timeout(input);
    if wait_left == Some(Duration::ZERO) {
        return rest(draft.not_held(&HeldMessage::WaitTimeout, None).finished(), None);
    }
    let draft = accepted(input);
    if let Some(refusal) = &input.refusal {
        return rest(draft.refused(refusal), wait_left);
    }
    match &input.contender {
        Ok(contender) => in_queue(input, draft, wait_left, contender),
        Err(WaitReason { message, retry_after }) => {
            let unready = until_unready(lock, input.api_now);
            rest(draft.not_held(message, None), [wait_left, *retry_after, unready].into_iter().flatten().min())
        }
    }
}

/// The step for a lock with a candidate: wait for its turn or for a pause, or acquire.
fn in_queue(input: &LockInput<'_>, draft: Draft, wait_left: Option<Duration>, contender: &LockHolder) -> Step {
    let is_prepared = is_prepared(input.lock);
    // The next lock in the queue is prepared before its turn, which saves a write at the hand-over.
    let is_next = matches!(input.place, Place::Queued { position: 1, .. });
    if is_next && !is_prepared && input.pause.is_none() {
        return Step::Prepare;
    }
    if let Place::Queued { position, message } = &input.place {
        return rest(draft.not_held(message, Some(*position)), wait_left);
    }
    if let Some(WaitReason { message, retry_after }) = &input.pause {
        return rest(draft.not_held(message, Some(1)), wait_left.into_iter().chain(*retry_after).min());
    }
    if is_prepared { Step::Acquire(contender.clone()) } else { Step::Prepare }
}

/// The rest of waitTimeout, if the spec sets it.
///
/// The wait begins with the first status. It begins again when a suspension ends, and for the claim of a Job after a loss. Each of these events
/// sets the transition time of the condition Held. A claim that no operator observed within the timeout has waited enough.
fn left_of_wait_timeout(input: &LockInput<'_>) -> Option<Duration> {
    let timeout = input.lock.spec.wait_timeout?.get();
    let created = UnixMillis(input.lock.metadata.creation_timestamp.as_ref()?.0.as_millisecond());
    let left_since = |begin| timeout.saturating_sub(input.api_now.since(begin));
    Some(match input.lock.condition(LockCondition::Held) {
        None if left_since(created.plus(CREATION_TOLERANCE)).is_zero() => Duration::ZERO,
        None => timeout,
        Some(held) if held.reason == HeldReason::Suspended.as_str() => timeout,
        Some(held) => left_since(transition_time(held).max(created)),
    })
}
