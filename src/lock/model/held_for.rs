//! Pure: the time for which a lock has been held.

use std::time::Duration;

use crate::api::DistributedLock;
use crate::time::{Boottime, ClockOffset};

/// The time since `acquiredAt`, as far as a replica can read the API server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldFor {
    /// A lower bound. `minHold` uses it.
    pub least: Duration,
    /// An upper bound. `maxHold` uses it.
    pub most: Duration,
}

impl HeldFor {
    /// The time from `acquiredAt` in the status to the API server's clock at `now`.
    pub fn of(lock: &DistributedLock, clock: Option<ClockOffset>, now: Boottime) -> Option<Self> {
        let (acquired, clock) = (lock.status.as_ref()?.acquired_at?.into(), clock?);
        Some(Self {
            least: clock.earliest(now).floor().since(acquired),
            most: clock.latest(now).ceil().since(acquired),
        })
    }
}

/// The rest of `maxHold`. `None` without a limit, or without the API server's clock.
pub fn left_of_max_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Option<Duration> {
    Some(lock.spec.max_hold?.get().saturating_sub(held_for?.most))
}

/// The rest of `minHold`. `None` without it, or without the API server's clock.
pub fn left_of_min_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> Option<Duration> {
    Some(lock.spec.min_hold?.get().saturating_sub(held_for?.least))
}
