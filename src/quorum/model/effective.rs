//! `maxTTL` can change while locks are held (`docs/dev/rules.md`, "Changing settings"). A fence must outlast every
//! promise, so it uses the largest value of a possible promise. `clockDrift` and `nodeTimeout` never change. Pure.
//!
//! The leader writes a larger value to the status before any use of it. A smaller value comes into force later. Before that, no hold
//! with the larger value has been renewed for the lifetime of such a promise.

use std::time::Duration;

use crate::api::{ClockDrift, GoDuration, RedisQuorum, RedisQuorumStatus};
use crate::fence::clock::Rule;
use crate::redlock::{Drift, Settings, rejoin_delay};
use crate::time::Monotonic;

/// The engine's settings.
pub fn settings(quorum: &RedisQuorum) -> Settings {
    let ClockDrift { ppm, floor } = &quorum.spec.clock_drift;
    let drift = Drift { ppm: u32::try_from(*ppm).unwrap_or_default(), floor: floor.get() };
    Settings { drift, node_timeout: quorum.spec.node_timeout.get() }
}

/// The published maxTTL.
pub fn published(quorum: &RedisQuorum) -> Option<Duration> {
    Some(quorum.status.as_ref()?.max_ttl_in_force?.get())
}

/// Publishes this maxTTL, in whole milliseconds, the unit of durations in the API.
pub fn publish(status: &mut RedisQuorumStatus, max_ttl: Duration) {
    let millis = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
    status.max_ttl_in_force = Some(GoDuration::from_millis(millis));
}

/// The largest maxTTL of a promise that was made under this state of the quorum.
pub fn current_max_ttl(quorum: &RedisQuorum) -> Duration {
    published(quorum).unwrap_or_default().max(quorum.spec.max_ttl.get())
}

/// How long a process stays fenced for such promises (rule 2).
pub fn current_rejoin_delay(quorum: &RedisQuorum) -> Duration {
    let Settings { drift, node_timeout } = settings(quorum);
    rejoin_delay(current_max_ttl(quorum), drift, node_timeout)
}

/// How long a fence waits under this state of the quorum.
///
/// An admission is written with the resourceVersion of this state. Without a published maxTTL, earlier promises are unknown,
/// and no time is sufficient.
pub fn rejoin_delay_of(quorum: &RedisQuorum) -> Duration {
    published(quorum).map_or(Duration::MAX, |_| current_rejoin_delay(quorum))
}

/// The maxTTL that a client of the quorum can use.
///
/// A longer lock is allowed only when fences outlast it.
pub fn promised(quorum: &RedisQuorum) -> Duration {
    published(quorum).unwrap_or(Duration::MAX).min(quorum.spec.max_ttl.get())
}

/// The rule for the judgement of the members' clocks.
pub fn clock_rule(quorum: &RedisQuorum) -> Rule {
    Rule { drift: settings(quorum).drift, window: current_max_ttl(quorum) }
}

/// The minimum of maxTTL.
const SHORTEST: Duration = Duration::from_secs(1);

/// The maxTTL that can be published if masters are shared with other operators.
///
/// A longer time to live comes into force only when the fences of those operators wait for it. That is up to `agreed`.
pub fn shared(next: Duration, quorum: &RedisQuorum, agreed: Option<Duration>) -> Duration {
    next.min(published(quorum).unwrap_or(SHORTEST).max(agreed.unwrap_or_default()))
}

/// Publishes a larger time to live, for which the fences of all operators that share the masters wait.
///
/// It is never more than the specification has.
pub fn publish_agreed(status: &mut RedisQuorumStatus, quorum: &RedisQuorum, agreed: Duration) {
    let larger = agreed.min(quorum.spec.max_ttl.get());
    if status.max_ttl_in_force.is_some_and(|in_force| in_force.get() < larger) {
        publish(status, larger);
    }
}

