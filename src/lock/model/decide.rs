//! Pure: the one next step for a lock, from what is known about it.

mod free;
mod held;

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::candidate::Candidate;
use super::end::Phase;
use super::hold::{Hold, Sighting};
use super::queue::Place;
use super::record::HoldRecord;
use super::refusal::Refusal;
use super::said::Said;
use super::status::Draft;
use super::verdict::Verdict;
use crate::api::{
    BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, DistributedLockStatus, LEASE_LABEL, LockHolder,
    RELEASE_ANNOTATION, RedisQuorum, STEP_DOWN_ANNOTATION,
};
use crate::time::{Boottime, ClockOffset, UnixMillis};

/// Annotations by which people ask for a hold to end. They are meant for the hold of the moment, not for a later one.
pub const REQUESTS: [&str; 4] = [STEP_DOWN_ANNOTATION, BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, RELEASE_ANNOTATION];
/// A seal that no majority confirmed is tried again this soon.
const SEAL_RETRY: Duration = Duration::from_millis(200);

/// Who would hold the lock if it were acquired now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A free-text identity.
    Identity(String),
    /// A container instance.
    Instance(Box<Candidate>),
    /// A Job, which is started when the lock is held.
    Job {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

impl Contender {
    /// The name of the holder for people.
    pub fn identity(&self) -> &str {
        match self {
            Self::Identity(identity) => identity,
            Self::Instance(candidate) => &candidate.pod_name,
            Self::Job { name, .. } => name,
        }
    }

    /// The holder that a status names, without its record.
    pub fn holder(&self) -> LockHolder {
        let holder = LockHolder { identity: self.identity().to_owned(), ..LockHolder::default() };
        match self {
            Self::Identity(_) => holder,
            Self::Job { name, uid } => {
                LockHolder { job_name: Some(name.clone()), job_uid: Some(uid.clone()), ..holder }
            }
            Self::Instance(candidate) => LockHolder {
                pod_name: Some(candidate.pod_name.clone()),
                pod_uid: Some(candidate.pod_uid.clone()),
                container_id: Some(candidate.container_id.clone()),
                container_started_at: candidate.container_started_at.as_ref().map(|time| time.0.into()),
                node_name: candidate.node_name.clone(),
                ..holder
            },
        }
    }
}

/// Why no attempt to acquire a lock is made now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    /// For the condition Held.
    pub message: Said,
    /// The time after which the next attempt is due. `None`: something has to happen first.
    pub retry_after: Option<Duration>,
}

impl From<Said> for WaitReason {
    fn from(message: Said) -> Self {
        Self { message, retry_after: None }
    }
}

/// What the members say about the end of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// No majority has confirmed anything to this replica.
    Unconfirmed,
    /// A majority holds the seal, and the last of these keys is gone by then.
    RunsOut(Boottime),
    /// No majority has the value or its seal any more.
    Gone,
}

/// What is known about a lock that its status says is held.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What is to become of it.
    pub verdict: Verdict,
    /// What this replica knows of its validity.
    pub hold: Option<Hold>,
    /// Where it lives; `None` if that cannot be told.
    pub record: Option<HoldRecord>,
    /// That quorum object still exists.
    pub quorum_exists: bool,
    /// The rejoin delay of that quorum now. Of all quorums the longest if it is not known which one it is.
    pub rejoin_delay: Option<Duration>,
    /// The API server's clock, once an answer has carried a date. Only by it are validities published.
    pub clock: Option<ClockOffset>,
    /// When this replica first saw it, and its end.
    pub sighting: Sighting,
    /// What the members said about its end.
    pub sealing: Sealing,
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
    /// Who would hold it, or why there is no candidate.
    pub contender: Result<Contender, WaitReason>,
    /// Its Lease counts for too long.
    pub lease_misfit: Option<Refusal>,
    /// Its place in the queue.
    pub place: Place,
    /// Set after an attempt without success.
    pub pause: Option<WaitReason>,
    /// Whether another replica may still take over that reaches the quorum of the hold.
    pub may_hand_over: bool,
    /// For validities and pauses.
    pub now: Boottime,
    /// The API server's time, for what counts from a time that it or a controller wrote.
    pub api_now: UnixMillis,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Step {
    /// Make sure that the object cannot vanish while its key is held.
    ///
    /// An election with a Lease also gets the label by which the policy on Leases finds it.
    Prepare,
    /// Nothing is held any more: let the object go.
    RemoveFinalizer,
    /// A finished claim has been kept long enough.
    Delete,
    /// Try to acquire the key for this contender.
    Acquire(Contender),
    /// Take off annotations by which a person asked for something.
    /// It is done, or it cannot be meant any more.
    ClearRequests(Vec<&'static str>),
    /// Let another replica lead, which may reach the quorum and have renewed what this one could not.
    HandOver(ObjectRef<RedisQuorum>, String),
    /// Bring the end of the hold to this phase.
    Advance(Phase),
    /// Seal it (again), until a majority has confirmed it.
    Seal,
    /// Keep it: see to the leader label.
    Keep(Rest),
    /// Nothing to do but to have the status say so.
    Rest(Rest),
}

/// The status to have, and when to look again without being told.
#[derive(Clone, Debug, PartialEq)]
pub struct Rest {
    /// What the status ought to say; written if it says something else.
    pub status: DistributedLockStatus,
    /// Look again after this time.
    pub wake: Option<Duration>,
    /// Present if the status says of a hold that it has been renewed.
    pub renewal: Option<Renewal>,
}

/// A renewal that is due to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When the validity ends that the status publishes now.
    pub runs_out: Boottime,
    /// How long its readers have had less than a quarter of the ttl left.
    pub lateness: Duration,
}

/// Decides.
pub fn decide(view: &View<'_>) -> Step {
    match &view.held {
        Some(held) => held::decide(view, held),
        None => free::decide(view),
    }
}

fn rest(draft: Draft, wake: Option<Duration>) -> Step {
    Step::Rest(Rest { status: draft.finish(), wake, renewal: None })
}

/// Whether the policy on Leases finds the lock, if it has a Lease. A holder that the policy does not know of would lose its Lease.
fn is_labelled(lock: &DistributedLock) -> bool {
    lock.lease().is_none() || lock.labels().get(LEASE_LABEL).is_some_and(|value| value == "true")
}

/// How soon to try again what no majority confirmed.
pub const fn seal_retry() -> Duration {
    SEAL_RETRY
}

#[cfg(test)]
mod tests;
