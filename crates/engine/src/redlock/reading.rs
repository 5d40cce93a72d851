//! What members show of a key that somebody else holds: whose it is, and for how long. Pure.

use super::{Drift, LockValue, Nonce, StoredValue};
use crate::time::Boottime;
use std::collections::HashSet;
use std::time::Duration;

/// Whose lock is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// That of the holder with exactly this value.
    Value(LockValue),
    /// That of the operator's hold with this nonce. The seal of a hold that is being ended carries the nonce, too, and may live for a
    /// lock delay beyond the validity: look by nonce once, and by the value that was found from then on.
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

/// What one member says of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberReading {
    /// This value, which lives for so long.
    Value(StoredValue, Duration),
    /// Something else: no key, or one that is no lock.
    Nothing,
    /// It has not said anything that counts.
    Silent,
}

/// What a quorum says of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reading {
    /// A majority of every list of members shows the value.
    Held {
        /// What they show.
        value: LockValue,
        /// Nobody else is granted the lock before that, on [`crate::time::Clock::boottime`]. It may have passed.
        valid_until: Boottime,
    },
    /// So many members show something else that no majority can show the value.
    NotHeld,
    /// Too many members are silent to tell.
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

/// Decides what members show. `lists`: one list of members, or two while the members change; a majority of each is needed, and the
/// smaller rest counts. `asked`: a moment before the first of them was asked. The rest of a list is its q-th largest time to live, q
/// being the majority: until then fewer than a majority of the members are free for another value.
#[must_use]
pub fn reading(lists: &[Vec<MemberReading>], owner: &Owner, asked: Boottime, drift: Drift) -> Reading {
    let is_it = |shown: &&StoredValue| owner.owns(shown);
    // A seal has the nonce of its hold, and is another value: they do not add up.
    let candidates: HashSet<&str> =
        lists.iter().flatten().filter_map(MemberReading::value).filter(is_it).map(StoredValue::expose).collect();
    for candidate in candidates {
        let rests: Option<Vec<Duration>> = lists.iter().map(|list| rest(list, candidate)).collect();
        if let Some(least) = rests.as_ref().and_then(|rests| rests.iter().min()) {
            let valid_until = asked + least.saturating_sub(drift.allowance(*least));
            return Reading::Held { value: LockValue::from_text(candidate), valid_until };
        }
    }
    let may_show = |list: &Vec<MemberReading>| {
        let lacks = |shown: &&MemberReading| match shown {
            MemberReading::Value(value, _) => !owner.owns(value),
            MemberReading::Nothing => true,
            MemberReading::Silent => false,
        };
        list.len() - list.iter().filter(lacks).count() >= majority(list)
    };
    if lists.is_empty() || lists.iter().all(may_show) { Reading::Unknown } else { Reading::NotHeld }
}

const fn majority(list: &[MemberReading]) -> usize {
    list.len() / 2 + 1
}

/// The q-th largest time to live among the members of a list that show this value; `None` without a majority.
fn rest(list: &[MemberReading], wanted: &str) -> Option<Duration> {
    let of_value = |shown: &MemberReading| match shown {
        MemberReading::Value(value, remaining) if value.expose() == wanted => Some(*remaining),
        _ => None,
    };
    let mut left: Vec<Duration> = list.iter().filter_map(of_value).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    left.get(majority(list) - 1).copied()
}

#[cfg(test)]
mod tests;
