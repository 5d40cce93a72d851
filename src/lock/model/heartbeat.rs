//! Pure: what a heartbeat says. A holder that shows one is renewed only so far that its keys end one ttl after the last.
//!
//! The record is a Lease, and what counts is since when this replica has seen it unchanged, not the times that are written in it. So
//! each replica judges for itself. One that cannot read the Lease renews as if there were no heartbeat, until the leader ends the hold:
//! an outage of the API server costs no lock.

use std::time::Duration;

use crate::redlock::Drift;
use crate::time::{Boottime, UnixMillis};

/// How long before the end of its keys a silent holder is asked for the last time.
/// Where a tenth of its ttl is less than this, that counts. The leader then ends the hold in order.
const LAST_LOOK: Duration = Duration::from_millis(500);
/// Renewals begin up to so much before they are due.
const TOLERANCE: Duration = Duration::from_millis(10);

/// The version of the heartbeat's Lease, and since when this replica has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    version: Option<String>,
    since: Boottime,
}

impl Heartbeat {
    /// The hold is seen for the first time.
    pub const fn new(now: Boottime) -> Self {
        Self { version: None, since: now }
    }

    /// The Lease was read. One that does not exist has not changed.
    pub fn see(&mut self, version: Option<String>, now: Boottime) {
        if version.is_some() && version != self.version {
            *self = Self { version, since: now };
        }
    }

    /// The moment after which no key may end.
    pub fn last_end(&self, ttl: Duration) -> Boottime {
        self.since + ttl
    }
}

/// How to renew a hold whose keys must not end after a certain moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// With this time to live. The holder is asked again at the latest at this moment.
    Renew(Duration, Boottime),
    /// Not at all: the time is over, or another look would come too late.
    Over,
}

/// How to renew a hold with this `ttl` whose keys must not end after `last`.
pub fn bounded(last: Boottime, ttl: Duration, drift: Drift, now: Boottime) -> Bounded {
    let (early, tolerance) = ((ttl / 10).min(LAST_LOOK), (ttl / 100).min(TOLERANCE));
    // What a renewal at the moment of the last heartbeat has earned.
    let valid_until = last.saturating_sub(drift.allowance(ttl));
    if now + early + tolerance >= valid_until {
        return Bounded::Over;
    }
    Bounded::Renew(last.since(now).min(ttl), valid_until.saturating_sub(early))
}

/// How far a time that the API server wrote can be off.
///
/// It writes whole seconds, and several API servers differ a little.
const GRAIN: Duration = Duration::from_secs(2);

/// Whether a claim that waits has shown life within its `ttl`.
///
/// The API server's clock counts: `created` is that of the claim, `changed` that of the last change of its Lease. A new claim needs no
/// Lease for its first `ttl`.
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
    fn a_heartbeat_counts_from_when_its_record_was_seen_to_change() {
        let mut heartbeat = Heartbeat::new(at(0));
        let mut seen = |version: &str, now| {
            heartbeat.see(Some(version.into()), now);
            heartbeat.last_end(TTL)
        };
        assert_eq!(seen("1", at(9)), at(19));
        assert_eq!(seen("1", at(12)), at(19));
        assert_eq!(seen("2", at(13)), at(23));
    }

    #[test]
    fn a_heartbeat_that_never_began_counts_from_the_first_sight_of_the_hold() {
        let mut heartbeat = Heartbeat::new(at(0));
        heartbeat.see(None, at(7));
        assert_eq!(heartbeat.last_end(TTL), at(10));
    }

    #[test]
    fn a_silent_holder_is_renewed_no_further_than_a_ttl_after_its_last_heartbeat() {
        let drift = Drift::default();
        let (last, whole) = (at(20), at(20).saturating_sub(drift.allowance(TTL)));
        let look = whole.saturating_sub(Duration::from_millis(500));
        assert_eq!(bounded(last, TTL, drift, at(10)), Bounded::Renew(TTL, look));
        assert_eq!(
            bounded(last, TTL, drift, at(14)),
            Bounded::Renew(Duration::from_secs(6), look),
            "its key ends at 20"
        );
        assert_eq!(bounded(last, TTL, drift, look), Bounded::Over);
        assert!(look < whole, "the hold is still valid then, so that it can be ended in order");
        assert_eq!(bounded(last, TTL, drift, at(21)), Bounded::Over);
    }

    #[test]
    fn a_claim_whose_heartbeat_has_stopped_is_not_alive() {
        let at = |seconds: i64| UnixMillis(seconds * 1_000);
        assert!(is_alive(at(100), None, TTL, at(105)), "a new claim");
        assert!(!is_alive(at(100), None, TTL, at(113)), "no Lease came");
        assert!(is_alive(at(100), Some(at(150)), TTL, at(155)));
        assert!(!is_alive(at(100), Some(at(150)), TTL, at(163)), "the Lease does not change any more");
        assert!(is_alive(at(100), Some(at(50)), TTL, at(105)), "the Lease of an earlier claim counts for nothing");
    }
}
