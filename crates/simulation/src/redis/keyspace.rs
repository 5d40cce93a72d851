//! Keys and their expiry.

use std::collections::BTreeMap;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// The last millisecond of the member's clock at which the key lives.
    pub(super) end: Option<i64>,
    /// The position for SCAN, which returns all entries that exist from its beginning to its end.
    serial: u64,
}

#[derive(Default)]
pub(super) struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    serials: BTreeMap<u64, Vec<u8>>,
    last_serial: u64,
    /// Keys that changed since the last call of `take_changed`.
    changed: Vec<Vec<u8>>,
    /// The time of the last search for expired keys.
    swept: Option<i64>,
}

/// The interval between two searches for expired keys, in milliseconds, as in Redis.
///
/// A step back of the clock revives keys that no sweep has removed.
const SWEEP: i64 = 100;

impl Keyspace {
    /// The entry of a key that has not expired.
    pub(super) fn get(&mut self, key: &[u8], now: i64) -> Option<&Entry> {
        self.end_if_due(key, now);
        self.entries.get(key)
    }

    /// Returns the entry for a change in place, and records the key as changed.
    pub(super) fn get_mut(&mut self, key: &[u8], now: i64) -> Option<&mut Entry> {
        self.end_if_due(key, now);
        let entry = self.entries.get_mut(key)?;
        self.changed.push(key.to_vec());
        Some(entry)
    }

    pub(super) fn set(&mut self, key: &[u8], value: Value, end: Option<i64>) {
        self.changed.push(key.to_vec());
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = value;
            entry.end = end;
            return;
        }
        self.last_serial += 1;
        self.serials.insert(self.last_serial, key.to_vec());
        self.entries.insert(key.to_vec(), Entry { value, end, serial: self.last_serial });
    }

    /// Removes a key.
    ///
    /// Returns whether it existed.
    pub(super) fn remove(&mut self, key: &[u8], now: i64) -> bool {
        self.end_if_due(key, now);
        let removed = self.entries.remove(key);
        if let Some(entry) = &removed {
            self.serials.remove(&entry.serial);
            self.changed.push(key.to_vec());
        }
        removed.is_some()
    }

    pub(super) fn clear(&mut self) {
        self.changed.extend(self.entries.keys().cloned());
        self.entries.clear();
        self.serials.clear();
    }

    /// Adds the keys of another process that match the condition.
    pub(super) fn load(&mut self, other: &Self, keeps: impl Fn(&[u8]) -> bool) {
        for (key, entry) in other.entries.iter().filter(|(key, _)| keeps(key)) {
            self.set(key, entry.value.clone(), entry.end);
        }
    }

    fn end_if_due(&mut self, key: &[u8], now: i64) {
        if self.entries.get(key).and_then(|entry| entry.end).is_some_and(|end| now > end) {
            let entry = self.entries.remove(key).unwrap();
            self.serials.remove(&entry.serial);
            self.changed.push(key.to_vec());
        }
    }

    /// Removes expired keys, as often as Redis does.
    pub(super) fn sweep(&mut self, now: i64) {
        if self.swept.is_none_or(|swept| now < swept || now >= swept + SWEEP) {
            self.swept = Some(now);
            self.end_all_due(now);
        }
    }

    fn end_all_due(&mut self, now: i64) {
        let keys: Vec<Vec<u8>> = self.entries.keys().cloned().collect();
        keys.iter().for_each(|key| self.end_if_due(key, now));
    }

    /// At most `count` keys after this serial number, and the number to continue from (0 at the end).
    pub(super) fn page(&mut self, after: u64, count: usize, now: i64) -> (u64, Vec<Vec<u8>>) {
        self.end_all_due(now);
        let mut page = Vec::new();
        let mut last = 0;
        for (serial, key) in self.serials.range(after.saturating_add(1)..) {
            if page.len() == count {
                return (last, page);
            }
            last = *serial;
            page.push(key.clone());
        }
        (0, page)
    }

    pub(super) fn all(&mut self, now: i64) -> &BTreeMap<Vec<u8>, Entry> {
        self.end_all_due(now);
        &self.entries
    }

    pub(super) fn take_changed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_lives_up_to_its_end_and_a_step_of_the_clock_moves_it() {
        let mut keys = Keyspace::default();
        let value = || Value::String(b"v".to_vec());
        keys.set(b"k", value(), Some(100));
        assert!(keys.get(b"k", 100).is_some());
        assert!(keys.get(b"k", -1_000).is_some(), "the end is a time of the clock, not a duration");
        assert!(keys.get(b"k", 101).is_none());
        assert!(keys.get(b"k", 100).is_none(), "an ended key is removed");
    }

    #[test]
    fn a_walk_returns_keys_that_existed_throughout() {
        let mut keys = Keyspace::default();
        for key in ["a", "b", "c", "d"] {
            keys.set(key.as_bytes(), Value::String(Vec::new()), None);
        }
        let (cursor, page) = keys.page(0, 2, 0);
        assert_eq!(page, [b"a", b"b"]);
        keys.remove(b"a", 0);
        keys.set(b"0", Value::String(Vec::new()), None);
        let (cursor, page) = keys.page(cursor, 9, 0);
        assert_eq!((cursor, page), (0, vec![b"c".to_vec(), b"d".to_vec(), b"0".to_vec()]));
    }
}