/// The wait of a leader for a smaller value.
///
/// Another leader begins the wait again, because a late change is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowering {
    /// The generation of the specification for this wait.
    ///
    /// A value that was raised and lowered again has another generation, even if no leader observed the time between. The
    /// larger value was perhaps used again, so the wait must start again.
    generation: Option<i64>,
    /// Since this time no hold with a larger value has been renewed.
    since: Monotonic,
    /// Whether a lock with a larger value was held at the last check.
    ///
    /// It can be renewed until the next check.
    held: bool,
}

/// The pause between two checks of held locks while a value is being lowered.
const RECHECK_AFTER: Duration = Duration::from_secs(5);

/// The maxTTL in force from now on, and when to check again.
///
/// `larger_is_held`: a lock is held with a larger ttl than the specification allows now.
pub fn next(
    quorum: &RedisQuorum,
    lowering: &mut Option<Lowering>,
    larger_is_held: bool,
    now: Monotonic,
) -> (Duration, Option<Monotonic>) {
    let (wanted, current, generation) =
        (quorum.spec.max_ttl.get(), current_max_ttl(quorum), quorum.metadata.generation);
    let since = match lowering {
        Some(count) if count.generation == generation && !count.held && !larger_is_held => count.since,
        _ => now,
    };
    let until = since + current_rejoin_delay(quorum);
    let waits = current != wanted && now < until;
    *lowering = waits.then_some(Lowering { generation, since, held: larger_is_held });
    if waits { (current, Some(until.min(now + RECHECK_AFTER))) } else { (wanted, None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::monotonic as at;

    /// A quorum with this maxTTL in milliseconds in its specification, and that one in its status.
    fn quorum(wanted: u64, published: Option<u64>) -> RedisQuorum {
        let mut quorum = RedisQuorum::new("main", crate::api::RedisQuorumSpec::default());
        quorum.spec.max_ttl = GoDuration::from_millis(wanted);
        quorum.status.get_or_insert_default().max_ttl_in_force = published.map(GoDuration::from_millis);
        quorum
    }

    /// Publishes the next value at each of these seconds, as the leader does.
    ///
    /// It returns the maxTTL in force after each of them.
    fn in_force(quorum: &mut RedisQuorum, count: &mut Option<Lowering>, steps: &[(u64, bool)]) -> Vec<u64> {
        let mut after = Vec::new();
        for (second, held) in steps {
            let (max_ttl, _) = next(quorum, count, *held, at(*second));
            publish(quorum.status.get_or_insert_default(), max_ttl);
            after.push(published(quorum).unwrap().as_secs());
        }
        after
    }

    #[test]
    fn a_larger_value_is_published_at_once_and_promised_only_then() {
        let mut raised = quorum(60_000, Some(30_000));
        assert_eq!(promised(&raised), Duration::from_secs(30));
        let delay = rejoin_delay(Duration::from_secs(60), Drift::default(), Duration::from_millis(50));
        assert_eq!(rejoin_delay_of(&raised), delay, "fences wait for it from the start");
        assert_eq!(in_force(&mut raised, &mut None, &[(100, false)]), [60]);
        assert_eq!(promised(&raised), Duration::from_secs(60));
    }

    #[test]
    fn a_larger_value_on_shared_masters_waits_for_every_operator() {
        let publish = |wanted, published: Option<u64>, agreed: Option<u64>| {
            let quorum = quorum(wanted, published);
            let (max_ttl, _) = next(&quorum, &mut None, false, at(100));
            let max_ttl = shared(max_ttl, &quorum, agreed.map(Duration::from_secs));
            (max_ttl.as_secs(), current_max_ttl(&quorum).as_secs())
        };
        assert_eq!(publish(30_000, None, None), (1, 30), "fences wait for it from the start");
        assert_eq!(publish(30_000, Some(1_000), Some(10)), (10, 30), "the fences of the other operators wait for 10 s");
        assert_eq!(publish(30_000, Some(10_000), None), (10, 30), "one of the masters is away");
        assert_eq!(publish(30_000, Some(10_000), Some(30)), (30, 30));
        assert_eq!(publish(30_000, Some(30_000), Some(10)), (30, 30), "a value in force stays");
    }

    #[test]
    fn an_agreed_value_is_in_force_with_its_write() {
        let mut quorum = quorum(30_000, Some(10_000));
        for (agreed, expected) in [(5, 10), (20, 20), (60, 30), (20, 30)] {
            let before = quorum.clone();
            publish_agreed(quorum.status.get_or_insert_default(), &before, Duration::from_secs(agreed));
            assert_eq!(published(&quorum).unwrap(), Duration::from_secs(expected));
        }
    }

    #[test]
    fn a_smaller_value_waits_for_holds_with_the_larger_one() {
        let mut lowered = quorum(10_000, Some(30_000));
        let mut count = None;
        // The wait for the old value is 30.66 s.
        assert_eq!(in_force(&mut lowered, &mut count, &[(100, false), (130, false), (131, false)]), [30, 30, 10]);
        assert_eq!(count, None);
        let mut held = quorum(10_000, Some(30_000));
        // It can have been renewed until the check at 220, when it was gone.
        let steps = [(100, true), (200, true), (220, false), (231, false), (250, false), (251, false)];
        assert_eq!(in_force(&mut held, &mut count, &steps), [30, 30, 30, 30, 30, 10]);
        let mut again = quorum(10_000, Some(30_000));
        let steps = [(300, false), (320, true), (325, false), (331, false), (355, false), (356, false)];
        assert_eq!(in_force(&mut again, &mut count, &steps), [30, 30, 30, 30, 30, 10]);
        // Another leader starts the wait again.
        let mut other = quorum(10_000, Some(30_000));
        assert_eq!(in_force(&mut other, &mut None, &[(130, false)]), [30]);
        let mut count = None;
        assert_eq!(next(&other, &mut count, false, at(130)).1, Some(at(135)));
        assert_eq!(next(&other, &mut count, false, at(160)).1, Some(at(130) + rejoin_delay_of(&other)));
    }

    /// The same value was perhaps raised and lowered again between two checks of the leader.
    ///
    /// A grant is possible in that time, so the wait starts again, as with another value.
    #[test]
    fn another_specification_restarts_the_wait() {
        for (wanted, expected) in [(20_000, 20), (10_000, 10)] {
            let mut count = None;
            in_force(&mut quorum(10_000, Some(30_000)), &mut count, &[(100, false)]);
            let mut second = quorum(wanted, Some(30_000));
            second.metadata.generation = Some(2);
            let steps = [(131, false), (161, false), (162, false)];
            assert_eq!(in_force(&mut second, &mut count, &steps), [30, 30, expected]);
        }
    }

    #[test]
    fn a_value_that_was_raised_again_in_time_has_no_wait() {
        let mut count = None;
        in_force(&mut quorum(10_000, Some(30_000)), &mut count, &[(131, false)]);
        assert_eq!(in_force(&mut quorum(30_000, Some(30_000)), &mut count, &[(132, false)]), [30]);
        assert_eq!(count, None);
    }

    #[test]
    fn an_admission_during_the_change_waits_for_the_larger_value() {
        let old = 30_000;
        let delay = |wanted, published| rejoin_delay_of(&quorum(wanted, published)).as_millis();
        for (wanted, published, expected) in [
            (old, Some(old), 30_659),
            // Lowered, but not in force yet.
            (10_000, Some(old), 30_659),
            (10_000, Some(10_000), 10_255),
            // Raised. No grant can use this state of the object, but grants can use the next one.
            (60_000, Some(old), 61_265),
        ] {
            assert!(delay(wanted, published).abs_diff(expected) <= 10, "{wanted:?} {published:?}");
        }
        assert_eq!(rejoin_delay_of(&quorum(old, None)), Duration::MAX);
    }
}
