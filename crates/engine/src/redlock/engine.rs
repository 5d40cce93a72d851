//! The engine: one file per operation.
//!
//! Every operation sends its request to all members at the same time, and ends when its outcome is certain. A frozen minority does not
//! delay it.

mod acquire;
mod announce;
mod ballot;
mod extend;
mod release;
mod repair;
mod round;
mod seal;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use acquire::LateVotes;

use std::sync::Arc;
use std::time::Duration;

use super::Drift;
use crate::time::Clock;

/// Settings that all clients of a quorum share.
///
/// A larger value can be used only when it is in force (docs/dev/rules.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The relative drift of two clocks.
    pub drift: Drift,
    /// The timeout of one command to one member.
    pub node_timeout: Duration,
}

impl Default for Settings {
    /// 1 % + 2 ms of drift, 50 ms per command.
    fn default() -> Self {
        Self { drift: Drift::default(), node_timeout: Duration::from_millis(50) }
    }
}

/// A Redlock client.
///
/// Each call names its members, because membership and admission change over time.
#[derive(Debug)]
pub struct Redlock<C: Clock + ?Sized> {
    clock: Arc<C>,
    settings: Settings,
    token_reach: Option<u32>,
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// An engine with this clock and these settings.
    #[must_use]
    pub const fn new(clock: Arc<C>, settings: Settings) -> Self {
        Self { clock, settings, token_reach: None }
    }

    /// Limits how far the engine raises a counter, for a client that has only the permission to INCR.
    ///
    /// Such a client sends at most `reach` INCRs. Without this limit a script raises the counter to any number.
    #[must_use]
    pub const fn with_token_reach(mut self, reach: u32) -> Self {
        self.token_reach = Some(reach);
        self
    }

    /// The settings of this engine.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.settings
    }
}

impl<C: Clock + ?Sized> Clone for Redlock<C> {
    fn clone(&self) -> Self {
        Self { clock: Arc::clone(&self.clock), settings: self.settings, token_reach: self.token_reach }
    }
}
