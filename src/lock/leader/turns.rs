//! Locks on one key of one quorum take turns: what one of them writes is known before the next one is looked at.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::ResourceExt;

use super::reconcile::Locks;
use crate::{
    api::{DistributedLock, HeldQuorum},
    lock::{
        model::decide::Refusal,
        replica::{access::Access, location},
    },
};

/// Turns that nobody waits for are dropped when there are more than so many: keys of the past take no memory.
const KEPT: usize = 1024;

/// By the name that [`Locks::turn_of`] gives.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// The turn of this name.
    pub(super) fn get(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() > KEPT {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(name.to_owned()).or_default().clone()
    }
}

impl Locks {
    /// Which turn a lock takes: that of its quorum and key, whatever its number of slots. One that has no key takes turns with nobody.
    pub(super) fn turn_of(&self, lock: &DistributedLock, access: &Result<Access, Refusal>) -> String {
        let at = |quorum: &HeldQuorum, key: &str| format!("{quorum} {}", key.split('#').next().unwrap_or_default());
        match (location::of(&self.context, lock), access) {
            (Some(record), _) => at(&record.quorum, record.key.as_str()),
            (None, Ok(access)) => at(&access.quorum, access.key.as_str()),
            (None, Err(_refused)) => lock.uid().unwrap_or_default(),
        }
    }
}
