//! The offset of another clock, estimated from its readings.

use std::time::Duration;

use super::{Boottime, UnixMicros};

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The bounds of another clock's offset against our boot-time clock, in microseconds.
///
/// The other clock was read between the sending of the request and the arrival of the answer, so one reading gives an
/// interval. The intersection of many readings is narrow, and network delay only widens a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    least: i64,
    most: i64,
    /// The time of the estimate.
    ///
    /// The interval widens with age.
    at: Boottime,
}

impl ClockOffset {
    /// The offset from one reading: the other clock showed `time`, or up to `resolution` more.
    #[must_use]
    pub fn of_reading(time: UnixMicros, resolution: Duration, sent: Boottime, received: Boottime) -> Self {
        let less = |at: Boottime| time.0.saturating_sub(micros(at.since_boot()));
        // The clocks can have drifted apart since the request was sent.
        Self { least: less(received), most: less(sent).saturating_add(micros(resolution)), at: sent }
    }

    /// The offset at `now`, if the clocks drift apart by up to `ppm`.
    #[must_use]
    pub fn aged(self, now: Boottime, ppm: u32) -> Self {
        let by = micros(now.since(self.at)).saturating_mul(i64::from(ppm)).saturating_add(999_999) / 1_000_000;
        Self { least: self.least.saturating_sub(by), most: self.most.saturating_add(by), at: self.at.max(now) }
    }

    /// The intersection of both estimates.
    ///
    /// If they contradict each other, one of the clocks was set, and the newer reading is the result.
    #[must_use]
    pub fn narrowed_by(self, newer: Self, ppm: u32) -> Self {
        let now = self.at.max(newer.at);
        let (current, reading) = (self.aged(now, ppm), newer.aged(now, ppm));
        let (least, most) = (current.least.max(reading.least), current.most.min(reading.most));
        if least <= most { Self { least, most, at: now } } else { reading }
    }

    /// The earliest time that the other clock can show when our clock shows `at`.
    #[must_use]
    pub fn earliest(self, at: Boottime) -> UnixMicros {
        time_at(self.least, at)
    }

    /// The latest time that the other clock can show when our clock shows `at`.
    #[must_use]
    pub fn latest(self, at: Boottime) -> UnixMicros {
        time_at(self.most, at)
    }

    /// The middle of the interval, when our clock shows `at`.
    #[must_use]
    pub fn middle(self, at: Boottime) -> UnixMicros {
        time_at(self.least.saturating_add(self.most.saturating_sub(self.least) / 2), at)
    }
}

fn time_at(offset: i64, at: Boottime) -> UnixMicros {
    UnixMicros(micros(at.since_boot()).saturating_add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Boottime {
        Boottime::new(Duration::from_millis(millis))
    }

    fn reading(time: i64, sent: u64, received: u64) -> ClockOffset {
        ClockOffset::of_reading(UnixMicros(time * 1_000), Duration::ZERO, at(sent), at(received))
    }

    #[test]
    fn a_slow_answer_never_widens_the_estimate_of_a_quick_one() {
        let quick = reading(5_000, 1_000, 1_002);
        let times = (quick.earliest(at(0)), quick.middle(at(0)), quick.latest(at(0)));
        assert_eq!(times, (UnixMicros(3_998_000), UnixMicros(3_999_000), UnixMicros(4_000_000)));
        let slow = reading(6_000, 2_000, 2_600);
        assert_eq!((slow.earliest(at(0)), slow.latest(at(0))), (UnixMicros(3_400_000), UnixMicros(4_000_000)));
        // 1 s later, at 1 %.
        let both = quick.narrowed_by(slow, 10_000);
        assert_eq!(both.earliest(at(2_000)), UnixMicros(5_998_000 - 10_000));
        assert_eq!(both.latest(at(2_000)), UnixMicros(6_000_000));
    }

    #[test]
    fn readings_that_contradict_each_other_leave_the_newer_one() {
        let set = reading(66_000, 2_000, 2_002);
        assert_eq!(reading(5_000, 1_000, 1_002).narrowed_by(set, 500), set);
    }

    #[test]
    fn an_absurd_clock_does_not_overflow() {
        for time in [i64::MIN, i64::MAX] {
            let absurd = ClockOffset::of_reading(UnixMicros(time), Duration::MAX, at(1), at(u64::MAX));
            let _ = absurd.aged(at(u64::MAX), u32::MAX).narrowed_by(absurd, 1).middle(at(u64::MAX));
        }
    }
}
