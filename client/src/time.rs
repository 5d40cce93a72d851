//! Time as an argument. The core reads clocks only through [`Clock`], so that a test can hold time still.
//!
//! Two clocks are kept apart by type because they err in different directions: [`Boottime`] also runs while the machine
//! is suspended, so a validity counted on it never outlives the key (docs/safety.md); [`Monotonic`] stands still
//! meanwhile, so a fence delay counted on it can only end late, which is the safe side.

mod offset;

pub use offset::{ClockOffset, time_at};

use std::ops::Add;
use std::time::Duration;

/// A reading of `CLOCK_BOOTTIME`: time since boot, suspend included. For validities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boottime(Duration);

/// A reading of `CLOCK_MONOTONIC`: time since boot, suspend left out. For fence delays, where late is safe.
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

        /// Saturates at the end of time, so that an absurd duration cannot panic.
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

/// Wall clock time in milliseconds since the Unix epoch. For people and for other machines, never for a decision here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

/// A Redis member's own wall clock in microseconds since the Unix epoch, as its `TIME` command tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMicros(pub i64);

impl UnixMicros {
    /// The time `duration` later; saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Now, on the clock that tokio's timers go by. For deadlines of requests, never for a validity.
#[expect(clippy::disallowed_methods, reason = "timers go by this clock, also where a test holds it still")]
pub(crate) fn timers_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Where the core gets its time from.
pub trait Clock: Send + Sync + 'static {
    /// `CLOCK_BOOTTIME`.
    fn boottime(&self) -> Boottime;
    /// `CLOCK_MONOTONIC`.
    fn monotonic(&self) -> Monotonic;
    /// `CLOCK_REALTIME`.
    fn wall(&self) -> UnixMillis;
}

pub use clocks::{SystemClock, TokioClock};

mod clocks {
    use super::{Boottime, Clock, Monotonic, UnixMillis};
    use std::time::Duration;

    /// The machine's clocks. The one for validities runs on while the machine is suspended: `CLOCK_BOOTTIME` on Linux, `CLOCK_MONOTONIC`
    /// on macOS, the performance counter on Windows. Other systems may have none; there it is `CLOCK_MONOTONIC`.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct SystemClock;

    #[cfg(not(windows))]
    mod unix {
        use super::{Boottime, Clock, Duration, Monotonic, SystemClock, UnixMillis};
        use rustix::time::{ClockId, Timespec, clock_gettime};

        #[cfg(any(target_os = "linux", target_os = "android"))]
        const THROUGH_SUSPEND: ClockId = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const THROUGH_SUSPEND: ClockId = ClockId::Monotonic;

        /// A reading since boot. These clocks start at zero, so the fallbacks are never taken.
        fn since_boot(now: Timespec) -> Duration {
            Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
        }

        impl Clock for SystemClock {
            fn boottime(&self) -> Boottime {
                Boottime::new(since_boot(clock_gettime(THROUGH_SUSPEND)))
            }

            fn monotonic(&self) -> Monotonic {
                Monotonic::new(since_boot(clock_gettime(ClockId::Monotonic)))
            }

            fn wall(&self) -> UnixMillis {
                let now = clock_gettime(ClockId::Realtime);
                UnixMillis(now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000))
            }
        }
    }

    #[cfg(windows)]
    mod windows {
        use super::{Boottime, Clock, Duration, Monotonic, SystemClock, UnixMillis};
        use std::sync::OnceLock;
        use std::time::{Instant, SystemTime, UNIX_EPOCH};

        /// Since the first reading of this process; the counter behind it runs on in sleep.
        #[allow(clippy::disallowed_methods, reason = "this is where a Clock reads its time")]
        fn since_start() -> Duration {
            static START: OnceLock<Instant> = OnceLock::new();
            Instant::now().saturating_duration_since(*START.get_or_init(Instant::now))
        }

        impl Clock for SystemClock {
            fn boottime(&self) -> Boottime {
                Boottime::new(since_start())
            }

            fn monotonic(&self) -> Monotonic {
                Monotonic::new(since_start())
            }

            #[allow(clippy::disallowed_methods, reason = "this is where a Clock reads its time")]
            fn wall(&self) -> UnixMillis {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                UnixMillis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
            }
        }
    }

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
