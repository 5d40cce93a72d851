//! One mutex for each key of a quorum: a reconcile uses the writes of the one before it on the same key.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Mutexes by the name that `reconcile::key_of` returns.
#[derive(Debug, Default)]
pub(super) struct KeyMutexes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl KeyMutexes {
    /// Returns the mutex with this name.
    pub(super) fn get(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut mutexes = self.0.lock();
        // Unused mutexes are dropped before the map grows. If all are in use, its size doubles, so a walk over them is rare.
        if mutexes.len() == mutexes.capacity() {
            mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        }
        mutexes.entry(name.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_kept_only_while_it_is_used() {
        let mutexes = KeyMutexes::default();
        let used: Vec<_> = (0..100).map(|number| mutexes.get(&format!("used {number}"))).collect();
        for number in 0..10_000 {
            drop(mutexes.get(&format!("former {number}")));
        }
        assert!(mutexes.0.lock().len() <= 4 * used.len());
        for (number, mutex) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(mutex, &mutexes.get(&format!("used {number}"))));
        }
    }
}
