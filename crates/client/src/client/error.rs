//! The errors of the client: no client, no lock, a lost lock, and undelivered releases.

use std::time::Duration;

use super::url::UrlError;
use crate::redlock::{MemberError, MemberFailure, MemberName, Released};

/// The reason why no client was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A member's URL is invalid.
    ///
    /// Members are counted from 0.
    #[error("member {0}: {1}")]
    Url(usize, #[source] UrlError),
    /// There is no member, or there are more than 64.
    #[error("a quorum has 1 to 64 members, an odd number is best")]
    Members,
    /// Two URLs have the same address, so their master would count as two members with one vote.
    #[error("two members have the same address")]
    SameAddress,
    /// A URL needs TLS, but the client has no configuration, or the crate has no feature `tls`.
    #[error("a rediss:// URL needs the feature `tls` and Builder::tls")]
    NoTls,
    /// The host is no name of a certificate.
    #[error("member {0}: its host is no name that a certificate can have")]
    ServerName(usize),
    /// The operator's Secret lacks this entry, or it is unreadable.
    #[error("the Secret has no readable entry {0:?}; an operator that supports this crate writes it")]
    Secret(&'static str),
    /// The Secret declares that restarted members are not fenced.
    #[error("by its Secret, its members are not fenced: use Client::builder and wait_before_voting")]
    NotFenced,
    /// The majority in the Secret does not fit its URLs, because the entries were read at different times.
    #[error(
        "the Secret's entries contradict each other: {urls} members and a majority of {quorum}; read it again, at once"
    )]
    Torn {
        /// The number of URLs.
        urls: usize,
        /// The majority in the Secret.
        quorum: usize,
    },
    /// The member can never vote for this client.
    #[error("member {0}: {1}")]
    Member(MemberName, MemberError),
    /// Two URLs lead to one process, so it would count as two members with one vote.
    #[error("members {0} and {1} are one process: name each master once")]
    SameProcess(MemberName, MemberName),
    /// The clock drift is at least as long as the maximum time to live.
    #[error("the clock drift takes off as much as the longest time to live: no lock would be valid")]
    Drift,
    /// The maximum time to live is out of range.
    #[error("the longest time to live has to be from 1 ms to 365 days")]
    MaxTtl,
    /// The Secret has other members or other rules than this client.
    #[error("the Secret names other members or rules than this client has: make another client of it")]
    Stale,
    /// The caller has no tokio runtime.
    #[error("a client is built inside a tokio runtime")]
    NoRuntime,
}

/// The reason why a lock is not held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAcquired {
    /// Another holder has the key on too many members for a majority.
    #[error("{}", held_by_other(*refusals))]
    HeldByOther {
        /// The number of members that refused.
        ///
        /// Zero if another caller of this client has the key.
        refusals: usize,
        /// The longest time to live among them, if members reported one.
        longest: Option<Duration>,
    },
    /// Too few members voted.
    #[error("no majority of the members voted{}", grouped(failures))]
    NoQuorum {
        /// Members that failed, with the reason.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// A majority accepted too late for any validity: the time to live is too short for these members.
    #[error("the votes came too late for a validity to be left")]
    Expired,
    /// A majority accepted, but their counters are too far apart for a token.
    ///
    /// An operator levels them within seconds.
    #[error("the members' counters of tokens are too far apart")]
    CountersApart,
    /// This client does not admit its members yet ([`crate::client::Masters::wait_before_voting`]).
    #[error("members cannot vote yet for {left:?}")]
    Waiting {
        /// The time until a majority can vote.
        left: Duration,
    },
    /// Members have lost their counters, and too few other counters are readable.
    #[error("the counters of tokens are not restored yet: too few members can be asked{}", grouped(failures))]
    CountersUnknown {
        /// Members whose counter is unreadable, with the reason.
        failures: Vec<(MemberName, MemberFailure)>,
    },
    /// Members have lost their counters, and the wall clock of this machine was never set.
    ///
    /// The client derives new counters from that clock.
    #[error("the wall clock of this machine is before 2020: counters of tokens cannot begin with it")]
    WallClock,
    /// The key does not begin with the client's prefix, or it contains a `#`.
    #[error("the key must begin with the client's prefix and cannot contain '#'")]
    Key,
    /// The time to live is less than a millisecond, or more than the fence of the members covers.
    #[error("the time to live must be from 1 ms to {most:?}")]
    Ttl {
        /// The maximum that is safe here.
        most: Duration,
    },
    /// The number of slots is out of range.
    #[error("the number of slots must be from 1 to {most}")]
    Slots {
        /// The maximum.
        most: u32,
    },
    /// A holder has the lock with another number of slots ([`crate::client::Lock::refuse_other_slots`]).
    #[error("it is held with another number of slots")]
    OtherSlots,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// The task of the connections has panicked.
    ///
    /// This client never reaches a member again.
    #[error("the client's connections have ended by a panic: make another client")]
    Broken,
}

