//! The keys of one fake master.
//!
//! Time is an argument.

use std::collections::BTreeMap;

use crate::time::Boottime;

#[derive(Debug)]
struct Entry {
    value: String,
    /// `None` if the key never expires.
    until: Option<Boottime>,
}

/// Strings by key.
///
/// Expired keys are invisible.
#[derive(Debug, Default)]
pub(super) struct Store(BTreeMap<String, Entry>);

impl Store {
    fn entry(&self, key: &str, now: Boottime) -> Option<&Entry> {
        self.0.get(key).filter(|entry| entry.until.is_none_or(|until| until > now))
    }

    pub(super) fn get(&self, key: &str, now: Boottime) -> Option<&str> {
        self.entry(key, now).map(|entry| entry.value.as_str())
    }

    pub(super) fn until(&self, key: &str, now: Boottime) -> Option<Boottime> {
        self.entry(key, now)?.until
    }

    pub(super) fn set(&mut self, key: &str, value: &str, until: Option<Boottime>) {
        self.0.insert(key.to_owned(), Entry { value: value.to_owned(), until });
    }

    /// Replaces the value and keeps the time to live.
    pub(super) fn replace(&mut self, key: &str, value: &str) {
        if let Some(entry) = self.0.get_mut(key) {
            value.clone_into(&mut entry.value);
        }
    }

    /// Extends the time to live.
    ///
    /// It never shortens it, and a key without one stays so.
    pub(super) fn prolong(&mut self, key: &str, until: Boottime) {
        if let Some(Entry { until: Some(current), .. }) = self.0.get_mut(key) {
            *current = until.max(*current);
        }
    }

    pub(super) fn delete(&mut self, key: &str, now: Boottime) -> bool {
        let was_there = self.entry(key, now).is_some();
        self.0.remove(key);
        was_there
    }

    pub(super) fn keys(&self, now: Boottime) -> Vec<String> {
        self.0.keys().filter(|key| self.entry(key, now).is_some()).cloned().collect()
    }
}
