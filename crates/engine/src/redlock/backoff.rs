//! The random wait between two attempts.

use std::time::Duration;

/// The wait before the next attempt: `delay` moved by up to `jitter` to either side.
///
/// Contenders that failed together do not collide again. `unit_random` is from `[0, 1)`: 0 gives `delay − jitter`,
/// 0.5 gives `delay`.
#[must_use]
pub fn jittered(delay: Duration, jitter: Duration, unit_random: f64) -> Duration {
    let unit = if unit_random.is_finite() { unit_random.clamp(0.0, 1.0) } else { 0.5 };
    let span = Duration::try_from_secs_f64(jitter.as_secs_f64() * 2.0 * unit).unwrap_or(Duration::MAX);
    delay.saturating_add(span).saturating_sub(jitter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_middle_of_the_range_is_the_delay() {
        let (delay, jitter) = (Duration::from_millis(200), Duration::from_millis(100));
        assert_eq!(jittered(delay, jitter, 0.0), Duration::from_millis(100));
        assert_eq!(jittered(delay, jitter, 0.5), delay);
        assert_eq!(jittered(Duration::ZERO, jitter, 0.0), Duration::ZERO);
        assert_eq!(jittered(delay, jitter, f64::NAN), delay);
    }

    proptest! {
        #[test]
        fn a_jittered_delay_stays_in_its_range(delay in 0_u64..10_000, jitter in 0_u64..10_000, unit in 0.0_f64..1.0) {
            let (delay, jitter) = (Duration::from_millis(delay), Duration::from_millis(jitter));
            let wait = jittered(delay, jitter, unit);
            prop_assert!(wait >= delay.saturating_sub(jitter) && wait <= delay + jitter);
        }
    }
}
