//! Pure: the reason why the operator does not serve a lock, for the condition Accepted.

use crate::api::conditions::AcceptedReason;
use crate::api::{DistributedLock, GoDuration, MilliTime};
use crate::quorum::model::lookup::LookupError;

messages! {
    /// Messages of the condition Accepted.
    #[derive(displaydoc::Display)]
    pub enum Refusal: means -> AcceptedReason;

    /// This version of the operator cannot read the object: {error}. It does not grant the lock, and lets a hold run out.
    /// Change what the message names, or delete the object
    Unreadable { error: String } => AcceptedReason::Unreadable,
    /// {0}
    Lookup(LookupError) => AcceptedReason::QuorumNotFound,
    /// This version of the operator cannot read RedisQuorum {namespace}/{name}. The operator serves this lock when the
    /// quorum can be read. What to change there: kubectl -n {namespace} describe rq {name}
    UnreadableQuorum { namespace: String, name: String } => AcceptedReason::QuorumNotFound,
    /// ttl {ttl} is longer than maxTTL {max_ttl} of RedisQuorum {quorum}. Set a ttl of at most {max_ttl}
    Ttl { ttl: GoDuration, max_ttl: GoDuration, quorum: String } => AcceptedReason::TTLTooLong,
    /// ttl {ttl} and lockDelay {delay} together are longer than maxTTL {max_ttl} of RedisQuorum {quorum}. Set a shorter
    /// lockDelay or ttl
    LockDelay { ttl: GoDuration, delay: GoDuration, max_ttl: GoDuration, quorum: String } => AcceptedReason::TTLTooLong,
    /// ttl {ttl} is shorter than ten times nodeTimeout {node_timeout} of RedisQuorum {quorum}, so one slow member could
    /// cost the lock. Set a ttl of at least {shortest}
    ShortTtl { ttl: GoDuration, node_timeout: GoDuration, quorum: String, shortest: GoDuration } =>
        AcceptedReason::TTLTooShort,
    /// RedisQuorum {quorum} is starting. The operator serves this lock when a majority of its members can vote, at
    /// about {at}
    StartingUntil { quorum: String, at: MilliTime } => AcceptedReason::QuorumNotReady,
    /// RedisQuorum {quorum} is starting. The operator serves this lock when its members can vote, a little more than
    /// maxTTL {max_ttl} after they have started
    Starting { quorum: String, max_ttl: GoDuration } => AcceptedReason::QuorumNotReady,
    /// ttl and lockDelay together are {longest}, and RedisQuorum {quorum} still uses maxTTL {in_force}. The operator serves this lock when maxTTL {max_ttl} is in force, at most about {max_ttl} after the change
    LargerMaxTtl { longest: GoDuration, in_force: GoDuration, quorum: String, max_ttl: GoDuration } =>
        AcceptedReason::QuorumNotReady,
    /// DistributedLock {other} holds the key with slots: {slots}. The operator serves this lock when that hold has
    /// ended. To share the key now, create the lock again with slots: {slots}
    HeldWithOtherSlots { other: String, slots: i32 } => AcceptedReason::KeyShapeConflict,
    /// DistributedLock {other} is older and waits for the key with slots: {slots}. The operator serves this lock when
    /// that one is gone. To share the key now, create the lock again with slots: {slots}
    OlderWithOtherSlots { other: String, slots: i32 } => AcceptedReason::KeyShapeConflict,
    /// Election {other} uses the key, and a key has one election. The operator serves this lock when that one is gone or
    /// suspended. To elect a leader beside it, create the lock again with another key
    OtherElection { other: String } => AcceptedReason::KeyShapeConflict,
    /// This operator does not serve Jobs. Set the chart's value jobs.enabled, or take the lock with redlock run in the
    /// Job's pod
    NoJobs => AcceptedReason::JobsNotServed,
    /// No policy guards the Leases of namespace {namespace}, so the operator does not serve an election with a lease there. Set the
    /// chart's values leaseGate.enabled and leaseGate.leaveOutNamespaces, or create the lock again without election.lease
    NoLeaseGate { namespace: String } => AcceptedReason::LeaseNotServed,
    /// Lease {lease} is the one by which replicas of the operator elect their leader. Create the lock again with another
    /// election.lease.name
    OperatorsLease { lease: String } => AcceptedReason::LeaseNotServed,
    /// DistributedLock {other} has the same election.lease, and is older or held. The operator serves this lock when that one is gone.
    /// Or create this lock again with another election.lease.name
    OthersLease { other: String } => AcceptedReason::LeaseNotServed,
    /// Candidates write {duration} into Lease {lease}, which is more than half of ttl {ttl}, so the policy refuses a renewal that
    /// comes late. Set their flag --leader-elect-lease-duration to at most {half}, or set a ttl of at least {least}
    LeaseTooLong { lease: String, duration: GoDuration, half: GoDuration, ttl: GoDuration, least: GoDuration } =>
        AcceptedReason::LeaseTooLong,
    /// The API server does not let the operator set label {label} on pod {pod}, so no Service finds the leader by it: {cause}. The
    /// operator tries again every 5 seconds. Change the admission policy or webhook, or set election.leaderLabel to false
    LabelNotSet { label: String, pod: String, cause: String } => AcceptedReason::LabelRefused,
    /// The API server does not let the operator remove label {label} from pod {pod}: {cause}. Before that the pod's hold does not end,
    /// and no other pod gets the label. The operator tries again every few seconds. Change the admission policy or webhook
    LabelNotRemoved { label: String, pod: String, cause: String } => AcceptedReason::LabelRefused,
    /// The API server does not let the operator correct the {fields} of this lock: {cause}. The hold continues, and the operator tries
    /// again every 5 seconds. Change the admission policy or webhook
    MetadataNotWritten { fields: String, cause: String } => AcceptedReason::MetadataRefused,
    /// The API server does not let the operator write Lease {lease}: {cause}. Before that no other candidate leads. The operator tries
    /// again every few seconds. Change the admission policy, quota or webhook
    LeaseNotWritten { lease: String, cause: String } => AcceptedReason::LeaseRefused,
    /// The API server does not let the operator start Job {job}, which holds the lock: {cause}. The operator tries again every 5
    /// seconds. Correct what the API server names, or delete the claim
    JobNotStarted { job: String, cause: String } => AcceptedReason::JobNotStarted,
    /// The API server does not let the operator suspend Job {job}, whose hold ends: {cause}. The operator tries again every 5 seconds, and
    /// renews the hold for the grace period of the pods and one ttl at most. Suspend or delete the Job
    JobNotSuspended { job: String, cause: String } => AcceptedReason::JobNotSuspended,
    /// Namespace {namespace} has {limit} older DistributedLocks, as many as the operator serves there. It serves this
    /// one when one of them is gone. Delete finished claims (set ttlAfterFinished), or ask for a larger
    /// limits.locksPerNamespace
    TooManyLocks { namespace: String, limit: usize } => AcceptedReason::TooManyLocks,
}

impl Refusal {
    /// The refusal of an unreadable object.
    pub fn of_reading(lock: &DistributedLock) -> Option<Self> {
        lock.spec.unreadable.clone().map(|error| Self::Unreadable { error })
    }

    /// The reason of the condition Accepted.
    pub const fn reason(&self) -> AcceptedReason {
        if let Self::Lookup(error) = self { error.reason() } else { self.means() }
    }
}
