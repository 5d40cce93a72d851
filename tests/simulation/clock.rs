//! A client's clocks, which run a little fast or slow against the true time of the simulation.

use std::time::Duration;

use redlock_operator::time::{Boottime, Clock, Monotonic, UnixMillis};
use tokio::time::Instant;

const UPTIME: Duration = Duration::from_secs(1_000);
const WALL_START: i64 = 1_767_225_600_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimClock {
    start: Instant,
    ppm: i64,
}

impl SimClock {
    pub(crate) fn new(ppm: i64) -> Self {
        Self { start: Instant::now(), ppm }
    }

    fn reading(&self) -> Duration {
        let elapsed = i64::try_from(self.start.elapsed().as_nanos()).unwrap();
        UPTIME + Duration::from_nanos(u64::try_from(elapsed + elapsed / 1_000_000 * self.ppm).unwrap())
    }

    /// Converts a reading of the clock to true time since the start of the simulation.
    pub(crate) fn true_time(&self, reading: Boottime) -> Duration {
        let shown = reading.since(Boottime::new(UPTIME)).as_nanos();
        let rate = u128::try_from(1_000_000 + self.ppm).unwrap();
        Duration::from_nanos(u64::try_from(shown * 1_000_000 / rate).unwrap())
    }
}

impl Clock for SimClock {
    fn boottime(&self) -> Boottime {
        Boottime::new(self.reading())
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::new(self.reading())
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(WALL_START + i64::try_from(self.start.elapsed().as_millis()).unwrap())
    }
}
