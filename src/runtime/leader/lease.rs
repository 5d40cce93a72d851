//! Pure: decisions about the Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::LEASE_DURATION;
use crate::time::{Boottime, UnixMillis};

/// The origin of epochs: 2023-11-14. They fit the Lease's 32-bit `leaseTransitions` until 2091.
const EPOCH_ORIGIN_SECONDS: i64 = 1_700_000_000;
/// How far a plausible epoch can be ahead of the last epoch and the clock, in seconds.
///
/// A leader with a plausible clock never makes a larger epoch, so a user wrote it by hand. An epoch above it would use up the remaining epochs.
const EPOCH_LEAD: i64 = 31 * 86_400;

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Renew it, because this replica holds it in the current term.
    Renew,
    /// Take it, for a new term.
    ///
    /// No replica holds it, its holder did not renew it for its whole duration, or it names this replica with an unknown term.
    Take,
    /// Wait, because another replica holds it, or should take it.
    Wait,
}

/// The fields that every renewal changes.
///
/// Users can edit the Lease, so a new resourceVersion does not prove a renewal.
fn mark(lease: &Lease) -> LeaseSpec {
    let LeaseSpec { holder_identity, lease_transitions, acquire_time, renew_time, .. } =
        lease.spec.clone().unwrap_or_default();
    LeaseSpec { holder_identity, lease_transitions, acquire_time, renew_time, ..LeaseSpec::default() }
}

/// The time since which this replica has observed no change of a Lease by its holder.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseObservation {
    mark: Option<LeaseSpec>,
    at: Boottime,
}

impl LeaseObservation {
    /// Observes the Lease, and returns the time since which it is unchanged.
    pub(super) fn observe(&mut self, lease: &Lease, now: Boottime) -> Boottime {
        let mark = Some(mark(lease));
        if self.mark != mark {
            *self = Self { mark, at: now };
        }
        self.at
    }
}

/// Decides from the Lease's spec and from the time for which it is unchanged.
///
/// This replica is `me`, and leads the term with this epoch. `take_delay` is the delay before it takes a Lease without a holder, so that another
/// replica can take it.
pub(super) fn evaluate(
    spec: &LeaseSpec,
    me: &str,
    epoch: Option<i64>,
    take_delay: Duration,
    unchanged_for: Duration,
) -> Verdict {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder == me {
        let same_term = epoch.is_some() && epoch == spec.lease_transitions.map(i64::from);
        return if same_term { Verdict::Renew } else { Verdict::Take };
    }
    let duration = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
    let wait = if holder.is_empty() { take_delay } else { duration.map_or(LEASE_DURATION, Duration::from_secs) };
    if unchanged_for >= wait { Verdict::Take } else { Verdict::Wait }
}

/// The highest observed epoch, including that of the Lease.
///
/// At [`i32::MAX`] no term can begin. An administrator resets the count by deleting the Lease, or by setting a smaller number in it.
pub(super) fn highest_epoch(before: Option<i32>, lease: Option<i32>) -> Option<i32> {
    match before {
        Some(i32::MAX) => lease,
        before => before.max(lease),
    }
}

/// The epoch of a new term.
///
/// It is above the last known epoch, and above every epoch of a Lease that was deleted since. `None` means that no higher epoch exists. A term
/// with a repeated epoch could not be distinguished from the earlier term, whose leader could still act.
pub(super) fn next_epoch(last: Option<i32>, now: UnixMillis) -> Option<i32> {
    let by_clock = by_clock(now);
    last.map_or(Some(by_clock), |last| last.checked_add(1).map(|next| next.max(by_clock)))
}

/// The epoch that a member requires, if a new term can begin above it.
pub(super) fn plausible_epoch(epoch: i64, last: Option<i32>, now: UnixMillis) -> Option<i32> {
    let limit = i64::from(last.unwrap_or(0).max(by_clock(now))).saturating_add(EPOCH_LEAD);
    i32::try_from(epoch).ok().filter(|epoch| i64::from(*epoch) <= limit)
}

