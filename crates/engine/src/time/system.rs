//! The clocks of this machine.

use super::{Boottime, Clock, Monotonic, UnixMillis};

/// Reads the clocks of the operating system.
///
/// | system | [`Clock::boottime`], which also runs during suspend | [`Clock::monotonic`] |
/// |---|---|---|
/// | Linux, Android | `CLOCK_BOOTTIME` | `CLOCK_MONOTONIC`, which stands still |
/// | macOS, iOS | `CLOCK_MONOTONIC` | `CLOCK_UPTIME_RAW`, which stands still |
/// | Windows | the performance counter | the same |
/// | others | `CLOCK_MONOTONIC`: the system's manual describes suspend | the same |
///
/// A delay on a clock that runs during suspend ends on time, and a delay on the other kind ends later. Both are safe.
/// Linux is tested. For macOS and Windows a check confirms that the crate compiles.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Time since the first reading in this process.
///
/// It is `CLOCK_UPTIME_RAW` on macOS, and the performance counter on Windows.
#[cfg(any(windows, target_vendor = "apple"))]
#[allow(clippy::disallowed_methods, reason = "this is where a Clock reads its time")]
fn since_start() -> std::time::Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Instant::now().saturating_duration_since(start)
}

/// Reads the wall clock through `std`.
///
/// On Unix `std` calls the C library, so a test can set this clock for one process.
#[allow(clippy::disallowed_methods, reason = "this is where a Clock reads its time")]
fn wall() -> UnixMillis {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(not(windows))]
mod unix {
    use std::time::Duration;

    use rustix::time::{ClockId, Timespec, clock_gettime};

    use super::{Boottime, Clock, Monotonic, SystemClock, UnixMillis};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const THROUGH_SUSPEND: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const THROUGH_SUSPEND: ClockId = ClockId::Monotonic;

    /// A reading since boot.
    ///
    /// These clocks start at zero, so the fallbacks are never taken.
    fn since_boot(now: Timespec) -> Duration {
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    impl Clock for SystemClock {
        fn boottime(&self) -> Boottime {
            Boottime::new(since_boot(clock_gettime(THROUGH_SUSPEND)))
        }

        #[cfg(not(target_vendor = "apple"))]
        fn monotonic(&self) -> Monotonic {
            Monotonic::new(since_boot(clock_gettime(ClockId::Monotonic)))
        }

        #[cfg(target_vendor = "apple")]
        fn monotonic(&self) -> Monotonic {
            Monotonic::new(super::since_start())
        }

        fn wall(&self) -> UnixMillis {
            super::wall()
        }
    }
}

#[cfg(windows)]
mod windows {
    use super::{Boottime, Clock, Monotonic, SystemClock, UnixMillis, since_start};

    impl Clock for SystemClock {
        fn boottime(&self) -> Boottime {
            Boottime::new(since_start())
        }

        fn monotonic(&self) -> Monotonic {
            Monotonic::new(since_start())
        }

        fn wall(&self) -> UnixMillis {
            super::wall()
        }
    }
}
