//! Time as an argument.
//!
//! The core reads clocks only through [`Clock`], so a test can stop time.
//!
//! Two clocks have types of their own because they err in different directions. [`Boottime`] also runs while the
//! machine is suspended, so a validity on it never outlives the key (docs/dev/rules.md). [`Monotonic`] stands still
//! during suspend, so a fence delay on it can only end late, which is safe.

mod offset;
mod system;
mod tokio_clock;

pub use offset::ClockOffset;
pub use system::SystemClock;
pub use tokio_clock::TokioClock;

use std::ops::Add;
use std::time::Duration;

/// A reading of a clock that also runs during suspend.
///
/// On Linux it is `CLOCK_BOOTTIME`. Validities use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boottime(Duration);

/// A reading of a clock that can stand still during suspend.
///
/// On Linux it is `CLOCK_MONOTONIC`. Fence delays use it, because they can safely end late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(Duration);

macro_rules! reading {
    ($name:ident) => {
        impl $name {
            /// The reading `since_boot` after boot.
            #[must_use]
            pub const fn new(since_boot: Duration) -> Self {
                Self(since_boot)
            }

            /// Time since boot.
            #[must_use]
            pub const fn since_boot(self) -> Duration {
                self.0
            }

            /// Time passed since `earlier`; zero if that is later.
            #[must_use]
            pub const fn since(self, earlier: Self) -> Duration {
                self.0.saturating_sub(earlier.0)
            }

            /// The reading `duration` before this one, at the earliest the boot.
            #[must_use]
            pub const fn saturating_sub(self, duration: Duration) -> Self {
                Self(self.0.saturating_sub(duration))
            }
        }

        /// Saturates, so that an extreme duration cannot cause a panic.
        impl Add<Duration> for $name {
            type Output = Self;

            fn add(self, duration: Duration) -> Self {
                Self(self.0.saturating_add(duration))
            }
        }
    };
}

reading!(Boottime);
reading!(Monotonic);

/// Wall clock time in milliseconds since the Unix epoch.
///
/// It is for users and for other machines. No decision here depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

/// A Redis member's wall clock in microseconds since the Unix epoch, as `TIME` returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub i64);

impl UnixMillis {
    /// The time `duration` later. It saturates.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time that has passed since `earlier`; zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl UnixMicros {
    /// The time `duration` later. It saturates.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time in milliseconds, rounded down.
    #[must_use]
    pub const fn floor(self) -> UnixMillis {
        UnixMillis(self.0.div_euclid(1_000))
    }

    /// The time in milliseconds, rounded up.
    #[must_use]
    pub const fn ceil(self) -> UnixMillis {
        UnixMillis(self.0.saturating_add(999).div_euclid(1_000))
    }
}

/// Returns the current time of tokio's timers.
///
/// It is for deadlines of requests, never for a validity.
#[expect(clippy::disallowed_methods, reason = "timers go by this clock, also where a test holds it still")]
#[must_use]
pub fn timers_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The clocks of a machine, or of a test.
pub trait Clock: Send + Sync + 'static {
    /// A clock that also runs during suspend, such as `CLOCK_BOOTTIME`.
    fn boottime(&self) -> Boottime;
    /// A clock that can stand still during suspend, such as `CLOCK_MONOTONIC`.
    fn monotonic(&self) -> Monotonic;
    /// The wall clock, for users and other machines, such as `CLOCK_REALTIME`.
    fn wall(&self) -> UnixMillis;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_readings_is_never_negative() {
        let early = Boottime::new(Duration::from_secs(5));
        let late = early + Duration::from_millis(1_500);
        assert_eq!(late.since(early), Duration::from_millis(1_500));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.saturating_sub(Duration::from_secs(9)), Boottime::default());
        assert_eq!(late + Duration::MAX, Boottime::new(Duration::MAX));
    }

    #[test]
    fn the_system_clocks_run_forward() {
        let clock = SystemClock;
        let (boot, mono, wall) = (clock.boottime(), clock.monotonic(), clock.wall());
        assert!(boot.since_boot() > Duration::ZERO);
        assert!(clock.boottime() >= boot && clock.monotonic() >= mono);
        assert!(wall.0 > 1_700_000_000_000, "after 2023: {wall:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_follows_a_paused_runtime() {
        let clock = TokioClock::new();
        let (boot, mono, wall) = (clock.boottime(), clock.monotonic(), clock.wall());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(clock.boottime().since(boot), Duration::from_secs(3));
        assert_eq!(clock.monotonic().since(mono), Duration::from_secs(3));
        assert_eq!(clock.wall().0 - wall.0, 3_000);
    }
}
