//! When a process that the client has not observed before can vote.

use std::time::Duration;

use crate::redlock::{Drift, rejoin_delay};

/// The rule for a process that a client has not observed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// An operator fences it as long as necessary.
    Fenced,
    /// It can vote after every promise of its predecessor has expired.
    After(Duration),
    /// It can vote at once, regardless of the promises of its predecessor.
    AtOnce,
}

impl Admission {
    pub(super) fn after(max_ttl: Duration, drift: Drift, node_timeout: Duration) -> Self {
        Self::After(rejoin_delay(max_ttl, drift, node_timeout))
    }

    pub(super) const fn delay(self) -> Duration {
        match self {
            Self::After(delay) => delay,
            Self::Fenced | Self::AtOnce => Duration::ZERO,
        }
    }
}
