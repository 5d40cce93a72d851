//! One mutex for each key of a quorum: a reconcile uses the writes of the one before it on the same key.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Number of mutexes at which unused ones are dropped, so that former keys take no memory.
const KEPT: usize = 1024;

/// Mutexes by the name that `reconcile::key_of` returns.
#[derive(Debug, Default)]
pub(super) struct KeyMutexes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl KeyMutexes {
    /// Returns the mutex with this name.
    pub(super) fn get(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut mutexes = self.0.lock();
        if mutexes.len() > KEPT {
            mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        }
        mutexes.entry(name.to_owned()).or_default().clone()
    }
}
