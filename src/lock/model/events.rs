//! Pure: the Events of a lock.

use kube::runtime::events::EventType;

use super::end::Phase;
use crate::api::conditions::HeldReason;
use crate::redlock::FencingToken;

messages! {
    /// Events of a DistributedLock.
    #[derive(displaydoc::Display)]
    pub enum LockEvent: means -> (&'static str, EventType);

    /// "{holder}" holds key {key} with fencing token {token}
    ///
    /// When: An election got a leader. Claims have no such Event.
    ///
    /// To do: nothing.
    Acquired { holder: String, key: String, token: FencingToken } => ("LockAcquired", EventType::Normal),
    /// The election has had no leader for three ttl. {why}
    ///
    /// When: For three ttl no pod could lead. The Event comes once, until there is a leader again.
    ///
    /// To do: follow the message.
    NoLeader { why: String } => ("NoCandidate", EventType::Warning),
    /// The claim has had no pod or Job that can hold the lock for three ttl. {why}
    ///
    /// When: For three ttl the holder that the claim names could not hold the lock. The Event comes once, until there is a holder.
    ///
    /// To do: follow the message, or delete the claim.
    NoHolder { why: String } => ("NoCandidate", EventType::Warning),
    /// The lock has waited for three ttl. {why}
    ///
    /// When: For three ttl another client had the key without a time to live. The Event comes once, until there is a holder.
    ///
    /// To do: follow the message.
    KeyNeverExpires { why: String } => ("KeyNeverExpires", EventType::Warning),
    /// {why}. The lock is free
    ///
    /// When: A hold of an election ended, for the reason in the message. Claims have no such Event.
    ///
    /// To do: nothing.
    Released { why: String } => ("LockReleased", EventType::Normal),
    /// {why}. The lock is free
    ///
    /// When: A user broke a hold, or the operator cannot handle the lock, and that hold has ended.
    ///
    /// To do: make sure that the former holder has stopped.
    Broken { why: String } => ("LockReleased", EventType::Warning),
    /// {why}. The holder has lost the lock, and no majority of the members has confirmed the end of its hold
    ///
    /// When: A hold ended, and no majority of the members answered before the hold had expired on all of them.
    ///
    /// To do: look at the RedisQuorum. The operator grants the lock again when a majority answers.
    Unconfirmed { why: String } => ("LockEndUnconfirmed", EventType::Warning),
    /// {why}. The operator no longer renews the hold, which runs out within one ttl
    ///
    /// When: The operator stopped renewing the hold of an election: the leader stepped down, is gone or is unhealthy. Claims have no such Event.
    ///
    /// To do: wait.
    Ending { why: String } => ("LockEnding", EventType::Normal),
    /// {why}. The operator no longer renews the hold, which runs out within one ttl
    ///
    /// When: A user broke the lock, or the operator cannot handle it.
    ///
    /// To do: follow the message.
    Breaking { why: String } => ("LockEnding", EventType::Warning),
    /// {why}. The holder has lost the lock
    ///
    /// When: The validity of a hold ran out while its holder worked, or a majority no longer has the key.
    ///
    /// To do: stop what the holder still does, unless a resource checks its token. Look at the members that the message
    /// names.
    Lost { why: String } => ("LockLost", EventType::Warning),
    /// The operator removed the annotation redlock-operator.io/release and released nothing: its value is not the token of
    /// this hold. The holder releases the lock with the value {token}
    ///
    /// When: The annotation for a release had the token of another hold.
    ///
    /// To do: release with the token that the message names, if the present holder has ended its work.
    ReleaseRefused { token: i64 } => ("ReleaseRefused", EventType::Warning),
    /// The API server did not let the operator suspend Job {job}, which continues without the lock: {cause}. Suspend or delete the Job
    ///
    /// When: The hold of a Job ends, and a policy or the API server refuses to suspend the Job.
    ///
    /// To do: follow the message.
    JobNotSuspended { job: String, cause: String } => ("JobNotSuspended", EventType::Warning),
    /// {message}
    ///
    /// When: The operator cannot serve the lock, or the API server refuses a write for it, for the first time for this reason.
    ///
    /// To do: see the same reason on the page of conditions.
    Refused { accepted: String, message: String } => ("Accepted", EventType::Warning),
}

impl LockEvent {
    /// The Event of a phase of the end of a hold.
    pub fn of_end(phase: &Phase) -> Option<Self> {
        let why = phase.end().to_string();
        Some(match (phase, phase.end().reason()) {
            (Phase::Stopping(_), _) => return None,
            (Phase::Unconfirmed(_), _) => Self::Unconfirmed { why },
            (Phase::Ending(_) | Phase::Freed(_), HeldReason::Expired) => Self::Lost { why },
            (Phase::Ending(_), HeldReason::Broken) => Self::Breaking { why },
            (Phase::Ending(_), _) => Self::Ending { why },
            (Phase::Freed(_) | Phase::RanOut(_), HeldReason::Broken) => Self::Broken { why },
            (Phase::Freed(_) | Phase::RanOut(_), _) => Self::Released { why },
        })
    }

    /// The reason of the Event.
    pub fn reason(&self) -> &str {
        if let Self::Refused { accepted, .. } = self { accepted } else { self.means().0 }
    }

    /// The type of the Event.
    pub const fn kind(&self) -> EventType {
        self.means().1
    }
}

#[cfg(test)]
mod tests {
    /// Warnings of a lock with the same reason are counted on the first of them.
    ///
    /// The messages of the others are lost.
    #[test]
    fn warnings_of_a_lock_have_different_reasons() {
        let warnings = include_str!("events.rs").lines().filter(|line| line.ends_with(", EventType::Warning),"));
        let mut reasons: Vec<_> = warnings.filter_map(|line| line.split('"').nth(1)).collect();
        reasons.sort_unstable();
        let repeated: Vec<_> = reasons.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert_eq!(repeated, ["NoCandidate"], "a lock is either an election or a claim");
    }
}
