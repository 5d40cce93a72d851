use super::electorate::ClockSample;
use super::{FencingToken, KeyState, LockKey, LockValue, MemberError, MemberName};
use crate::time::Boottime;
use std::fmt;
use std::time::Duration;

/// What to acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The lock's key.
    pub key: LockKey,
    /// Fresh for this attempt, retries included.
    pub value: LockValue,
    /// Time to live.
    pub ttl: Duration,
    /// Whether the holder gets a token. Without one it is zero.
    pub token: bool,
}

/// The outcome of one attempt to acquire. On anything but `Granted` a release went to every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The lock is held.
    Granted(Grant),
    /// So many said that the key is taken that no majority was left.
    HeldByOther {
        /// How many said so.
        refusals: usize,
        /// The longest time to live among them; `None` if none of the keys has one.
        longest: Option<Duration>,
        /// What they have on the key, the caller's own orphans included.
        occupants: Vec<Occupant>,
    },
    /// Too few members voted.
    NoQuorum {
        /// How many said that the key is taken.
        refusals: usize,
        /// Who failed to vote, and how.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// A majority said yes, too late for any validity to be left.
    Expired,
    /// A majority said yes, and their counters are too far apart for this client to bring them together. An operator levels them within
    /// seconds.
    CountersApart,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Greater than that of every earlier holder.
    pub token: FencingToken,
    /// Before the first request.
    pub started: Boottime,
    /// Drift already taken off.
    pub valid_until: Boottime,
    /// The yes votes that had arrived.
    pub votes: Votes,
}

/// How many distinct processes said yes, of how many members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Votes {
    /// Distinct processes that said yes.
    pub yes: usize,
    /// Members.
    pub of: usize,
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.yes, self.of)
    }
}

/// What one member has on the key instead of the caller's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The member.
    pub member: MemberName,
    /// What is there.
    pub holder: KeyState,
}

/// Why a member's vote is missing from a round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberFailure {
    /// It failed, or did not answer in time.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// It is not admitted, or another process answered under its name: the vote was dropped.
    #[error("the process is not admitted")]
    NotAdmitted,
    /// Its counter is below what it was restored to: it has lost its memory without a restart, and the vote was dropped.
    #[error("the process has lost its memory (FLUSHALL?) since it was admitted")]
    Forgotten,
    /// Its clock was stepped since it was admitted: the vote was dropped.
    #[error("the clock was stepped since the process was admitted")]
    ClockStepped,
    /// Its clock was not read yet, so that an attempt cannot name its last moment.
    #[error("the clock was not read yet")]
    ClockUnread,
}

impl MemberFailure {
    /// Nothing was heard from the member.
    #[must_use]
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Member(MemberError::TimedOut | MemberError::Unreachable(_)))
    }
}

/// Whether a round failed for want of answers, rather than for what was answered: of those that failed at least half were silent. With
/// their votes it may have had a majority.
#[must_use]
pub fn is_silence(failures: &[(MemberName, MemberFailure)]) -> bool {
    let silent = failures.iter().filter(|(_, failure)| failure.is_silence()).count();
    silent > 0 && silent * 2 >= failures.len()
}

/// Which hold to extend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendRequest {
    /// The lock's key.
    pub key: LockKey,
    /// The holder's value.
    pub value: LockValue,
    /// Time to live from now on.
    pub ttl: Duration,
    /// The end of the validity that the caller knows of: the extension counts only before it. `None` if the attempt and all repairs
    /// carried their last moments, so that a majority that has the value proves the hold.
    pub valid_until: Option<Boottime>,
}

/// The outcome of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extend {
    /// A majority extended, before the old validity ended.
    Renewed {
        /// Before the first request of this round.
        started: Boottime,
        /// The later of the old end and the one that this round earned. Never earlier than the old one.
        valid_until: Boottime,
        /// The yes votes that had arrived.
        votes: Votes,
        /// Members that have lost the key, for a repair.
        missing: Vec<Missing>,
        /// Members that have something else on the key.
        others: Vec<Occupant>,
    },
    /// So many said that the key does not hold the value that no majority was left: the hold is lost.
    Refused {
        /// How many said so.
        refusals: usize,
    },
    /// Too few members voted. The hold lasts until its validity ends.
    NoQuorum {
        /// Who failed to vote, and how.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// Begun or decided after the old validity had ended: the hold is lost whatever the votes, since another holder may
    /// have been in between.
    TooLate,
}

/// An admitted member without the key, and its clock at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The member.
    pub member: MemberName,
    /// Its clock.
    pub clock: ClockSample,
}

/// The outcome of sealing a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seal {
    /// A majority holds the sealed value: no replica can extend any more.
    Sealed {
        /// The longest time to live that was returned, lock delay included.
        longest: Duration,
        /// When the last of these keys is gone, drift included.
        until: Boottime,
    },
    /// So many hold neither the value nor the sealed value that no majority was left.
    Gone,
    /// Too few members answered: try again.
    NoQuorum {
        /// Who failed, and how.
        failures: Vec<(MemberName, MemberFailure)>,
    },
}

/// The outcome of a release. No error: what was not reached runs out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// How many members deleted the key.
    pub deleted: usize,
    /// Who did not confirm, and why.
    pub failures: Vec<(MemberName, MemberFailure)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_fails_for_silence_if_the_silent_could_have_made_a_majority() {
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
