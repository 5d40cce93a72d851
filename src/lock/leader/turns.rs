//! Locks on one key of one quorum take turns: what one of them writes is known before the next one is looked at.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// How many turns are kept before those that no lock waits for are dropped.
/// So keys of the past take no memory.
const KEPT: usize = 1024;

/// By the name that `reconcile::turn_of` gives.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// The turn of this name.
    pub(super) fn get(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        if turns.len() > KEPT {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(name.to_owned()).or_default().clone()
    }
}
