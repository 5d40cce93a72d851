//! Pure: how long before the end of a validity a command gets its signal, and SIGKILL.

use std::time::Duration;

use anyhow::bail;

use crate::hold::{Source, millis, reserve};
use redlock_api::GoDuration;
use redlock_engine::time::Boottime;

/// Time reserved for the delay until a published validity is read.
const PUBLICATION: Duration = Duration::from_millis(500);

/// When a command ends, relative to the end of a validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Time from the signal that requests the end to SIGKILL.
    pub(super) grace: Duration,
    /// Time from SIGKILL to the end of the validity.
    pub(super) reserve: Duration,
}

impl Limits {
    /// # Errors
    /// If the grace is too long. The error has the longest possible one.
    pub(super) fn new(asked: Option<GoDuration>, ttl: GoDuration, source: Source) -> anyhow::Result<Self> {
        let lasts = match source {
            Source::Outer { left } => ttl.get().min(left),
            Source::Members | Source::Status { .. } => ttl.get(),
        };
        let reserve = reserve(lasts);
        let most = match source {
            // A short `ttl` has a larger reserve, which leaves less for the grace.
            Source::Members => (ttl.get() / 2).saturating_sub(reserve.saturating_sub(ttl.get() / 20)),
            Source::Status { skew } => (ttl.get() / 4).saturating_sub(skew + PUBLICATION),
            Source::Outer { left } => left / 2,
        };
        let Some(asked) = asked else { return Ok(Self { grace: most / 2, reserve }) };
        if asked.get() <= most {
            return Ok(Self { grace: asked.get(), reserve });
        }
        if let Source::Outer { left } = source {
            let left = GoDuration::from(left);
            bail!(
                "what holds the lock outside this `redlock run` has only {left} left, and --grace {asked} needs twice as much"
            );
        }
        // Rounded down, so that the option accepts the bound that the error shows.
        let most = GoDuration::from_millis(millis(most));
        bail!(
            "--grace {asked} is too long: the command has to end before the lock does, and with --ttl {ttl} at most {most} are left for \
             that. Use a shorter --grace or a longer --ttl"
        );
    }

    /// The time of the signal that requests the end, and the time of SIGKILL for all processes.
    pub(super) fn deadlines(&self, valid_until: Boottime) -> (Boottime, Boottime) {
        let kill = valid_until.saturating_sub(self.reserve);
        (kill.saturating_sub(self.grace), kill)
    }

    /// The time at which `run` takes over, because the guard did not kill the processes.
    pub(super) fn takes_over_at(&self, kill: Boottime) -> Boottime {
        kill + self.reserve / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    fn seconds(seconds: u64) -> GoDuration {
        GoDuration::from_secs(seconds)
    }

    const STATUS: Source = Source::Status { skew: Duration::from_secs(1) };

    #[test]
    fn the_grace_is_bounded_by_the_accuracy_of_the_end() {
        let most = |ttl, source| Limits::new(None, seconds(ttl), source).unwrap().grace * 2;
        assert_eq!(most(10, Source::Members), Duration::from_secs(5));
        assert_eq!(most(10, STATUS), Duration::from_secs(1));
        assert_eq!(most(8, STATUS), Duration::from_millis(500));
        let refused = Limits::new(Some(seconds(2)), seconds(10), STATUS).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("--grace 2s") && text.contains("--ttl 10s") && text.contains("at most 1s"), "{text}");
        assert!(Limits::new(Some(seconds(1)), seconds(10), STATUS).is_ok());
        assert!(Limits::new(Some(seconds(5)), seconds(10), Source::Members).is_ok());
    }

    /// The least reserve is more than a twentieth of a `ttl` below 4 s.
    #[test]
    fn a_short_ttl_leaves_time_beside_grace_and_reserve() {
        let most = |ttl| Limits::new(None, GoDuration::from_millis(ttl), Source::Members).unwrap().grace * 2;
        let expected = [(300, 0), (1_000, 350), (3_000, 1_450), (4_000, 2_000), (20_000, 10_000), (60_000, 30_000)];
        for (ttl, millis) in expected {
            assert_eq!(most(ttl), Duration::from_millis(millis), "{ttl}");
        }
        let text = Limits::new(Some(seconds(2)), seconds(3), Source::Members).unwrap_err().to_string();
        assert!(text.contains("at most 1450ms"), "{text}");
    }

    #[test]
    fn a_nested_command_ends_within_the_validity_of_the_outer_one() {
        let outer = Source::Outer { left: Duration::from_secs(4) };
        assert_eq!(Limits::new(None, seconds(10), outer).unwrap().grace, Duration::from_secs(1));
        let text = Limits::new(Some(seconds(3)), seconds(10), outer).unwrap_err().to_string();
        assert!(text.contains("only 4s left"), "{text}");
    }

    #[test]
    fn the_reserve_of_a_nested_command_depends_on_the_time_left() {
        let reserve = |millis| {
            let left = Duration::from_millis(millis);
            Limits::new(None, seconds(10), Source::Outer { left }).unwrap().reserve
        };
        assert_eq!(reserve(1_000), Duration::from_millis(200));
        assert_eq!(reserve(6_000), Duration::from_millis(300));
        assert_eq!(reserve(60_000), Duration::from_millis(500), "an agent can have a longer ttl");
    }

    #[test]
    fn all_deadlines_are_before_the_end_of_the_validity() {
        let limits = Limits::new(Some(seconds(2)), seconds(10), Source::Members).unwrap();
        assert_eq!(limits.deadlines(at(60_000)), (at(57_500), at(59_500)));
        assert_eq!(limits.takes_over_at(at(59_500)), at(59_625));
        assert_eq!(limits.deadlines(at(100)), (at(0), at(0)));
    }
}
