//! Pure: describes the keys that lock clients outside this operator have set. No message has a value.

use std::time::Duration;

use super::held_message::HeldMessage;
use crate::redlock::{KeyState, LockKey, Occupant};

/// The message about the keys of another client.
///
/// `longest` is their longest time to live, and `max_ttl` that of a key of the quorum.
pub(in crate::lock) fn message(
    key: &LockKey,
    occupants: &[Occupant],
    longest: Option<Duration>,
    max_ttl: Option<Duration>,
) -> HeldMessage {
    let describe = |occupant: &Occupant| format!("{}: {}", occupant.member, describe_state(&occupant.holder, max_ttl));
    let described = occupants.iter().map(describe).collect::<Vec<_>>().join(", ");
    let key = key.as_str().to_owned();
    let lasts = |occupant: &Occupant| occupant.holder != KeyState::Missing && occupant.holder.remaining().is_none();
    if !occupants.is_empty() && occupants.iter().all(lasts) {
        return HeldMessage::ForeignLasting { key, occupants: described };
    }
    let left = longest.map_or_else(String::new, |left| format!(" for {}", coarse(left)));
    HeldMessage::Foreign { key, left, occupants: described }
}

fn describe_state(state: &KeyState, max_ttl: Option<Duration>) -> String {
    match state {
        KeyState::Missing => "nothing any more".into(),
        KeyState::String { value, remaining: None } if is_timestamp(value.expose()) => {
            "a timestamp without a time to live, as the old SETNX and GETSET pattern writes it".into()
        }
        KeyState::String { remaining: None, .. } => "a key without a time to live".into(),
        KeyState::String { remaining: Some(left), .. } => match max_ttl.filter(|max| left > max) {
            Some(max) => format!("{} left, which is beyond the quorum's maxTTL of {}", coarse(*left), coarse(max)),
            None => format!("{} left", coarse(*left)),
        },
        KeyState::OtherType { name, .. } => format!("a {name}, as other lock libraries write"),
    }
}

/// A time such as "at most 10 s", rounded up.
///
/// The message of each attempt therefore stays the same for a while. A status that changes with every attempt would cost a write each time.
pub(in crate::lock) fn coarse(left: Duration) -> String {
    let seconds = left.as_millis().div_ceil(1_000);
    let step = [1, 5, 10, 20, 30, 60, 120, 300].into_iter().find(|step| *step >= seconds);
    format!("at most {} s", step.unwrap_or(seconds.div_ceil(300) * 300))
}

/// Whether a value is Unix time in seconds, in milliseconds, or with a fraction.
fn is_timestamp(value: &str) -> bool {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(fraction) && (10..=13).contains(&whole.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::HeldReason;
    use crate::lock::model::readiness::NEVER_EXPIRES;
    use crate::redlock::StoredValue;

    #[test]
    fn unix_times_are_recognised_and_other_values_are_not() {
        for value in ["1795284168", "1795284168.123", "1795284168032"] {
            assert!(is_timestamp(value), "{value}");
        }
        for value in ["", "17952841680321", "8743c9c0-0795", "1795284168.", "179528416x", "12345"] {
            assert!(!is_timestamp(value), "{value}");
        }
    }

    #[test]
    fn a_rounded_time_stays_the_same_for_a_while() {
        let text = |millis| coarse(Duration::from_millis(millis));
        assert_eq!(text(5_001), text(9_999));
        assert_eq!(text(10_000), "at most 10 s");
        assert_eq!(text(0), "at most 1 s");
        assert_eq!(text(300_001), "at most 600 s");
    }

    #[test]
    fn keys_without_a_time_to_live_are_named_with_the_command() {
        let occupant = |member: &str, remaining: Option<u64>| Occupant {
            member: member.into(),
            holder: KeyState::String {
                value: StoredValue::new("some-value"),
                remaining: remaining.map(Duration::from_secs),
            },
        };
        let message = |occupants: &[Occupant], longest: Option<u64>| {
            message(&LockKey::new("ns/job"), occupants, longest.map(Duration::from_secs), None)
        };
        let lasting = message(&[occupant("q-0", None), occupant("q-1", None)], None);
        let text = lasting.to_string();
        assert!(lasting.reason() == HeldReason::HeldByOther && text.contains(NEVER_EXPIRES));
        assert!(text.contains("q-1: a key without a time to live") && text.contains("DEL ns/job"), "{text}");
        assert!(!text.contains("some-value"));
        let expires = message(&[occupant("q-0", None), occupant("q-1", Some(4))], Some(4));
        assert_eq!(expires.reason(), HeldReason::HeldByOther);
        assert!(!expires.to_string().contains(NEVER_EXPIRES), "one of the keys expires");
        let gone = Occupant { member: "q-0".into(), holder: KeyState::Missing };
        assert_eq!(message(&[gone], None).reason(), HeldReason::HeldByOther);
    }

    #[test]
    fn a_key_that_outlives_every_lock_of_the_quorum_is_named() {
        let max = Some(Duration::from_secs(4));
        let key = |seconds| KeyState::String {
            value: StoredValue::new("some-value"),
            remaining: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(describe_state(&key(3), max), "at most 5 s left");
        assert!(describe_state(&key(5), max).contains("beyond the quorum's maxTTL of at most 5 s"));
        assert!(!describe_state(&key(5), max).contains("some-value"));
    }
}
