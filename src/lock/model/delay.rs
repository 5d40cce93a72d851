//! Pure: `lockDelay`, the time between the end of a hold that its holder did not release and the next grant.
//!
//! The field `ending.until` records it once. On the members, the seal's time to live includes it, so that it applies to clients outside the
//! operator. If the key is gone before it could be sealed, a seal is set for the rest of the delay.

use std::time::Duration;

use crate::api::{DistributedLock, MilliTime};
use crate::time::UnixMillis;

/// The delay, limited so that no seal outlives the time for which fences wait.
///
/// The operator refuses a specification that was changed to a longer delay, but its hold continues.
pub fn lock_delay(lock: &DistributedLock, max_ttl_in_force: Duration) -> Duration {
    let wanted = lock.spec.lock_delay.map_or(Duration::ZERO, |delay| delay.get());
    wanted.min(max_ttl_in_force.saturating_sub(lock.spec.ttl.get()))
}

/// When the next holder can get the lock, after a validity that ends at `until`.
///
/// Without a session the maxTTL in force is unknown. Then the whole lockDelay counts here, and the seal shortens it.
pub fn end_of_delay(lock: &DistributedLock, until: MilliTime, max_ttl_in_force: Option<Duration>) -> Option<MilliTime> {
    let delay = lock_delay(lock, max_ttl_in_force.unwrap_or(Duration::MAX));
    MilliTime::from_millis(UnixMillis::from(until).plus(delay).0)
}

/// The rest of the delay of a hold that ends, at most `longest`. Without a clock it is the whole delay.
pub fn left_of_delay(lock: &DistributedLock, now: Option<UnixMillis>, longest: Duration) -> Duration {
    let delay = lock_delay(lock, longest);
    match (lock.ending().and_then(|ending| ending.until), now) {
        _ if delay.is_zero() => Duration::ZERO,
        (Some(until), Some(now)) => UnixMillis::from(until).since(now).min(longest),
        _ => delay,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;

    const MAX_TTL: Duration = Duration::from_secs(30);

    fn ending(reason: &str, delay: &str) -> DistributedLock {
        let (since, until) = ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:20.000Z");
        let status = json!({"transitions": 1, "ending": {"since": since, "reason": reason, "until": until}});
        lock(json!({"key": "a", "claim": {"identity": "a"}, "ttl": "10s", "lockDelay": delay}), status)
    }

    #[test]
    fn the_delay_of_every_end_is_set_again_where_the_key_is_gone() {
        for reason in ["Expired", "HolderGone", "Suspended", "SteppedDown", "Broken"] {
            let left = left_of_delay(&ending(reason, "8s"), Some(UnixMillis(15_000)), MAX_TTL);
            assert_eq!(left, Duration::from_secs(5), "{reason}");
        }
        assert_eq!(left_of_delay(&ending("Broken", "8s"), Some(UnixMillis(20_000)), MAX_TTL), Duration::ZERO);
        assert_eq!(left_of_delay(&ending("Broken", "0s"), Some(UnixMillis(15_000)), MAX_TTL), Duration::ZERO);
        assert_eq!(left_of_delay(&ending("Broken", "8s"), None, MAX_TTL), Duration::from_secs(8));
    }

    #[test]
    fn no_delay_makes_a_seal_outlive_the_wait_of_fences() {
        let refused = ending("Broken", "1h");
        assert_eq!(lock_delay(&refused, MAX_TTL), Duration::from_secs(20));
        assert_eq!(left_of_delay(&refused, Some(UnixMillis(-3_600_000)), MAX_TTL), MAX_TTL);
    }

    #[test]
    fn the_delay_begins_at_the_end_of_the_validity() {
        let until = MilliTime::from_millis(10_000).unwrap();
        let end = |delay, limit| end_of_delay(&ending("Expired", delay), until, limit).map(MilliTime::as_millis);
        assert_eq!(end("8s", Some(MAX_TTL)), Some(18_000));
        assert_eq!(end("1h", Some(MAX_TTL)), Some(30_000));
        assert_eq!(end("8s", None), Some(18_000), "it applies to a loss without a session");
    }
}
