//! Objects of the API are read and written without loss.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::test_util::{accepted, config, object, text, times};
use crate::*;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_text_is_a_duration_or_is_refused(text in text()) {
        if let Ok(duration) = text.parse::<GoDuration>() {
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
            // As in the schema, so that the API server's rules can read whatever is read here.
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || b"msh".contains(&byte)), "{}", text);
        }
    }

    #[test]
    fn every_duration_is_read_back_as_it_was(millis in 0..=u64::MAX / 2_000_000) {
        let duration = GoDuration::from_millis(millis);
        prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        prop_assert_eq!(serde_json::from_value::<GoDuration>(json!(duration)).unwrap(), duration);
    }

    #[test]
    fn any_text_is_a_time_or_is_refused(text in prop_oneof![text(), times()]) {
        if let Ok(time) = text.parse::<MilliTime>() {
            prop_assert_eq!(time.to_string().parse::<MilliTime>().unwrap(), time);
            prop_assert_eq!(MilliTime::from_millis(time.as_millis()), Some(time));
        }
    }

    #[test]
    fn a_parsed_quorum_is_written_back_without_a_change(value in object("RedisQuorum")) {
        if let Ok(quorum) = serde_json::from_value::<RedisQuorum>(value) {
            let written = serde_json::to_value(&quorum).unwrap();
            let again: RedisQuorum = serde_json::from_value(written.clone()).unwrap();
            prop_assert_eq!(serde_json::to_value(&again).unwrap(), written);
        }
    }

    #[test]
    fn a_parsed_lock_is_written_back_without_a_change(value in object("DistributedLock")) {
        if let Ok(lock) = serde_json::from_value::<DistributedLock>(value) {
            let written = serde_json::to_value(&lock).unwrap();
            let again: DistributedLock = serde_json::from_value(written.clone()).unwrap();
            prop_assert_eq!(serde_json::to_value(&again).unwrap(), written);
        }
    }
}

/// Objects that nothing can read would test nothing.
#[test]
fn enough_generated_objects_are_readable() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut understood = |kind: &str, reads: fn(Value) -> bool| {
        let objects = object(kind);
        (0..200).filter(|_| reads(objects.new_tree(&mut runner).unwrap().current())).count()
    };
    let quorums = understood("RedisQuorum", |value| serde_json::from_value::<RedisQuorum>(value).is_ok());
    let locks = understood("DistributedLock", |value| serde_json::from_value::<DistributedLock>(value).is_ok());
    assert!(quorums > 30 && locks > 30, "{quorums} of 200 quorums, {locks} of 200 locks");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_lock_that_the_schema_accepts_is_read(value in accepted("DistributedLock", 0.5)) {
        let read = serde_json::from_value::<DistributedLock>(value.clone());
        prop_assert!(read.is_ok(), "{}: {}", read.unwrap_err(), value);
    }

    #[test]
    fn every_quorum_that_the_schema_accepts_is_read(value in accepted("RedisQuorum", 0.4)) {
        let read = serde_json::from_value::<RedisQuorum>(value.clone());
        prop_assert!(read.is_ok(), "{}: {}", read.unwrap_err(), value);
    }
}

/// Each pair of units, with as many digits as the pattern allows: the longest of them is the longest duration there is.
#[test]
fn the_longest_durations_of_the_schema_are_read() {
    let longest =
        [(6, "h"), (7, "m"), (9, "s"), (12, "ms")].map(|(digits, unit)| format!("{}{unit}", "9".repeat(digits)));
    for (first, second) in longest.iter().flat_map(|first| longest.iter().map(move |second| (first, second))) {
        for third in ["", "9ms", "99s", "999m", "9999h", "99999h"] {
            let text = format!("{first}{second}{third}");
            assert!(text.len() > 20 || text.parse::<GoDuration>().is_ok(), "{text}");
        }
    }
}
