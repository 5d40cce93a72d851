//! The quorum's clock as this replica knows it (`docs/algorithm.md`, "Time").

use std::time::Duration;

use super::QuorumSession;
use crate::quorum::model::timekeeping::Testimony;
use crate::redis_member::Observation;
use crate::time::{Boottime, ClockOffset, UnixMicros, UnixMillis};

/// What the leader decides by about the quorum's clock.
pub(crate) struct TimeView {
    /// What admitted processes tell whose votes count.
    pub(crate) told: Vec<Testimony>,
    /// The quorum's clock, once it is known.
    pub(crate) clock: Option<i64>,
    /// The API server's time.
    pub(crate) api: ClockOffset,
}

/// The schema of the status allows no larger one. A master that others run may tell any time.
const MOST_OFFSET: i64 = (1 << 53) - 1;

impl QuorumSession {
    /// The time of this quorum at this moment of our boot-time clock.
    ///
    /// The times of its locks are written and judged by it. `None` while this replica does not know it.
    pub fn quorum_time(&self, at: Boottime) -> Option<UnixMillis> {
        Some(UnixMillis(self.clocks.quorum_time(at)?.0.div_euclid(1_000)))
    }

    /// All that is known of the quorum's clock now.
    pub(crate) fn time_view(&self) -> TimeView {
        let now = self.context.clock.boottime();
        let (told, clock) = self.clocks.testimonies(now);
        TimeView { told, clock, api: self.api_offset(now) }
    }

    /// What has to be added to the clock of this process to give the quorum's clock, as it runs now.
    ///
    /// An admission records it. Where the quorum's clock is not known it begins as the API server's.
    pub(crate) fn clock_offset_of(&self, process: &Observation) -> i64 {
        let TimeView { clock, api, .. } = self.time_view();
        let sample = &process.clock;
        let single = ClockOffset::of_reading(sample.time, Duration::ZERO, sample.sent, sample.received);
        let reading = self.clocks.reading_of(&process.run_id).unwrap_or(single);
        let offset = clock.unwrap_or_else(|| api.middle()).saturating_sub(reading.middle());
        offset.clamp(-MOST_OFFSET, MOST_OFFSET)
    }

    /// An API server that dates no answer leaves this machine's wall clock.
    fn api_offset(&self, now: Boottime) -> ClockOffset {
        let wall = || {
            let wall = UnixMicros(self.context.clock.wall().0.saturating_mul(1_000));
            ClockOffset::of_reading(wall, Duration::ZERO, now, now)
        };
        self.context.api_time.offset(now).unwrap_or_else(wall)
    }
}
