//! The order of those who wait for a key with the same client.

use crate::redlock::LockKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

/// More keys than this that nobody waits for are not kept.
const KEPT: usize = 1024;

/// One line per key. Tokio's mutex serves in the order of arrival.
#[derive(Default)]
pub(super) struct Lines(Mutex<HashMap<LockKey, Arc<Turn<()>>>>);

impl Lines {
    /// Resolves when it is the caller's turn, which lasts until the guard is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place.
    pub(super) async fn wait(&self, key: &LockKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= KEPT && !lines.contains_key(key) {
                lines.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(lines.entry(key.clone()).or_default())
        };
        turn.lock_owned().await
    }
}
