//! How another clock stands against ours, as readings of it tell.

use super::{Boottime, UnixMicros};
use std::time::Duration;

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// What has to be added to our boot-time clock to give another clock: it lies between two numbers of microseconds.
///
/// A reading was taken somewhere between the sending of the question and the arrival of the answer, so it gives an interval. The
/// intersection of many is narrow, and delay in the network only widens a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    least: i64,
    most: i64,
    /// When it was known. It is known less exactly with age.
    at: Boottime,
}

impl ClockOffset {
    /// What one reading says: the other clock showed `time`, or up to `resolution` more.
    #[must_use]
    pub fn of_reading(time: UnixMicros, resolution: Duration, sent: Boottime, received: Boottime) -> Self {
        let less = |at: Boottime| time.0.saturating_sub(micros(at.since_boot()));
        // The clocks can have run apart since the question was sent.
        Self { least: less(received), most: less(sent).saturating_add(micros(resolution)), at: sent }
    }

    /// Known to be so much at this moment.
    #[must_use]
    pub const fn exactly(offset: i64, at: Boottime) -> Self {
        Self { least: offset, most: offset, at }
    }

    /// When it was known.
    #[must_use]
    pub const fn at(self) -> Boottime {
        self.at
    }

    /// What is known later, if the clocks run apart by up to `ppm`.
    #[must_use]
    pub fn aged(self, now: Boottime, ppm: u32) -> Self {
        let by = micros(now.since(self.at)).saturating_mul(i64::from(ppm)).saturating_add(999_999) / 1_000_000;
        Self { least: self.least.saturating_sub(by), most: self.most.saturating_add(by), at: self.at.max(now) }
    }

    /// What both say. If they contradict each other one of the clocks was set, and the newer reading counts.
    #[must_use]
    pub fn narrowed_by(self, newer: Self, ppm: u32) -> Self {
        let now = self.at.max(newer.at);
        let (known, reading) = (self.aged(now, ppm), newer.aged(now, ppm));
        let (least, most) = (known.least.max(reading.least), known.most.min(reading.most));
        if least <= most { Self { least, most, at: now } } else { reading }
    }

    /// The best guess.
    #[must_use]
    pub const fn middle(self) -> i64 {
        self.least.saturating_add(self.most.saturating_sub(self.least) / 2)
    }

    /// Not less than this.
    #[must_use]
    pub const fn least(self) -> i64 {
        self.least
    }

    /// Not more than this.
    #[must_use]
    pub const fn most(self) -> i64 {
        self.most
    }

    /// A clock that is so many microseconds ahead of this one.
    #[must_use]
    pub const fn plus(self, by: i64) -> Self {
        Self { least: self.least.saturating_add(by), most: self.most.saturating_add(by), at: self.at }
    }
}

/// What a clock shows at this moment that has to be added so much to our boot-time clock.
#[must_use]
pub fn time_at(offset: i64, at: Boottime) -> UnixMicros {
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
    fn a_slow_answer_says_less_and_takes_nothing_from_a_quick_one() {
        let quick = reading(5_000, 1_000, 1_002);
        assert_eq!((quick.least(), quick.middle(), quick.most()), (3_998_000, 3_999_000, 4_000_000));
        let slow = reading(6_000, 2_000, 2_600);
        assert_eq!((slow.least(), slow.most()), (3_400_000, 4_000_000));
        // 1 s later, at 1 %.
        let both = quick.narrowed_by(slow, 10_000);
        assert_eq!((both.least(), both.most()), (3_998_000 - 10_000, 4_000_000));
        assert_eq!(time_at(both.most(), at(2_000)), UnixMicros(6_000_000));
    }

    #[test]
    fn readings_that_contradict_each_other_leave_the_newer_one() {
        let set = reading(66_000, 2_000, 2_002);
        assert_eq!(reading(5_000, 1_000, 1_002).narrowed_by(set, 500), set);
        assert_eq!(set.plus(-7).middle(), set.middle() - 7);
    }

    #[test]
    fn an_absurd_clock_does_not_overflow() {
        for time in [i64::MIN, i64::MAX] {
            let absurd = ClockOffset::of_reading(UnixMicros(time), Duration::MAX, at(1), at(u64::MAX));
            let _ = absurd.plus(time).aged(at(u64::MAX), u32::MAX).narrowed_by(absurd, 1).middle();
            let _ = time_at(time, at(u64::MAX));
        }
    }
}
