//! Pure: the record of a hold in its status: its quorum and its key at the time of the grant.
//!
//! This record locates a hold. The specification and the default quorum can have changed since, but the key has not moved.

use std::time::Duration;

use crate::api::{DistributedLock, HeldQuorum};
use crate::redlock::LockKey;

/// The record of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRecord {
    /// The quorum that granted it.
    pub quorum: HeldQuorum,
    /// Its key in Redis.
    pub key: LockKey,
    /// How long the members can remember it after its last renewal.
    pub rejoin_delay: Duration,
}

impl HoldRecord {
    /// The record of the hold in this status.
    ///
    /// `None` without a holder, or if another client removed a part of it.
    pub fn of(lock: &DistributedLock) -> Option<Self> {
        let holder = lock.holder()?;
        let (quorum, key) = (holder.quorum.clone()?, LockKey::new(holder.key.clone()?));
        Some(Self { quorum, key, rejoin_delay: holder.rejoin_delay?.get() })
    }
}
