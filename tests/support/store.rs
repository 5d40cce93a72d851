//! The protected data of a lock: a set that workers read, change and write back as a whole.
//!
//! Two concurrent writers lose an addition of one of them. One store checks fencing tokens as in docs/fencing.md, the
//! other trusts its writers.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
struct Protected {
    /// The largest token of a request.
    ///
    /// A read counts, because the next write depends on it.
    highest: i64,
    elements: BTreeSet<u64>,
    /// The additions that were confirmed to their writers.
    acknowledged: BTreeSet<u64>,
}

/// One set for each key.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    checks: bool,
    sets: BTreeMap<String, Protected>,
    refused: usize,
}

impl Store {
    pub(crate) fn new(checks: bool) -> Self {
        Self { checks, sets: BTreeMap::new(), refused: 0 }
    }

    fn admit(&mut self, key: &str, token: i64) -> Option<&mut Protected> {
        let set = self.sets.entry(key.to_owned()).or_default();
        if self.checks && token < set.highest {
            self.refused += 1;
            return None;
        }
        set.highest = set.highest.max(token);
        Some(set)
    }

    /// The current set, or `None` for a token that is too old.
    pub(crate) fn read(&mut self, key: &str, token: i64) -> Option<BTreeSet<u64>> {
        self.admit(key, token).map(|set| set.elements.clone())
    }

    /// Replaces the set, in which `added` is new.
    ///
    /// Returns whether the store accepted it.
    pub(crate) fn write(&mut self, key: &str, token: i64, elements: BTreeSet<u64>, added: u64) -> bool {
        self.admit(key, token).is_some_and(|set| {
            set.elements = elements;
            set.acknowledged.insert(added)
        })
    }

    /// Counts the acknowledged additions, the lost ones, and the refusals of old tokens.
    pub(crate) fn count(&self) -> Counts {
        let of = |count: fn(&Protected) -> usize| self.sets.values().map(count).sum();
        Counts {
            written: of(|set| set.acknowledged.len()),
            lost: of(|set| set.acknowledged.difference(&set.elements).count()),
            refused: self.refused,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) written: usize,
    pub(crate) lost: usize,
    pub(crate) refused: usize,
}
