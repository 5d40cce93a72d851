//! Pure: the drift of clocks, the validity of holds, and the rejoin delay.

use std::time::Duration;

use crate::time::Boottime;

/// The maximum drift of two clocks.
///
/// It is `ppm` of the measured time, plus `floor` for the granularity of clocks and Redis.
///
/// It bounds the *relative* drift of two clocks, at least twice that of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Parts per million of the time measured; 10 000 is 1 %.
    pub ppm: u32,
    /// A constant part, added once.
    pub floor: Duration,
}

impl Default for Drift {
    /// 1 % + 2 ms, the values that the Redlock libraries use.
    fn default() -> Self {
        Self { ppm: 10_000, floor: Duration::from_millis(2) }
    }
}

const MILLION: u128 = 1_000_000;

fn from_nanos(nanos: u128) -> Duration {
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

impl Drift {
    /// The time to subtract from (or add to) a time on another clock: `time × ppm + floor`, rounded up.
    #[must_use]
    pub fn allowance(self, time: Duration) -> Duration {
        from_nanos((time.as_nanos().saturating_mul(u128::from(self.ppm))).div_ceil(MILLION)).saturating_add(self.floor)
    }
}

/// The time that remains of a lock's `ttl` when a round took `elapsed`.
///
/// It is `ttl − elapsed − (ttl × drift + floor)`, and `elapsed` begins before the first request. It is `None` if nothing remains, and then
/// the round failed. This formula occurs only here (redis.io/docs/latest/develop/clients/patterns/distributed-locks).
#[must_use]
pub fn validity(ttl: Duration, elapsed: Duration, drift: Drift) -> Option<Duration> {
    ttl.checked_sub(elapsed)?.checked_sub(drift.allowance(ttl)).filter(|left| !left.is_zero())
}

/// The end of an acquisition that began at `started` and was decided at `now`.
///
/// `None` if nothing remains.
#[must_use]
pub fn granted_until(started: Boottime, now: Boottime, ttl: Duration, drift: Drift) -> Option<Boottime> {
    validity(ttl, now.since(started), drift).map(|left| now + left)
}

/// The end of a hold whose extension began at `started` and reached a majority at `now`.
///
/// It is the later of the `previous` end and the end that this round earned. `None` after the previous end: another
/// client perhaps held the lock in between, so no number of votes makes the hold valid again (continuity).
#[must_use]
pub fn renewed_until(
    started: Boottime,
    now: Boottime,
    previous: Boottime,
    ttl: Duration,
    drift: Drift,
) -> Option<Boottime> {
    (now < previous).then(|| granted_until(started, now, ttl, drift).unwrap_or(previous).max(previous))
}

/// The last moment of the repairs of a round that began at `started`: a quarter of the ttl later.
///
/// `None` for a ttl of less than four node timeouts, because a repair after refusals could revive a hold that has ended
/// (docs/dev/algorithm.md, "Continuity").
#[must_use]
pub fn repair_until(started: Boottime, ttl: Duration, node_timeout: Duration) -> Option<Boottime> {
    (ttl >= node_timeout.saturating_mul(4)).then(|| started + ttl / 4)
}

/// The time for which a process that has lost its keys stays fenced, from its first observation.
///
/// Every promise of its predecessor has then expired on every clock: `maxTTL × (1 + ρ) / (1 − ρ) + floor +
/// nodeTimeout`, rounded up. It is long enough also for clients that subtract no drift. The model check proves that it
/// is tight (docs/dev/rules.md).
#[must_use]
pub fn rejoin_delay(max_ttl_in_force: Duration, drift: Drift, node_timeout: Duration) -> Duration {
    let ppm = u128::from(drift.ppm);
    // No time is long enough for a drift of 100 % or more.
    let Some(slowest) = MILLION.checked_sub(ppm).filter(|rest| *rest > 0) else { return Duration::MAX };
    let stretched = max_ttl_in_force.as_nanos().saturating_mul(MILLION + ppm).div_ceil(slowest);
    from_nanos(stretched).saturating_add(drift.floor).saturating_add(node_timeout)
}

/// The maximum time to live that a fence of `delay` covers.
///
/// It is the inverse of [`rejoin_delay`].
#[must_use]
pub fn longest_ttl(delay: Duration, drift: Drift, node_timeout: Duration) -> Duration {
    let ppm = u128::from(drift.ppm);
    let slowest = MILLION.saturating_sub(ppm);
    let left = delay.saturating_sub(drift.floor).saturating_sub(node_timeout);
    from_nanos(left.as_nanos().saturating_mul(slowest) / (MILLION + ppm))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn validity_is_ttl_less_elapsed_less_drift() {
        let drift = Drift::default();
        for (ttl, elapsed, left) in [
            (30_000, 0, Some(29_698)),
            (30_000, 100, Some(29_598)),
            (10_000, 9_897, Some(1)),
            (10_000, 9_898, None),
            (10_000, 20_000, None),
            (0, 0, None),
        ] {
            assert_eq!(validity(ms(ttl), ms(elapsed), drift), left.map(ms), "ttl {ttl} elapsed {elapsed}");
        }
    }

    #[test]
    fn rejoin_delay_covers_every_promise_on_the_slowest_clock() {
        let delay = rejoin_delay(ms(30_000), Drift::default(), ms(50));
        assert_eq!(delay, Duration::from_nanos(30_606_060_607) + ms(52));
        assert_eq!(rejoin_delay(ms(1), Drift { ppm: 1_000_000, floor: ms(2) }, ms(50)), Duration::MAX);
        assert_eq!(rejoin_delay(Duration::MAX, Drift::default(), ms(50)), Duration::MAX);
    }

    proptest! {
        #[test]
        fn a_validity_ends_before_the_key_on_a_clock_within_the_drift(
            ttl in 1_000_u64..3_600_000, elapsed in 0_u64..3_600_000, ppm in 0_u32..400_000,
        ) {
            let drift = Drift { ppm, floor: ms(2) };
            if let Some(left) = validity(ms(ttl), ms(elapsed), drift) {
                // The key lives for ttl on a clock that can run fast by ppm against ours: ttl × (1 − ppm) of our time.
                let key_lives = ms(ttl).as_nanos() * (1_000_000 - u128::from(ppm)) / 1_000_000;
                prop_assert!((ms(elapsed) + left).as_nanos() <= key_lives);
            }
        }

        #[test]
        fn the_longest_ttl_of_a_delay_is_covered_by_it(ttl in 1_000_u64..3_600_000, ppm in 0_u32..900_000) {
            let drift = Drift { ppm, floor: ms(2) };
            let delay = rejoin_delay(ms(ttl), drift, ms(50));
            let longest = longest_ttl(delay, drift, ms(50));
            prop_assert!(longest >= ms(ttl) && rejoin_delay(longest, drift, ms(50)) <= delay);
        }

        #[test]
        fn a_longer_ttl_or_a_larger_drift_never_shortens_the_fence(
            ttl in 0_u64..3_600_000, more in 0_u64..1_000, ppm in 0_u32..900_000, worse in 0_u32..90_000,
        ) {
            let base = rejoin_delay(ms(ttl), Drift { ppm, floor: ms(2) }, ms(50));
            prop_assert!(base >= ms(ttl + 52));
            let longer = rejoin_delay(ms(ttl + more), Drift { ppm, floor: ms(2) }, ms(50));
            let drifting = rejoin_delay(ms(ttl), Drift { ppm: ppm + worse, floor: ms(2) }, ms(50));
            prop_assert!(longer >= base && drifting >= base);
        }
    }
}
