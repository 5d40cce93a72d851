//! Pure: what a heartbeat says. A holder that shows one is renewed only so far that its keys end one ttl after the last.
//!
//! The record is a Lease, and what counts is since when this replica has seen it unchanged, not the times that are written in it. So
//! each replica judges for itself. One that cannot read the Lease renews as if there were no heartbeat, until the leader ends the hold:
//! an outage of the API server costs no lock.

use std::time::Duration;

use super::end::Unwell;
use crate::redlock::Drift;
use crate::time::Boottime;

/// A heartbeat may always be as slow as this.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);
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

    /// The moment after which no key may end, if the heartbeat sets one.
    ///
    /// An error says why the hold is not to be renewed.
    pub fn judge(&self, limit: Duration, ttl: Duration, now: Boottime) -> Result<Option<Boottime>, String> {
        let silent = now.since(self.since);
        if bounds_keys(limit, ttl) {
            Ok(Some(self.since + ttl))
        } else if silent > limit {
            Err(Unwell::Silent { silent: silent.into() }.to_string())
        } else {
            Ok(None)
        }
    }
}

/// Whether the keys end one ttl after the last heartbeat. The API server refuses a slower one for new claims. The holder of an older
/// object may beat as slowly as it was told to: its silence only ends the renewal.
fn bounds_keys(limit: Duration, ttl: Duration) -> bool {
    limit <= SHORTEST_LIMIT.max(ttl / 2)
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
            heartbeat.judge(Duration::from_secs(1), TTL, now).unwrap().unwrap()
        };
        assert_eq!(seen("1", at(9)), at(19));
        assert_eq!(seen("1", at(12)), at(19));
        assert_eq!(seen("2", at(13)), at(23));
    }

    #[test]
    fn a_heartbeat_that_never_began_counts_from_the_first_sight_of_the_hold() {
        let mut heartbeat = Heartbeat::new(at(0));
        heartbeat.see(None, at(7));
        assert_eq!(heartbeat.judge(Duration::from_secs(1), TTL, at(7)), Ok(Some(at(10))));
    }

    #[test]
    fn a_slow_heartbeat_of_an_older_object_only_ends_the_renewal() {
        let (mut heartbeat, slow) = (Heartbeat::new(at(0)), Duration::from_secs(8));
        heartbeat.see(Some("1".into()), at(2));
        assert_eq!(heartbeat.judge(slow, TTL, at(10)), Ok(None));
        assert!(heartbeat.judge(slow, TTL, at(11)).unwrap_err().contains("silent for 9s"));
        assert!(heartbeat.judge(TTL / 2, TTL, at(11)).is_ok(), "this one bounds the keys");
        assert!(bounds_keys(Duration::from_secs(1), Duration::from_secs(1)), "1s is always allowed");
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
}
