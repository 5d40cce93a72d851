//! Pure: the reason for the end of a hold, and the phases of the end.
//!
//! The condition Held, the history and Events have this reason.

use crate::api::GoDuration;
use crate::api::conditions::HeldReason;

messages! {
    /// The reason for the end of a hold.
    #[derive(displaydoc::Display)]
    pub enum End: means -> HeldReason;

    /// Broken by force, exclusion was given up: {reason}
    BrokenByForce { reason: String } => HeldReason::Broken,
    /// Broken: {reason}
    Broken { reason: String } => HeldReason::Broken,
    /// The annotation step-down asked the holder to pass the lock on: {reason}
    SteppedDown { reason: String } => HeldReason::SteppedDown,
    /// Node {node} of the holder was cordoned
    Cordoned { node: String } => HeldReason::SteppedDown,
    /// The holder released the lock
    Released => HeldReason::Released,
    /// This version of the operator cannot read the object: {error}. It does not grant the lock, and lets a hold run out.
    /// Change what the message names, or delete the object
    Unreadable { error: String } => HeldReason::Unreadable,
    /// The claim was deleted
    Deleted => HeldReason::Released,
    /// The lock was deleted while its holder works
    DeletedWhileHeld => HeldReason::Released,
    /// The claim was deleted, and its owner possibly still works: {doubt}
    DeletedWithOwner { doubt: Doubt } => HeldReason::Released,
    /// The claim was deleted, and its owner {kind} {name} can have processes that the operator does not know
    UnknownOwner { kind: String, name: String } => HeldReason::Released,
    /// The namespace of the lock is being deleted
    NamespaceEnds => HeldReason::Released,
    /// spec.suspend was set
    Suspended => HeldReason::Suspended,
    /// spec.maxHold has passed
    MaxHold => HeldReason::MaxHoldReached,
    /// The holder's container has terminated
    Terminated => HeldReason::HolderGone,
    /// The holder is possibly gone: {doubt}
    InDoubt { doubt: Doubt } => HeldReason::HolderGone,
    /// The Job has finished, and its pods have ended
    JobFinished => HeldReason::Released,
    /// The Job has finished, and it can have pods that the operator did not observe
    JobFinishedUnobserved => HeldReason::Released,
    /// The Job does not exist any more, and it can have pods that the operator did not observe
    JobGone => HeldReason::HolderGone,
    /// Another client has suspended the Job. The operator leaves the Job alone until you delete this claim
    JobSuspended => HeldReason::Released,
    /// The operator has suspended the Job, and ended before it could publish the reason
    JobHalted => HeldReason::HolderGone,
    /// {why}; the Job has no running pod, and starts none
    JobStopped { reason: HeldReason, why: String } => HeldReason::Ending,
    /// {why}; pods of the Job were not observed to end within their grace period and one ttl
    JobOverdue { reason: HeldReason, why: String } => HeldReason::Ending,
    /// The holder failed its check in spec.liveness {failures} times in a row: {why}
    CheckFailed { failures: i32, why: String } => HeldReason::HolderUnhealthy,
    /// The holder's heartbeat has been silent for {silent}: it did not renew the Lease with the name of the claim
    HeartbeatSilent { silent: GoDuration } => HeldReason::HolderUnhealthy,
    /// The holder's container runs, and its program did not renew Lease {lease} for {silent}. Another candidate is ready
    LeaseIdle { lease: String, silent: GoDuration } => HeldReason::HolderUnhealthy,
    /// The hold was not renewed before its validity ran out: {trouble}
    NotRenewed { trouble: String } => HeldReason::Expired,
    /// The published validity ran out before the operator could write another one, so the Lease has no leader
    Unpublished => HeldReason::Expired,
    /// A majority of the members no longer has the key: {trouble}
    Refused { trouble: String } => HeldReason::Expired,
    /// The RedisQuorum of the hold no longer exists
    QuorumGone => HeldReason::Expired,
    /// {message}
    Recorded { reason: HeldReason, message: String } => HeldReason::Ending,
}

impl End {
    /// An end that a status records.
    pub fn recorded(reason: &str, message: Option<&String>) -> Self {
        let reason = HeldReason::named(reason).unwrap_or(HeldReason::Ending);
        Self::Recorded { reason, message: message.cloned().unwrap_or_default() }
    }

    /// The reason in the condition Held and in the history.
    pub const fn reason(&self) -> HeldReason {
        match self {
            // A Job was stopped for this reason, or a status records it.
            Self::JobStopped { reason, .. } | Self::JobOverdue { reason, .. } | Self::Recorded { reason, .. } => {
                *reason
            }
            _ => self.means(),
        }
    }
}

/// A step of the end of a hold. Each step is one write of the lock's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The Job that holds the lock is suspended. The hold is still renewed.
    Stopping(End),
    /// The hold is no longer renewed. It is sealed, and runs out.
    Ending(End),
    /// The holder has lost the lock, and no majority has confirmed that.
    ///
    /// Every vote of the members has expired, so no member can remember the hold.
    Unconfirmed(End),
    /// No status names the hold, and its key is deleted.
    Freed(End),
    /// No status names the hold, and its seal runs out.
    ///
    /// `lockDelay` applies to all other clients, including clients outside the operator.
    RanOut(End),
}

impl Phase {
    /// The reason for the end.
    pub const fn end(&self) -> &End {
        let (Self::Stopping(end) | Self::Ending(end) | Self::Unconfirmed(end) | Self::Freed(end) | Self::RanOut(end)) =
            self;
        end
    }
}

/// The reason why it is unknown whether a container runs.
///
/// The variants are in the order of their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, displaydoc::Display)]
pub enum Doubt {
    /// its node does not report to the API server
    NodeSilent,
    /// its pod has ended, and the kubelet did not report the end of each container
    Unreported,
    /// its pod vanished before the kubelet reported the end of its container
    Vanished,
    /// its pod's deletion deadline passed a minute ago, and no kubelet has reported its end
    Overdue,
    /// its pod's status no longer shows its container
    NoContainer,
    /// its container has terminated, and the next container of its pod possibly takes the lock for its own
    NextContainer,
    /// no pod of the owner was observed to end
    NoPods,
    /// the pods of its Job that are known have ended, and there can be others
    OtherPods,
}
