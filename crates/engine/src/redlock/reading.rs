//! Reads the holder of a lock from the content of its keys.
//!
//! Pure.

use std::collections::HashSet;
use std::time::Duration;

use super::{Drift, LockValue, Nonce, StoredValue};
use crate::time::Boottime;

/// The hold whose state a reader requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The hold with exactly this value.
    Value(LockValue),
    /// The operator's hold with this nonce.
    ///
    /// The seal of an ending hold also has the nonce, and can live for a lock delay beyond the validity. Search by nonce once, and then by the
    /// value that was found.
    Nonce(Nonce),
}

impl Owner {
    fn owns(&self, found: &StoredValue) -> bool {
        match self {
            Self::Value(value) => value.expose() == found.expose(),
            Self::Nonce(nonce) => {
                let (text, nonce) = (found.expose(), nonce.to_string());
                text.len() == 2 * nonce.len() && text.starts_with(&nonce)
            }
        }
    }
}

/// The content of a key on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberReading {
    /// This value, with its time to live.
    Value(StoredValue, Duration),
    /// No key, or a key that is no lock.
    Nothing,
    /// The member has no valid answer.
    Silent,
}

/// The state of a lock on a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// A majority of every list of members has the value.
    Held {
        /// The value.
        value: LockValue,
        /// No other client gets the lock before this time on [`crate::time::Clock::boottime`].
        ///
        /// It can be in the past.
        valid_until: Boottime,
    },
    /// Members have other content, and no majority can have the value.
    NotHeld,
    /// Too many members are silent for a decision.
    Unknown,
}

impl MemberReading {
    const fn value(&self) -> Option<&StoredValue> {
        match self {
            Self::Value(value, _) => Some(value),
            Self::Nothing | Self::Silent => None,
        }
    }
}

/// Decides the state of a lock from the readings of its members.
///
/// `lists` has one list of members, or two while the members change. A majority of each is needed, and the smaller time
/// to live is decisive. `started` is a time before the first request.
///
/// If q is the majority, the time to live of a list is the q-th largest of its members. Before it ends, fewer than a majority of the
/// members are free for another value.
#[must_use]
pub fn reading(lists: &[Vec<MemberReading>], owner: &Owner, started: Boottime, drift: Drift) -> Reading {
    let is_owned = |reading: &&StoredValue| owner.owns(reading);
    // A seal has the nonce of its hold but is another value, so the two are counted separately.
    let candidates: HashSet<&str> =
        lists.iter().flatten().filter_map(MemberReading::value).filter(is_owned).map(StoredValue::expose).collect();
    for candidate in candidates {
        let remainders: Option<Vec<Duration>> = lists.iter().map(|list| majority_remaining(list, candidate)).collect();
        if let Some(least) = remainders.as_ref().and_then(|remainders| remainders.iter().min()) {
            let valid_until = started + least.saturating_sub(drift.allowance(*least));
            return Reading::Held { value: LockValue::from_text(candidate), valid_until };
        }
    }
    let can_be_held = |list: &Vec<MemberReading>| {
        let excludes = |reading: &&MemberReading| match reading {
            MemberReading::Value(value, _) => !owner.owns(value),
            MemberReading::Nothing => true,
            MemberReading::Silent => false,
        };
        list.len() - list.iter().filter(excludes).count() >= majority(list)
    };
    if lists.is_empty() || lists.iter().all(can_be_held) { Reading::Unknown } else { Reading::NotHeld }
}

const fn majority(list: &[MemberReading]) -> usize {
    list.len() / 2 + 1
}

/// The q-th largest time to live among the members of a list with this value.
///
/// `None` without a majority.
fn majority_remaining(list: &[MemberReading], wanted: &str) -> Option<Duration> {
    let remaining_of = |reading: &MemberReading| match reading {
        MemberReading::Value(value, remaining) if value.expose() == wanted => Some(*remaining),
        _ => None,
    };
    let mut left: Vec<Duration> = list.iter().filter_map(remaining_of).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    left.get(majority(list) - 1).copied()
}

#[cfg(test)]
mod tests;
