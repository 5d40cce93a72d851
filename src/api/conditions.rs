//! Conditions: their types, their reasons, and the one way to set them.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Defines an enum whose variants are written as their names.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name as it appears in the status.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }
        }

        impl From<$name> for &'static str {
            fn from(name: $name) -> Self {
                name.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

names! {
    /// Condition types of a DistributedLock.
    LockCondition {
        /// The specification can be carried out, and the lock is held, or waits for nothing but its turn or its holder. For programs that
        /// know no lock: Helm, Argo CD, Flux.
        Ready,
        /// The specification can be carried out with the objects that exist.
        Accepted,
        /// The lock has a holder; the reason says how things stand.
        Held,
        /// Every member holds the key, not only a majority.
        FullyReplicated,
        /// A majority of members may vote.
        QuorumAvailable,
        /// The claim has ended and will not queue again.
        Finished,
        /// What the status published ran out before it was written again. Absent while that has not happened for ten minutes.
        PublicationDelayed,
    }
}

names! {
    /// Condition types of a RedisQuorum.
    QuorumCondition {
        /// All members are admitted and all settings in force.
        Ready,
        /// A majority of members is admitted: locks can be granted.
        QuorumAvailable,
        /// One member can be lost without losing the majority.
        FaultTolerant,
        /// A member is starting, waiting behind its fence, or being replaced.
        Progressing,
        /// The members' clocks run within the allowed drift.
        ClockHealthy,
        /// No other operator uses these members with another member list or a larger maxTTL.
        QuorumAgrees,
        /// No key on the members lives longer than maxTTL.
        TTLWithinBound,
        /// The Secrets of all `spec.clients` are in place.
        ClientsReady,
        /// Every member speaks TLS and serves the newest certificate. Absent without TLS.
        TLSReady,
    }
}

names! {
    /// Reasons of the condition `Accepted`.
    AcceptedReason {
        /// Everything the lock needs is there.
        Accepted,
        /// No RedisQuorum of that name, or the operator's default does not exist.
        QuorumNotFound,
        /// Another installation of the operator looks after the quorum.
        OtherInstallation,
        /// The quorum does not allow locks from this namespace.
        NamespaceNotAllowed,
        /// The quorum is starting, or its larger `maxTTL` is not in force yet. The lock is served as soon as it is.
        QuorumNotReady,
        /// `ttl` is larger than the quorum's `maxTTL`.
        TTLTooLong,
        /// `ttl` is less than ten times the quorum's `nodeTimeout`.
        TTLTooShort,
        /// An older object uses the key with another number of slots.
        KeyShapeConflict,
        /// There are as many older locks in the namespace as the operator serves there.
        TooManyLocks,
        /// The operator cannot read the object.
        Unreadable,
        /// The operator panicked again and again while it handled the object.
        OperatorFault,
    }
}

names! {
    /// Reasons of the condition `Held`.
    HeldReason {
        /// Held, and renewed.
        Held,
        /// The holder gives the lock up; it ends at `status.ending.until` at the latest.
        Ending,
        /// Another claim on the same key is ahead.
        Queued,
        /// A lock client outside this operator holds the key.
        HeldByOther,
        /// No majority of members answered.
        NoQuorum,
        /// No pod that could lead.
        NoCandidate,
        /// Waiting for `lockDelay` after an unclean loss.
        LockDelay,
        /// `spec.suspend` is set.
        Suspended,
        /// The holder gave the lock up.
        Released,
        /// The hold reached `maxHold`.
        MaxHoldReached,
        /// The claim waited for `waitTimeout` in vain.
        WaitTimeout,
        /// The validity ran out before a majority renewed it.
        Expired,
        /// The holder's container or pod is gone.
        HolderGone,
        /// The holder failed its liveness check, or its heartbeat stopped.
        HolderUnhealthy,
        /// A person asked the holder to pass the lock on.
        SteppedDown,
        /// A person broke the lock.
        Broken,
        /// The operator cannot read the object.
        Unreadable,
        /// The operator panicked again and again while it handled the object.
        OperatorFault,
        /// The condition `Accepted` is not true.
        NotAccepted,
        /// Nothing is known yet.
        Pending,
    }
}

names! {
    /// Reasons of all other conditions.
    CommonReason {
        /// As it should be.
        AsExpected,
        /// All members hold the key.
        AllMembers,
        /// Some members lack the key and are being repaired.
        MembersMissing,
        /// The API server took a status later than its validity lasted.
        WrittenLate,
        /// The lock has no holder.
        NotHeld,
        /// All members are admitted.
        AllAdmitted,
        /// A majority, but not all members are admitted.
        MajorityAdmitted,
        /// Fewer members than a majority are admitted.
        MajorityLost,
        /// One member only: any loss of it stops all locks.
        SingleMember,
        /// Members wait behind their fence.
        MembersFenced,
        /// Members are being created or started.
        MembersStarting,
        /// A member is being replaced by a new version.
        Updating,
        /// A person has paused the replacement of members.
        RolloutPaused,
        /// The member list is changing.
        MembersChanging,
        /// Nothing to do.
        Settled,
        /// A predecessor of a member is not known to be dead.
        PredecessorUnconfirmed,
        /// A member's clock jumped.
        ClockJump,
        /// No other operator can use the members: none of them is external.
        NotShared,
        /// Before the first vote every external member has to show that no operator disagrees.
        Joining,
        /// Another operator uses the members with another member list.
        OtherMemberList,
        /// Another operator uses a larger maxTTL on the members than this one's fences wait for.
        LargerMaxTTL,
        /// Keys live longer than maxTTL.
        KeysBeyondMaxTTL,
        /// A client's Secret could not be written.
        ClientSecretBlocked,
        /// A client used so much of a member that it is shut out for a while.
        ClientMisbehaves,
        /// Passwords are being rotated.
        RotatingPasswords,
        /// There is no certificate that the members could serve.
        CertificateInvalid,
        /// Some members do not serve the newest certificate yet.
        CertificatePending,
        /// The auth Secret is lost and no copy is left.
        AuthLost,
        /// Deletion waits until no member can answer with a forgotten lock.
        Deleting,
        /// The specification cannot be carried out.
        InvalidSpec,
        /// There are as many older quorums in the namespace as the operator serves there.
        TooManyQuorums,
        /// The operator cannot read the object.
        Unreadable,
        /// Not known, for example because no member answered.
        Unknown,
    }
}

names! {
    /// Status of a condition.
    Status {
        /// It is so.
        True,
        /// It is not so.
        False,
        /// It is not known.
        Unknown,
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The condition of that type, if it has been set.
#[must_use]
pub fn find_condition(conditions: &[Condition], type_: impl Into<&'static str>) -> Option<&Condition> {
    let type_ = type_.into();
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of that type has been set and is true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: impl Into<&'static str>) -> bool {
    find_condition(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Of a message so many characters are written: parts of it come from people and from members, and it is written for every lock that waits.
const LONGEST_MESSAGE: usize = 1_024;

/// Sets the condition `type_`; its `lastTransitionTime` moves only when its status changes. Returns whether anything
/// changed. It is set for a generation of the specification, at a time.
///
/// Times of conditions are written in whole seconds, so `now` is cut to seconds: what was set equals what is read back.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: impl Into<&'static str>,
    status: impl Into<Status>,
    reason: impl Into<&'static str>,
    message: impl Into<String>,
    (generation, now): (Option<i64>, Timestamp),
) -> bool {
    let (type_, status, reason, message) = (type_.into(), status.into().as_str(), reason.into(), message.into());
    let message = match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => message.get(..end).unwrap_or_default().to_owned(),
        None => message,
    };
    let new = Condition {
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        message,
        observed_generation: generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    };
    let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(new);
        return true;
    };
    let last_transition_time =
        if old.status == status { old.last_transition_time.clone() } else { new.last_transition_time.clone() };
    let new = Condition { last_transition_time, ..new };
    let changed = *old != new;
    *old = new;
    changed
}

#[cfg(test)]
mod tests;
