//! Pure: the messages of the condition Held, about the holder or about what the lock waits for.

use crate::api::conditions::HeldReason;
use crate::api::{GoDuration, HeldQuorum, MilliTime};
use crate::redlock::FencingToken;

messages! {
    /// Messages of the condition Held.
    #[derive(displaydoc::Display)]
    pub enum HeldMessage: reason -> HeldReason;

    /// "{holder}" holds key {key} with fencing token {token}
    Held { holder: String, key: String, token: FencingToken } => HeldReason::Held,
    /// {why}. minHold keeps the lock until {until}, and the operator frees it then. To free it now: redlock break --force
    HeldForMinimum { why: String, until: MilliTime } => HeldReason::Held,
    /// {why}. The operator suspends the Job, and renews the hold until the pods of the Job have ended, for their grace
    /// period and one ttl at most
    Stopping { why: String } => HeldReason::Ending,
    /// {why}. The operator no longer renews the hold. The next holder can get the lock at {until}, or when the container
    /// of this holder terminates if that is earlier
    Ending { why: String, until: MilliTime } => HeldReason::Ending,
    /// {why}. The validity of the hold has run out. The lock is granted again when a majority of the members confirms
    /// that
    RunOut { why: String } => HeldReason::Ending,
    /// {why}. The holder has lost the lock. It is granted again when a majority of the members no longer has its
    /// key
    Lost { why: String } => HeldReason::Expired,
    /// spec.suspend is true. Set it to false, and the lock queues again
    Suspended => HeldReason::Suspended,
    /// The claim has waited for spec.waitTimeout and did not get the lock. It never queues again: create another claim
    WaitTimeout => HeldReason::WaitTimeout,
    /// The holder has lost the lock, and no majority of RedisQuorum {quorum} has confirmed the end of its hold. The
    /// operator grants the lock when a majority answers again, or when that quorum is deleted
    Unconfirmed { quorum: HeldQuorum } => HeldReason::NoQuorum,
    /// A lock client outside this operator, or another quorum, holds key {key}{left}: {occupants}. The operator tries again
    /// automatically until the key is free
    Foreign { key: String, left: String, occupants: String } => HeldReason::HeldByOther,
    /// A lock client outside this operator has set key {key}, which never expires: {occupants}. The operator grants the lock when the key
    /// is deleted. If that client has ended, delete the key on each of these members: redis-cli -u $URL DEL {key}. Each $URL is a line of
    /// urls in the Secret of a client with this prefix
    ForeignLasting { key: String, occupants: String } => HeldReason::HeldByOther,
    /// {holder} did not release the lock. It is granted again when that hold and its lockDelay have run out. This lock
    /// is at position {position} of the queue
    DelayedBehind { holder: String, position: usize } => HeldReason::LockDelay,
    /// The last holder did not release the lock, and its key runs out{left}. The operator grants the lock then
    SealRunsOut { left: String } => HeldReason::LockDelay,
    /// {holder} holds the key. This lock is at position {position} of the queue, and gets its turn automatically
    Behind { holder: String, position: usize } => HeldReason::Queued,
    /// This lock is at position {position} of the queue, and gets its turn automatically
    Waiting { position: usize } => HeldReason::Queued,
    /// Ten or more locks are before this one in the queue. It gets its turn automatically
    FarBack => HeldReason::Queued,
    /// {why}. The operator grants the lock when a pod or Job can hold it
    NoCandidate { why: String } => HeldReason::NoCandidate,
    /// {why}. The operator grants the lock when a pod can lead
    NoLeader { why: String } => HeldReason::NoCandidate,
    /// Each of the last {holds} holds ended because its holder failed its check. The last one: {why}. The operator waits longer before each
    /// new election of such a pod. The lock is ready when a holder stays healthy for one ttl longer than in these holds
    Unhealthy { holds: usize, why: String } => HeldReason::HolderUnhealthy,
    /// The claim's heartbeat has stopped: Lease {lease} is missing, or has not changed for one ttl ({ttl}). The operator grants
    /// the lock when that Lease changes. If the program of this claim has ended, delete the claim
    HeartbeatStopped { lease: String, ttl: GoDuration } => HeldReason::NoCandidate,
    /// The operator has no connection to RedisQuorum {quorum} yet. It tries again twice a second
    NoConnection { quorum: HeldQuorum } => HeldReason::NoQuorum,
    /// The operator has no answer of the API server with its time yet. It tries again twice a second
    NoClock => HeldReason::NoQuorum,
    /// No majority of the members of RedisQuorum {namespace}/{name} voted for the lock: {failures}. The operator tries again at
    /// least once a second. What is wrong: kubectl -n {namespace} describe rq {name}
    NoMajority { namespace: String, name: String, failures: String } => HeldReason::NoQuorum,
    /// The members of RedisQuorum {quorum} answered so slowly that nothing of ttl {ttl} was left. The operator tries
    /// again at least once a second. See the metric redlock_member_latency_seconds, or set a longer ttl
    TooSlow { quorum: HeldQuorum, ttl: GoDuration } => HeldReason::NoQuorum,
    /// ttl and lockDelay are {longest} together, and maxTTL {in_force} of RedisQuorum {quorum} is in force. The
    /// operator tries again twice a second until a larger maxTTL is in force
    ExceedsMaxTtl { longest: GoDuration, in_force: GoDuration, quorum: HeldQuorum } => HeldReason::Pending,
    /// The operator panicked while it handled this lock, which is a fault of the operator. It tries again automatically, after 5
    /// seconds. Report it with the operator's log
    Fault => HeldReason::Pending,
    /// The operator withdrew a grant at {at}, because its leader changed. It tries again immediately
    Withdrawn { at: String } => HeldReason::Pending,
    /// The API server did not accept the operator's write, so the lock was not acquired: {failure}. The operator tries
    /// again automatically. If an admission webhook or policy refuses the write, change that
    NotWritten { failure: String } => HeldReason::Pending,
}
