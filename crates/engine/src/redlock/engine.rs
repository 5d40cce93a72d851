//! The engine: one file per operation. Every operation asks all members at once and is decided as soon as its outcome
//! is certain, so that a frozen minority costs no time.

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

use super::Drift;
use crate::time::Clock;
use std::sync::Arc;
use std::time::Duration;

/// What the whole quorum agrees on. A larger value may be used only once it is in force (docs/dev/rules.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The relative drift of two clocks.
    pub drift: Drift,
    /// For one command to one member.
    pub node_timeout: Duration,
}

impl Default for Settings {
    /// 1 % + 2 ms of drift, 50 ms per command.
    fn default() -> Self {
        Self { drift: Drift::default(), node_timeout: Duration::from_millis(50) }
    }
}

/// A Redlock client over members that it is given with each call, since membership and admission change over time.
#[derive(Debug)]
pub struct Redlock<C: Clock + ?Sized> {
    clock: Arc<C>,
    settings: Settings,
    token_reach: Option<u32>,
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// With this clock and these settings.
    #[must_use]
    pub const fn new(clock: Arc<C>, settings: Settings) -> Self {
        Self { clock, settings, token_reach: None }
    }

    /// For a client that may only INCR the counters, and raises one by so many INCRs at most. Otherwise a script raises it to any number.
    #[must_use]
    pub const fn with_token_reach(mut self, reach: u32) -> Self {
        self.token_reach = Some(reach);
        self
    }

    /// The settings that it was made with.
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
