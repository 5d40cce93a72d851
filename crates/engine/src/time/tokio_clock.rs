//! A clock that a test can hold still.

use std::time::Duration;

use super::{Boottime, Clock, Monotonic, UnixMillis};

/// Follows tokio's clock, which a test can pause.
///
/// All three clocks advance together from a fixed start. It is for tests and simulations: tokio's clock stands still
/// during suspend, and a validity must not.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
}

/// Time since boot at the start of a `TokioClock`, so that earlier readings exist.
const UPTIME: Duration = Duration::from_secs(1_000_000);
/// 2026-01-01T00:00:00Z.
const WALL_START: i64 = 1_767_225_600_000;

impl TokioClock {
    /// Starts now.
    ///
    /// Call it inside the runtime whose clock it follows.
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
