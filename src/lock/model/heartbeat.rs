//! Pure: limits renewals by a holder's heartbeat, so that its keys end one ttl after the last one.
//!
//! The heartbeat is a Lease. A replica measures from its last observation of a change of the Lease, not from the times in it. Each replica
//! therefore judges independently.
//!
//! A replica that cannot read the Lease renews without this limit until the leader ends the hold. An outage of the API server therefore
//! costs no lock.

use std::time::Duration;

use crate::redlock::Drift;
use crate::time::{Boottime, UnixMillis};

/// How long before the end of its keys a silent holder is checked for the last time.
///
/// This time lets the leader end the hold before its keys expire. For a short ttl it is a tenth of the ttl.
const LAST_CHECK: Duration = Duration::from_millis(500);
/// How early a renewal can begin.
const TOLERANCE: Duration = Duration::from_millis(10);

/// The version of a Lease, and when this replica first observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    version: Option<String>,
    since: Boottime,
}

impl Heartbeat {
    /// The heartbeat of a hold or a Lease that is observed for the first time.
    pub const fn new(now: Boottime) -> Self {
        Self { version: None, since: now }
    }

    /// Records a read of the Lease. A missing Lease has not changed.
    pub fn observe(&mut self, version: Option<String>, now: Boottime) {
        if version.is_some() && version != self.version {
            *self = Self { version, since: now };
        }
    }

    /// The latest time at which the keys of the hold can end.
    pub fn last_end(&self, ttl: Duration) -> Boottime {
        self.since + ttl
    }

    /// How long the Lease has not changed.
    pub fn silent_for(&self, now: Boottime) -> Duration {
        now.since(self.since)
    }
}

/// The renewal of a hold with this `ttl` whose keys must not end after `last`.
///
/// Returns the time to live of the renewal, and the latest time of the next check of the holder. `None` if the time has passed, or if that check
/// would be late.
pub fn bounded(last: Boottime, ttl: Duration, drift: Drift, now: Boottime) -> Option<(Duration, Boottime)> {
    let (early, tolerance) = ((ttl / 10).min(LAST_CHECK), (ttl / 100).min(TOLERANCE));
    // The end of the validity that a renewal at the last heartbeat earned.
    let valid_until = last.saturating_sub(drift.allowance(ttl));
    let is_over = now + early + tolerance >= valid_until;
    (!is_over).then(|| (last.since(now).min(ttl), valid_until.saturating_sub(early)))
}

/// Uncertainty of a time that the API server wrote.
///
/// It writes whole seconds, and the clocks of several API servers differ a little.
const GRAIN: Duration = Duration::from_secs(2);

/// Whether a waiting claim had a heartbeat within its `ttl`, by the API server's clock.
///
/// `created` is the time of the claim, `changed` that of the last change of its Lease. A new claim needs no Lease for its first `ttl`.
pub fn is_alive(created: UnixMillis, changed: Option<UnixMillis>, ttl: Duration, api_now: UnixMillis) -> bool {
    api_now.since(changed.map_or(created, |at| at.max(created))) <= ttl + GRAIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_heartbeat_lasts_from_the_observed_change_of_its_record() {
        let mut heartbeat = Heartbeat::new(at(0));
        let mut observe = |version: &str, now| {
            heartbeat.observe(Some(version.into()), now);
            heartbeat.last_end(TTL)
        };
        assert_eq!(observe("1", at(9)), at(19));
        assert_eq!(observe("1", at(12)), at(19));
        assert_eq!(observe("2", at(13)), at(23));
        let mut missing = Heartbeat::new(at(0));
        missing.observe(None, at(7));
        assert_eq!(missing.last_end(TTL), at(10), "without a record it counts from the first observation");
    }

    #[test]
    fn a_silent_holder_is_renewed_for_a_ttl_after_its_heartbeat() {
        let drift = Drift::default();
        let (last, whole) = (at(20), at(20).saturating_sub(drift.allowance(TTL)));
        let check_at = whole.saturating_sub(Duration::from_millis(500));
        assert_eq!(bounded(last, TTL, drift, at(10)), Some((TTL, check_at)));
        assert_eq!(bounded(last, TTL, drift, at(14)), Some((Duration::from_secs(6), check_at)), "its key ends at 20");
        assert_eq!(bounded(last, TTL, drift, check_at), None);
        assert!(check_at < whole, "the last check comes while the hold is valid");
        assert_eq!(bounded(last, TTL, drift, at(21)), None);
    }

    #[test]
    fn a_claim_whose_heartbeat_has_stopped_is_not_alive() {
        let at = |seconds: i64| UnixMillis(seconds * 1_000);
        assert!(is_alive(at(100), None, TTL, at(105)), "a new claim");
        assert!(!is_alive(at(100), None, TTL, at(113)), "no Lease exists after one ttl");
        assert!(is_alive(at(100), Some(at(150)), TTL, at(155)));
        assert!(!is_alive(at(100), Some(at(150)), TTL, at(163)), "the Lease has not changed for one ttl");
        assert!(is_alive(at(100), Some(at(50)), TTL, at(105)), "a change before the claim is ignored");
    }
}
