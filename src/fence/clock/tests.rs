use proptest::prelude::*;

use super::*;
use crate::time::UnixMicros;

const WALL: i64 = 1_767_225_600_000_000;
const DRIFT: Drift = Drift { ppm: 10_000, floor: Duration::from_millis(2) };
const RULE: Rule = Rule { drift: DRIFT, window: Duration::from_secs(30) };

fn boot(micros: u64) -> Boottime {
    Boottime::new(Duration::from_micros(micros))
}

/// A request at `sent` with a reply after `took`.
///
/// The member reads a clock that is `ahead`, `late` after the request.
fn sample(sent: u64, took: u64, late: u64, ahead: i64) -> ClockSample {
    let read = i64::try_from(sent + late.min(took)).unwrap();
    ClockSample { time: UnixMicros(WALL + read + ahead), sent: boot(sent), received: boot(sent + took) }
}

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

fn jumped(before: &ClockSample, after: &ClockSample) -> Option<String> {
    judge(before, after, DRIFT).map(|step| step.to_string())
}

#[test]
fn a_step_exceeds_every_possible_drift() {
    for (after, expected) in [
        // 1 % of 10 s and 2 ms are 102 ms.
        (sample(10 * S, 0, 0, 102_000), None),
        (sample(10 * S, 0, 0, 102_001), Some("+0.102 s")),
        (sample(10 * S, 0, 0, -102_000), None),
        (sample(10 * S, 0, 0, -102_001), Some("-0.102 s")),
        (sample(10 * S, 0, 0, 60_000_000), Some("+60.000 s")),
        (sample(10 * S, 0, 0, -3_600_000_000), Some("-3600.000 s")),
        // The time of the reading within a slow reply is unknown. 400 ms more are possible in one direction, and that alone
        // is no step.
        (sample(10 * S, 400 * MS, 400 * MS, 0), None),
        (sample(10 * S, 400 * MS, 0, 0), None),
        (sample(10 * S, 400 * MS, 0, 450_000), None),
        (sample(10 * S, 400 * MS, 0, 600_000), Some("+0.400 s")),
        // In a short time little drift is possible.
        (sample(100 * MS, 0, 0, 3_001), Some("+0.003 s")),
        (sample(100 * MS, 0, 0, 2_999), None),
    ] {
        assert_eq!(jumped(&sample(0, 0, 0, 0), &after).as_deref(), expected, "{after:?}");
    }
}

/// A clock that was watched for `seconds`, with two readings per second.
fn watched(seconds: u64, ahead: impl Fn(u64) -> i64) -> ClockWatch {
    let mut watch = ClockWatch::begin(sample(0, MS, 0, ahead(0)));
    for sent in (1..=2 * seconds).map(|half| half * S / 2) {
        watch.observe(sample(sent, MS, 0, ahead(sent)), RULE);
    }
    watch
}

#[test]
fn a_day_of_watching_hides_no_step() {
    let day = 24 * 3_600;
    let mut watch = watched(day, |_| 0);
    assert!(watch.references.len() <= 18, "{}", watch.references.len());
    let stepped = sample(day * S + 500 * MS, MS, 0, 60_000);
    assert!(watch.check(&stepped, RULE).is_some(), "60 ms");
    // The clock was stepped forward and back, and the keys are gone.
    let back = sample(day * S + 600 * MS, MS, 0, 0);
    assert!(watch.observe(back, RULE).is_some());
}

#[test]
fn a_clock_that_creeps_is_found_within_a_window() {
    let creeping = |ppm: i64| watched(40, move |sent| i64::try_from(sent).unwrap() * ppm / 1_000_000);
    assert_eq!(creeping(9_900).jump(), None);
    assert_eq!(creeping(-9_900).jump(), None);
    // The maximum slew of chrony.
    assert!(creeping(83_333).jump().is_some());
    assert!(creeping(-11_000).jump().is_some());
}

#[test]
fn many_small_steps_add_up() {
    // Each half second has a step of 6.5 ms, which is within the allowance.
    assert!(watched(20, |sent| i64::try_from(sent / (S / 2)).unwrap() * 6_500).jump().is_some());
}

#[test]
fn a_vote_that_was_overtaken_by_a_probe_is_no_step() {
    let mut watch = watched(10, |_| 0);
    let newer = sample(10 * S + 300 * MS, MS, 0, 0);
    assert_eq!(watch.observe(newer, RULE), None);
    assert_eq!(watch.check(&sample(10 * S + 200 * MS, 500 * MS, 450 * MS, 0), RULE), None);
}

/// A clock that is stepped after ten seconds. A clock without a step is read once more after that.
fn after_step(ahead: i64) -> ClockWatch {
    let mut watch = watched(10, |_| 0);
    watch.observe(sample(11 * S, MS, 0, ahead), RULE);
    if ahead == 0 {
        watch.observe(sample(11 * S + 500 * MS, MS, 0, ahead), RULE);
    }
    watch
}