fn held_by_other(refusals: usize) -> String {
    match refusals {
        0 => "held by another caller of this client".to_owned(),
        count => format!("held by another ({count} members report it)"),
    }
}

/// Formats failures as `: a, b: cause; c: another cause`, each cause once.
fn grouped(failures: &[(MemberName, MemberFailure)]) -> String {
    let mut causes: Vec<(String, Vec<&str>)> = Vec::new();
    for (member, failure) in failures {
        let cause = failure.to_string();
        match causes.iter_mut().find(|(other, _)| *other == cause) {
            Some((_, members)) => members.push(member.as_str()),
            None => causes.push((cause, vec![member.as_str()])),
        }
    }
    let texts: Vec<_> = causes.iter().map(|(cause, members)| format!("{}: {cause}", members.join(", "))).collect();
    if texts.is_empty() { String::new() } else { format!(": {}", texts.join("; ")) }
}

impl NotAcquired {
    /// Returns true if the same call can succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        !matches!(self, Self::Key | Self::Ttl { .. } | Self::Slots { .. } | Self::Closed | Self::Broken)
    }
}

/// The lock is no longer held, or is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock is lost: {cause}")]
pub struct Lost {
    /// The reason.
    pub cause: LossCause,
}

/// The reason why a lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossCause {
    /// A majority of the members has lost it: it expired, was deleted, or another holder has it.
    #[error("a majority of the members does not have it any more")]
    Taken,
    /// No majority has renewed it in time.
    #[error("no majority of the members has renewed it in time")]
    Unreachable,
    /// The client was closed, or the lock was released.
    #[error("the client has given it back")]
    Closed,
}

/// The replies that did not arrive before the time limit of [`crate::Client::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{left} replies of members are outstanding; their keys run out by themselves")]
pub struct Undelivered {
    /// The number of outstanding replies.
    pub left: usize,
}

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Release(pub(super) Released);

impl Release {
    /// The number of members that had deleted the key when a majority had confirmed.
    #[must_use]
    pub const fn deleted(&self) -> usize {
        self.0.deleted
    }

    /// Members that had failed by then, with the reason.
    ///
    /// The key expires there.
    #[must_use]
    pub fn failures(&self) -> &[(MemberName, MemberFailure)] {
        &self.0.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_cause_once() {
        let failure = |name: &str, error: MemberError| (MemberName::from(name), MemberFailure::Member(error));
        let failures = vec![
            failure("a:1", MemberError::Refused),
            failure("b:1", MemberError::TimedOut),
            failure("c:1", MemberError::Refused),
        ];
        assert_eq!(
            NotAcquired::NoQuorum { failures }.to_string(),
            "no majority of the members voted: a:1, c:1: the password is refused; b:1: no answer in time"
        );
        assert_eq!(NotAcquired::NoQuorum { failures: Vec::new() }.to_string(), "no majority of the members voted");
    }
}
