//! The requests to the engine, and the outcomes of its operations.

use std::fmt;
use std::time::Duration;

use super::electorate::ClockSample;
use super::{FencingToken, KeyState, LockKey, LockValue, MemberError, MemberName};
use crate::time::Boottime;

/// A request to acquire a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The lock's key.
    pub key: LockKey,
    /// A value that only this attempt uses.
    ///
    /// A retry needs another value.
    pub value: LockValue,
    /// Time to live.
    pub ttl: Duration,
    /// True if the holder needs a token.
    ///
    /// If it is false, the token is zero.
    pub token: bool,
}

/// The outcome of one attempt to acquire.
///
/// On anything but `Granted` the engine has sent a release to every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock is held.
    Granted(Grant),
    /// Members refused the key, and no majority can accept it.
    HeldByOther {
        /// The number of refusals.
        refusals: usize,
        /// The longest time to live of these keys.
        ///
        /// `None` if none of them has one.
        longest: Option<Duration>,
        /// The content of these keys.
        ///
        /// It can be an orphan of the caller itself.
        occupants: Vec<Occupant>,
    },
    /// Too few members voted.
    NoQuorum {
        /// Members without a valid vote, with the reason.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// A majority accepted, but too late for any validity.
    Expired,
    /// A majority accepted, but their counters are too far apart for this client to raise them.
    ///
    /// An operator levels them within seconds.
    CountersApart,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token, greater than that of every earlier holder.
    pub token: FencingToken,
    /// The time before the first request.
    pub started: Boottime,
    /// The end of the validity, drift included.
    pub valid_until: Boottime,
    /// The yes votes that had arrived.
    pub votes: Votes,
}

/// The number of distinct processes that voted yes, and the number of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Votes {
    /// Distinct processes that voted yes.
    pub yes: usize,
    /// The number of members.
    pub of: usize,
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.yes, self.of)
    }
}

/// The content of a key on a member that refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The member.
    pub member: MemberName,
    /// The content.
    pub holder: KeyState,
}

/// The reason why a round has no vote of a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberFailure {
    /// The member failed, or did not answer in time.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The process is not admitted, or another process answered under its name.
    ///
    /// The vote was dropped.
    #[error("the process is not admitted")]
    NotAdmitted,
    /// The counter is below its restored number: the process has lost its memory without a restart.
    ///
    /// The vote was dropped.
    #[error("the process has lost its memory (FLUSHALL?) since it was admitted")]
    Forgotten,
    /// The clock was stepped since the admission.
    ///
    /// The vote was dropped.
    #[error("the clock was stepped since the process was admitted")]
    ClockStepped,
    /// The clock was not read yet, so an attempt has no last moment on it.
    #[error("the clock was not read yet")]
    ClockUnread,
}

impl MemberFailure {
    /// Returns true if the member did not answer.
    #[must_use]
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Member(MemberError::TimedOut | MemberError::Unreachable(_)))
    }
}

/// Returns true if a round failed because members did not answer.
///
/// At least half of the failures must be silent members. With their votes a majority was possible.
#[must_use]
pub fn is_silence(failures: &[(MemberName, MemberFailure)]) -> bool {
    let silent = failures.iter().filter(|(_, failure)| failure.is_silence()).count();
    silent > 0 && silent * 2 >= failures.len()
}

/// A request to extend a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendRequest {
    /// The lock's key.
    pub key: LockKey,
    /// The holder's value.
    pub value: LockValue,
    /// The new time to live.
    pub ttl: Duration,
    /// The end of the current validity.
    ///
    /// The extension is valid only before it.
    ///
    /// `None` if the attempt and all repairs had last moments, so that a majority with the value proves the hold.
    pub valid_until: Option<Boottime>,
}

/// The outcome of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extend {
    /// A majority extended the key before the old validity ended.
    Renewed {
        /// The time before the first request of this round.
        started: Boottime,
        /// The later of the old end and the end that this round earned.
        valid_until: Boottime,
        /// The yes votes that had arrived.
        votes: Votes,
        /// Members that have lost the key, for a repair.
        missing: Vec<Missing>,
        /// Members that have something else on the key.
        others: Vec<Occupant>,
    },
    /// Members refused the value, and no majority can have it, so the hold is lost.
    Refused {
        /// The number of refusals.
        refusals: usize,
    },
    /// Too few members voted.
    ///
    /// The hold lasts until its validity ends.
    NoQuorum {
        /// Members without a valid vote, with the reason.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// The round began or was decided after the end of the old validity.
    ///
    /// The hold is lost regardless of the votes, because another client perhaps held the lock in between.
    TooLate,
}

/// An admitted member without the key, and its clock at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The member.
    pub member: MemberName,
    /// A reading of its clock.
    pub clock: ClockSample,
}

/// The outcome of sealing a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seal {
    /// A majority holds the sealed value, so no replica can extend the hold.
    Sealed {
        /// The time at which the last of the sealed keys has expired, lock delay and drift included.
        until: Boottime,
    },
    /// Members hold neither the value nor the sealed value, and no majority can hold one of them.
    Gone,
    /// Too few members answered.
    ///
    /// The caller tries again.
    NoQuorum {
        /// Members that failed, with the reason.
        failures: Vec<(MemberName, MemberFailure)>,
    },
}

/// The outcome of a release.
///
/// It is no error, because a key that was not deleted expires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The number of members that deleted the key.
    pub deleted: usize,
    /// Members that did not confirm, with the reason.
    pub failures: Vec<(MemberName, MemberFailure)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_silent_if_silent_members_could_have_won_it() {
        let silent = || MemberFailure::Member(MemberError::TimedOut);
        let gone = || MemberFailure::Member(MemberError::Unreachable("refused".into()));
        let fenced = || MemberFailure::Member(MemberError::Fenced);
        for (failures, silence) in [
            (vec![silent(), gone()], true),
            (vec![silent(), MemberFailure::NotAdmitted], true),
            (vec![silent(), fenced(), MemberFailure::NotAdmitted], false),
            (vec![MemberFailure::NotAdmitted, MemberFailure::ClockStepped], false),
            (vec![], false),
        ] {
            let failures: Vec<_> = failures.into_iter().map(|failure| (MemberName::from("m"), failure)).collect();
            assert_eq!(is_silence(&failures), silence, "{failures:?}");
        }
    }
}
