//! Pure: the record of a hold in its status: its quorum and its key at the time of the grant.
//!
//! This record locates a hold. The specification and the default quorum can have changed since, but the key has not moved.

use std::time::Duration;

use crate::api::{DistributedLock, GoDuration, HeldQuorum, LockHolder};
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

    /// Writes the record into the status. The delay only grows.
    pub fn write(&self, holder: &mut LockHolder, rejoin_delay: Option<Duration>) {
        holder.quorum = Some(self.quorum.clone());
        holder.key = Some(self.key.as_str().to_owned());
        let longest = GoDuration::from(self.rejoin_delay.max(rejoin_delay.unwrap_or_default()));
        holder.rejoin_delay = holder.rejoin_delay.max(Some(longest));
    }
}
