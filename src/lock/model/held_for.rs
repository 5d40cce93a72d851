//! Pure: how long a lock has been held.

use std::time::Duration;

use crate::api::DistributedLock;
use crate::time::{Boottime, ClockOffset};

/// The time since `acquiredAt`, as far as a replica can read the API server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldFor {
    /// It is not less. `minHold` goes by this.
    pub least: Duration,
    /// It is not more. `maxHold` goes by this.
    pub most: Duration,
}

impl HeldFor {
    /// By the status and the API server's clock at `now`.
    pub fn of(lock: &DistributedLock, clock: Option<ClockOffset>, now: Boottime) -> Option<Self> {
        let (acquired, clock) = (lock.status.as_ref()?.acquired_at?.into(), clock?);
        Some(Self {
            least: clock.earliest(now).floor().since(acquired),
            most: clock.latest(now).ceil().since(acquired),
        })
    }
}