fn attributed(aheads: &[i64], members: usize) -> Attribution {
    let watches: Vec<ClockWatch> = aheads.iter().map(|ahead| after_step(*ahead)).collect();
    attribute(&watches.iter().collect::<Vec<_>>(), members)
}

#[test]
fn a_common_step_of_all_members_is_that_of_the_observer() {
    const MINUTE: i64 = 60_000_000;
    use Attribution::{Members, NoClock, Open};
    for (aheads, members, expected) in [
        (&[0, 0, 0][..], 3, NoClock),
        (&[], 3, NoClock),
        (&[MINUTE, 0, 0], 3, Members),
        (&[MINUTE, MINUTE, 0], 3, Members),
        (&[MINUTE, 0], 3, Members),
        // All clocks moved, but not by the same step.
        (&[MINUTE, MINUTE, 5_000_000], 3, Members),
        (&[MINUTE, -MINUTE], 3, Members),
        // No other member answers, so there is no comparison.
        (&[MINUTE], 3, Open),
        (&[MINUTE], 1, Members),
    ] {
        assert_eq!(attributed(aheads, members), expected, "{aheads:?} of {members}");
    }
    for aheads in [&[MINUTE, MINUTE, MINUTE][..], &[-MINUTE, -MINUTE - 20_000, -MINUTE + 20_000], &[MINUTE, MINUTE]] {
        for members in [1, 3] {
            // A quorum of one can have members that join.
            let found = attributed(aheads, members);
            assert!(matches!(found, Attribution::Observer(_)), "{aheads:?} of {members}: {found:?}");
        }
    }
}

#[test]
fn a_step_needs_a_later_reading_of_another_member() {
    let (stepped, mut still) = (after_step(60_000_000), watched(11, |_| 0));
    assert_eq!(attribute(&[&stepped, &still], 3), Attribution::Open);
    still.observe(sample(11 * S + 500 * MS, MS, 0, 0), RULE);
    assert_eq!(attribute(&[&stepped, &still], 3), Attribution::Members);
    // A later reading of the other member can show the same step.
    let mut late = watched(11, |_| 0);
    late.observe(sample(11 * S + 500 * MS, MS, 0, 60_000_000), RULE);
    assert!(matches!(attribute(&[&stepped, &late], 3), Attribution::Observer(_)));
}

#[test]
fn an_observer_detects_its_own_suspend() {
    let at = |micros: u64| Monotonic::new(Duration::from_micros(micros));
    let awake = OwnClocks::of(at(5 * S), boot(6 * S), at(5 * S + 20));
    let later = OwnClocks::of(at(9 * S), boot(10 * S + 10), at(9 * S + 20));
    assert!(!later.were_suspended_since(awake));
    // The process was stopped for 300 ms between the readings.
    let torn = OwnClocks::of(at(9 * S), boot(10 * S + 300_000), at(9 * S + 300_010));
    assert!(!torn.were_suspended_since(awake) && !later.were_suspended_since(torn));
    let suspended = OwnClocks::of(at(9 * S), boot(10 * S + 2 * S), at(9 * S + 20));
    assert!(suspended.were_suspended_since(awake));
}

/// Readings of a clock that drifts by `ppm`, at random moments with random delays.
fn readings() -> impl Strategy<Value = (i64, Vec<(u64, u64, u64)>)> {
    let one = (1_000_u64..3_000_000, 0_u64..200_000, 0_u64..200_000);
    (-9_900_i64..9_900, prop::collection::vec(one, 2..80))
}

proptest! {
    #[test]
    fn drift_within_the_allowance_is_never_a_step((ppm, readings) in readings()) {
        let (mut now, mut watch) = (0, ClockWatch::begin(sample(0, 0, 0, 0)));
        for (pause, took, late) in readings {
            now += pause;
            let read = now + late.min(took);
            let ahead = i64::try_from(read).unwrap() * ppm / 1_000_000;
            prop_assert_eq!(watch.observe(sample(now, took, late, ahead), RULE), None);
            now += took;
        }
    }

    #[test]
    fn a_step_above_the_allowance_is_always_found(
        (ppm, readings) in readings(), at in 1_usize..80, more in 1_i64..100_000_000, back: bool,
    ) {
        let (mut now, mut watch) = (0, ClockWatch::begin(sample(0, 0, 0, 0)));
        let (mut before, mut step) = (0, 0);
        let last = (at % (readings.len() - 1)) + 1;
        for (index, (pause, took, late)) in readings.into_iter().enumerate().take(last + 1) {
            now += pause;
            let drifted = i64::try_from(now + late.min(took)).unwrap() * ppm / 1_000_000;
            if index == last {
                // The sum of twice the drift allowance, the width of the two readings, and `more`.
                let allowed = micros(DRIFT.allowance(Duration::from_micros(now + took - before)));
                let hidden = 2 * allowed + 2 * 200_000 + more;
                step = if back { -hidden } else { hidden };
            }
            let found = watch.observe(sample(now, took, late, drifted + step), RULE);
            prop_assert_eq!(found.is_some(), index == last);
            before = now;
            now += took;
        }
    }
}
