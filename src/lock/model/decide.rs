//! Pure: the next step for a lock, from its observed state.

mod free;
mod held;

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::end::Phase;
use super::held_message::HeldMessage;
use super::hold::{Hold, ObservedSince};
use super::hold_record::HoldRecord;
use super::queue::Place;
use super::refusal::Refusal;
use super::status::Draft;
use super::verdict::{Verdict, is_deleting};
use crate::api::{
    BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, DistributedLockStatus, LEASE_LABEL, LOCK_FINALIZER,
    LockHolder, RELEASE_ANNOTATION, RedisQuorum, STEP_DOWN_ANNOTATION,
};
use crate::time::{Boottime, ClockOffset, UnixMillis};

/// Annotations that request the end of a hold. They apply to the present hold only.
const REQUESTS: [&str; 4] = [STEP_DOWN_ANNOTATION, BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, RELEASE_ANNOTATION];

/// The reason why no attempt to acquire a lock is made now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// The message of the condition Held.
    pub message: HeldMessage,
    /// The time after which the next attempt is due. `None` waits for an event.
    pub retry_after: Option<Duration>,
}

impl From<HeldMessage> for WaitReason {
    fn from(message: HeldMessage) -> Self {
        Self { message, retry_after: None }
    }
}

/// The state of a hold that a status names.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldInput {
    /// The verdict on the hold.
    pub verdict: Verdict,
    /// The hold in the table of this replica.
    pub hold: Option<Hold>,
    /// Its quorum and key, if the status records them.
    pub record: Option<HoldRecord>,
    /// That quorum object still exists.
    pub quorum_exists: bool,
    /// This replica can delete the key now, because a majority of the members answers it.
    pub can_delete: bool,
    /// The present rejoin delay of that quorum. Without a record it is the longest of all quorums.
    pub rejoin_delay: Option<Duration>,
    /// The API server's clock, once an answer had a date. Published validities use this clock.
    pub clock: Option<ClockOffset>,
    /// When this replica first observed the hold, and its end.
    pub observed: ObservedSince,
    /// When the last sealed key expires, once a majority has confirmed the seal or that the key is gone.
    pub sealed_until: Option<Boottime>,
}

/// The input of a decision.
#[derive(Clone, Debug)]
pub struct LockInput<'a> {
    /// The object, no older than this replica's own last write to it.
    pub lock: &'a DistributedLock,
    /// The hold, if the status names a holder.
    pub held: Option<HoldInput>,
    /// The reason why its spec cannot be served, if there is one.
    pub refusal: Option<Refusal>,
    /// The next holder, without the record of its hold, or the reason why the lock has no candidate.
    pub contender: Result<LockHolder, WaitReason>,
    /// A fault despite which the operator serves the lock.
    ///
    /// Its Lease does not fit, or the API server refuses a write for it.
    pub trouble: Option<Refusal>,
    /// Its place in the queue.
    pub place: Place,
    /// The pause after a failed attempt.
    pub pause: Option<WaitReason>,
    /// Whether another replica that reaches the quorum can still take over.
    pub can_hand_over: bool,
    /// The clock of validities and pauses.
    pub now: Boottime,
    /// The API server's time, for times that it or a controller wrote.
    pub api_now: UnixMillis,
}

/// The next step for a lock.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Step {
    /// Add the finalizer, so that the object cannot vanish while its key is held, and remove requests.
    ///
    /// A request of an earlier hold must not end the next one. An election with a Lease also gets the label by which the policy on Leases
    /// finds it.
    Prepare,
    /// Remove the finalizer, because nothing is held.
    RemoveFinalizer,
    /// Delete a finished claim after its ttlAfterFinished.
    Delete,
    /// Attempt to acquire the key for this contender.
    Acquire(LockHolder),
    /// Hand leadership over, because another replica possibly reaches the quorum and has renewed the hold.
    HandOver(ObjectRef<RedisQuorum>, String),
    /// Advance the end of the hold to this phase.
    Advance(Phase),
    /// Seal the key, until a majority has confirmed it.
    Seal,
    /// Keep the hold, and correct its metadata, label, Lease and Job.
    Keep(Rest),
    /// Only publish the status.
    Rest(Rest),
}

/// The status to publish, and the time of the next reconcile without an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// The status, which is written if it differs.
    pub status: DistributedLockStatus,
    /// Time until the next reconcile.
    pub wake: Option<Duration>,
    /// When the published validity becomes too short for its readers, at the latest at its end. Set if the status publishes a renewal.
    pub publish_by: Option<Boottime>,
}

/// Returns the next step for a lock.
pub fn decide(input: &LockInput<'_>) -> Step {
    match &input.held {
        Some(held) => held::decide(input, held),
        None => free::decide(input),
    }
}

/// The draft of a status, with the condition Accepted of the lock.
fn accepted(input: &LockInput<'_>) -> Draft {
    let draft = Draft::of(input.lock, input.api_now);
    match &input.refusal {
        Some(refusal) => draft.not_accepted(refusal),
        None => draft.accepted(input.trouble.as_ref()),
    }
}

fn rest(draft: Draft, wake: Option<Duration>) -> Step {
    Step::Rest(Rest { status: draft.finish(), wake, publish_by: None })
}

/// Whether the policy on Leases finds the lock, if it has a Lease.
///
/// Without the label its holder would lose the Lease.
pub fn is_labelled(lock: &DistributedLock) -> bool {
    lock.lease().is_none() || lock.labels().get(LEASE_LABEL).is_some_and(|value| value == "true")
}

/// Whether a lock has the operator's finalizer.
pub fn has_finalizer(lock: &DistributedLock) -> bool {
    lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER)
}

/// Whether a lock has the metadata that a grant needs.
fn is_prepared(lock: &DistributedLock) -> bool {
    has_finalizer(lock) && is_labelled(lock) && requests(lock).is_empty()
}

/// The annotations that request the end of a hold. Before the next hold all of them are stale.
pub fn requests(lock: &DistributedLock) -> Vec<&'static str> {
    REQUESTS.into_iter().filter(|request| lock.annotations().contains_key(*request)).collect()
}

/// The metadata that the operator must remove from a held lock, or add to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// A release annotation with the token of another hold.
    pub stale: Option<&'static str>,
    /// The names of the missing finalizer, of the missing label and of the stale annotation, for messages.
    pub fields: String,
}

impl Correction {
    /// The correction that a held lock needs.
    pub fn of(lock: &DistributedLock) -> Option<Self> {
        let stale = held::stale_release(lock);
        // A user who replaces the object can drop its finalizers.
        let finalizer = (!has_finalizer(lock) && !is_deleting(lock)).then(|| format!("finalizer {LOCK_FINALIZER}"));
        let label = (!is_labelled(lock)).then(|| format!("label {LEASE_LABEL}"));
        let stale_name = stale.map(|name| format!("annotation {name}"));
        let fields: Vec<_> = finalizer.into_iter().chain(label).chain(stale_name).collect();
        (!fields.is_empty()).then(|| Self { stale, fields: fields.join(" and ") })
    }
}

#[cfg(test)]
mod tests;
