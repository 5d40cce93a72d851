//! A clock that a test may hold still.

use super::{Boottime, Clock, Monotonic, UnixMillis};
use std::time::Duration;

/// Follows tokio's clock, which a test may pause: all three clocks advance together, from an arbitrary but fixed
/// start. For tests and simulations; in a running process tokio's clock stands still during suspend, which a
/// validity must not.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
}

/// Boot of a `TokioClock`, so that "before now" exists from the start.
const UPTIME: Duration = Duration::from_secs(1_000_000);
/// 2026-01-01T00:00:00Z.
const WALL_START: i64 = 1_767_225_600_000;

impl TokioClock {
    /// Starts now. Call it inside the runtime whose clock is meant.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is where a Clock reads its time")]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }

    fn since_start(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn boottime(&self) -> Boottime {
        Boottime::new(UPTIME + self.since_start())
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::new(UPTIME + self.since_start())
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(WALL_START.saturating_add(i64::try_from(self.since_start().as_millis()).unwrap_or(i64::MAX)))
    }
}
