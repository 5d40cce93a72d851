use crate::redlock::{Drift, rejoin_delay};
use std::time::Duration;

/// When a process that a client has not seen before may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// An operator keeps it from voting for as long as is needed.
    Fenced,
    /// After every promise of the process before has run out.
    After(Duration),
    /// At once, whatever the process before it has promised.
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