fn by_clock(now: UnixMillis) -> i32 {
    i32::try_from(now.0.div_euclid(1_000) - EPOCH_ORIGIN_SECONDS).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::tests::boottime as at;

    const TAKE_DELAY: Duration = Duration::from_millis(1_500);

    fn spec(holder: Option<&str>, epoch: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: holder.map(Into::into),
            lease_duration_seconds: Some(4),
            lease_transitions: Some(epoch),
            ..LeaseSpec::default()
        }
    }

    fn unix(seconds: i64) -> UnixMillis {
        UnixMillis((EPOCH_ORIGIN_SECONDS + seconds) * 1_000)
    }

    #[test]
    fn a_lease_is_renewed_in_its_own_term_and_taken_when_it_is_free() {
        for (case, holder, epoch, unchanged_for, verdict) in [
            ("our own, however old it looks", Some("me"), Some(7), 100, Verdict::Renew),
            ("an earlier process of this replica led", Some("me"), None, 0, Verdict::Take),
            ("there was another term in between", Some("me"), Some(6), 0, Verdict::Take),
            ("it was ours, and was released", None, Some(7), 0, Verdict::Take),
            ("another replica's, before its whole duration", Some("other"), None, 3, Verdict::Wait),
            ("another replica's, after its whole duration", Some("other"), None, 4, Verdict::Take),
            ("released", None, None, 0, Verdict::Take),
            ("released with an empty name", Some(""), None, 0, Verdict::Take),
        ] {
            let unchanged_for = Duration::from_secs(unchanged_for);
            assert_eq!(evaluate(&spec(holder, 7), "me", epoch, Duration::ZERO, unchanged_for), verdict, "{case}");
        }
    }

    #[test]
    fn a_free_lease_is_left_to_other_replicas_for_the_delay() {
        let take =
            |millis| evaluate(&spec(None, 7), "me", None, TAKE_DELAY, Duration::from_millis(millis)) == Verdict::Take;
        assert_eq!((take(0), take(1_499), take(1_500)), (false, false, true));
    }

    #[test]
    fn a_write_of_a_standby_is_no_renewal() {
        let mut lease = Lease { spec: Some(spec(Some("other"), 7)), ..Lease::default() };
        let mut observation = LeaseObservation::default();
        assert_eq!(observation.observe(&lease, at(10)), at(10));
        lease.metadata.resource_version = Some("2".into());
        lease.metadata.annotations = Some([("note".to_owned(), "of a standby".to_owned())].into());
        assert_eq!(observation.observe(&lease, at(12)), at(10));
        lease.spec.as_mut().unwrap().renew_time = Some(MicroTime(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(observation.observe(&lease, at(13)), at(13));
    }

    #[test]
    fn epochs_rise_through_new_leaders_and_a_deleted_lease() {
        let first = next_epoch(None, unix(100)).unwrap();
        let second = next_epoch(Some(first), unix(100)).unwrap();
        let after_deletion = next_epoch(None, unix(110)).unwrap();
        assert!(first < second && second < after_deletion);
    }

    #[test]
    fn no_term_follows_the_last_epoch_until_the_lease_is_lower() {
        assert_eq!(next_epoch(Some(i32::MAX - 1), unix(100)), Some(i32::MAX));
        let current = highest_epoch(Some(100), Some(i32::MAX));
        assert_eq!(next_epoch(current, unix(100)), None);
        assert_eq!(highest_epoch(current, Some(i32::MAX)), current);
        assert_eq!(next_epoch(highest_epoch(current, Some(0)), unix(100)), Some(100));
        assert_eq!(next_epoch(highest_epoch(current, None), unix(100)), Some(100), "deleted");
        assert_eq!(highest_epoch(Some(200), Some(100)), Some(200), "only the largest number can be reset");
        assert_eq!(highest_epoch(Some(200), None), Some(200));
    }

    #[test]
    fn an_epoch_that_no_clock_can_have_made_is_ignored() {
        let now = unix(1_000);
        assert_eq!(plausible_epoch(5_000, Some(900), now), Some(5_000), "a clock was an hour ahead");
        assert_eq!(plausible_epoch(i64::from(i32::MAX), Some(900), now), None);
        assert_eq!(plausible_epoch(i64::MAX, Some(900), now), None);
    }
}
