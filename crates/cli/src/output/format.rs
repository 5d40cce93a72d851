//! Times and durations in texts for users.

use std::time::Duration;

use redlock_api::MilliTime;

/// A duration in milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The milliseconds from one time to another. The result is negative if `to` is before `from`.
#[must_use]
pub fn between(from: MilliTime, to: MilliTime) -> i64 {
    to.as_millis().saturating_sub(from.as_millis())
}

/// A duration with at most two units: `450ms`, `8.2s`, `42s`, `3m12s`, `5h03m`, `12d`.
#[must_use]
pub fn span(millis: i64) -> String {
    let seconds = millis / 1_000;
    match millis {
        i64::MIN..0 => format!("-{}", span(millis.saturating_neg())),
        0..1_000 => format!("{millis}ms"),
        1_000..10_000 => format!("{}.{}s", seconds, millis % 1_000 / 100),
        10_000..120_000 => format!("{seconds}s"),
        120_000..7_200_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        7_200_000..172_800_000 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `12:00:31 UTC (in 8.2s)`, with the date if the time is more than 12 hours away.
#[must_use]
pub fn moment(time: MilliTime, now: MilliTime) -> String {
    let left = between(now, time);
    let clock = time.get().strftime(if left.abs() < 43_200_000 { "%H:%M:%S UTC" } else { "%Y-%m-%d %H:%M:%S UTC" });
    if left >= 0 { format!("{clock} (in {})", span(left)) } else { format!("{clock} ({} ago)", span(-left)) }
}

/// `12:00:31Z`.
#[must_use]
pub fn clock(time: MilliTime) -> String {
    time.get().strftime("%H:%M:%SZ").to_string()
}

/// `2026-01-01 12:00:31Z`.
#[must_use]
pub fn date(time: MilliTime) -> String {
    time.get().strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// `1 lock`, `2 locks`.
#[must_use]
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// The text with a capital first letter.
#[must_use]
pub fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

/// `a, b and c`.
#[must_use]
pub fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units_at_most() {
        let spans = [0, 450, 8_240, 42_900, 192_000, 18_180_000, 1_036_800_000, -1_500];
        assert_eq!(spans.map(span), ["0ms", "450ms", "8.2s", "42s", "3m12s", "5h03m", "12d", "-1.5s"]);
    }

    #[test]
    fn a_moment_has_its_distance_from_now() {
        let now: MilliTime = "2026-01-01T12:00:00.000Z".parse().unwrap();
        let at = |text: &str| moment(text.parse().unwrap(), now);
        assert_eq!(at("2026-01-01T12:00:08.250Z"), "12:00:08 UTC (in 8.2s)");
        assert_eq!(at("2026-01-01T11:58:00.000Z"), "11:58:00 UTC (2m00s ago)");
        assert_eq!(at("2026-02-01T12:00:00.000Z"), "2026-02-01 12:00:00 UTC (in 31d)");
    }

    #[test]
    fn names_are_joined_like_a_sentence() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([and(&names[..0]), and(&names[..1]), and(&names)], ["", "a", "a, b and c"]);
        assert_eq!([count(1, "lock"), count(2, "lock")], ["1 lock", "2 locks"]);
    }
}
