//! Durations and times as they are written in manifests.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::schema::{DURATION_PATTERN, matching};
use redlock_engine::time::UnixMillis;

/// Go has 63 bits of nanoseconds for a duration, and so have the API server's CEL rules.
const MAX_MILLIS: u64 = i64::MAX as u64 / 1_000_000;

/// The longest duration in calculations and objects: ten years.
const LONGEST_WRITTEN: u64 = 10 * 365 * 24 * 3_600_000;

/// A duration such as `50ms`, `10s`, `1m30s` or `2h`: whole milliseconds, no fractions, no sign.
///
/// A subset of what Go parses, so that the API server's CEL rules read every value in the same way.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(Duration);

/// The reason why a text is no duration, with an example of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// The text is not a sequence of whole numbers with units.
    #[error("`{0}` is no duration: use whole numbers with the units ms, s, m or h, e.g. 50ms, 10s or 1m30s")]
    Malformed(String),
    /// The text is well formed, but the number is too large.
    #[error("`{0}` is too long: use less than 292 years")]
    TooLong(String),
}

impl GoDuration {
    /// A duration in milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A duration in seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The duration for calculations.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.0
    }
}

/// Rounds up to whole milliseconds, so that no wait is shorter than computed. A longer duration becomes ten years, so that the schema
/// accepts it.
impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self::from_millis(u64::try_from(millis).map_or(LONGEST_WRITTEN, |millis| millis.min(LONGEST_WRITTEN)))
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseDurationError::Malformed(text.to_owned());
        let too_long = || ParseDurationError::TooLong(text.to_owned());
        if text.is_empty() {
            return Err(malformed());
        }
        let (mut rest, mut total) = (text, 0_u64);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(malformed)?;
            let (number, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let scale = match unit {
                "ms" => 1,
                "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                _ => return Err(malformed()),
            };
            if number.is_empty() {
                return Err(malformed());
            }
            let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(too_long)?;
            total = total.checked_add(part).filter(|total| *total <= MAX_MILLIS).ok_or_else(too_long)?;
            rest = tail;
        }
        Ok(Self::from_millis(total))
    }
}

/// One number and the largest unit that divides it: `5m`, `90s`, `1500ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match [(3_600_000, "h"), (60_000, "m"), (1_000, "s")].iter().find(|(scale, _)| millis.is_multiple_of(*scale)) {
            _ if millis == 0 => f.write_str("0s"),
            Some((scale, unit)) => write!(f, "{}{unit}", millis / scale),
            None => write!(f, "{millis}ms"),
        }
    }
}

impl fmt::Debug for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let rules =
            matching(DURATION_PATTERN, "write whole numbers with the units h, m, s or ms, e.g. 50ms, 10s or 1m30s");
        json_schema!({"type": "string", "maxLength": 20, "x-kubernetes-validations": rules})
    }
}

/// A moment in RFC 3339 with exactly three decimals, e.g. `2026-01-01T00:00:31.250Z`.
///
/// Wall-clock time is for users and for the status only. No decision about a lock uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliTime(Timestamp);

impl MilliTime {
    /// The moment by its milliseconds since 1970, if RFC 3339 can express its year.
    #[must_use]
    pub fn from_millis(millis: i64) -> Option<Self> {
        Timestamp::from_millisecond(millis).ok().map(Self)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// The moment for calculations.
    #[must_use]
    pub const fn get(self) -> Timestamp {
        self.0
    }
}

/// Rounds down to a millisecond, so that a published validity is never longer.
impl From<Timestamp> for MilliTime {
    fn from(time: Timestamp) -> Self {
        Self(Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time))
    }
}

impl From<MilliTime> for UnixMillis {
    fn from(time: MilliTime) -> Self {
        Self(time.as_millis())
    }
}

impl FromStr for MilliTime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>().map(Self::from)
    }
}

impl fmt::Display for MilliTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for MilliTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MilliTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|_| {
            de::Error::custom(format_args!("`{text}` is no time: use RFC 3339, e.g. 2026-01-01T00:00:31.250Z"))
        })
    }
}

impl JsonSchema for MilliTime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "MilliTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time", "maxLength": 40})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, millis) in [
            ("50ms", 50),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1m30s", 90_000),
            ("0s", 0),
            ("1h1ms", 3_600_001),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn durations_are_printed_with_one_unit() {
        for (text, shown) in
            [("90s", "90s"), ("60s", "1m"), ("1m30s", "90s"), ("3600s", "1h"), ("1500ms", "1500ms"), ("0ms", "0s")]
        {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.to_string(), shown);
            assert_eq!(shown.parse(), Ok(duration));
        }
    }

    #[test]
    fn malformed_durations_are_refused_with_the_valid_units() {
        for text in ["", "10", "s", "1.5s", "-1s", "+1s", "10 s", "10us", "10d", "1s2", "1m s", "٣s"] {
            assert_eq!(text.parse::<GoDuration>(), Err(ParseDurationError::Malformed(text.into())), "{text}");
        }
        let error = serde_json::from_str::<GoDuration>("\"10\"").unwrap_err().to_string();
        assert!(error.contains("use whole numbers with the units ms, s, m or h"), "{error}");
    }

    #[test]
    fn durations_that_go_cannot_hold_are_refused() {
        assert_eq!("2562047h".parse(), Ok(GoDuration::from_secs(2_562_047 * 3600)));
        for text in ["2562048h", "18446744073709551616ms", "18446744073709551615h", "2562047h2562047h"] {
            assert_eq!(text.parse::<GoDuration>(), Err(ParseDurationError::TooLong(text.into())), "{text}");
        }
    }

    #[test]
    fn a_computed_duration_is_rounded_up() {
        assert_eq!(GoDuration::from(Duration::from_nanos(1)), GoDuration::from_millis(1));
        assert_eq!(GoDuration::from(Duration::from_millis(7)), GoDuration::from_millis(7));
        assert_eq!(
            GoDuration::from(Duration::MAX).to_string().parse::<GoDuration>(),
            Ok(GoDuration::from_millis(LONGEST_WRITTEN))
        );
    }

    #[test]
    fn times_have_exactly_three_decimals() {
        for (text, shown) in [
            ("2026-01-01T00:00:31Z", "2026-01-01T00:00:31.000Z"),
            ("2026-01-01T00:00:31.25Z", "2026-01-01T00:00:31.250Z"),
            ("2026-01-01T01:00:31.123456+01:00", "2026-01-01T00:00:31.123Z"),
            ("2026-01-01T00:00:31.9999Z", "2026-01-01T00:00:31.999Z"),
        ] {
            let time: MilliTime = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(time).unwrap(), shown);
            assert_eq!(shown.parse::<MilliTime>().unwrap(), time, "a written time reads back as the same value");
        }
        let error = serde_json::from_str::<MilliTime>("\"yesterday\"").unwrap_err().to_string();
        assert!(error.contains("use RFC 3339"), "{error}");
    }

    #[test]
    fn times_convert_to_milliseconds_and_back() {
        let time = MilliTime::from_millis(1_767_225_631_250).unwrap();
        assert_eq!(time.to_string(), "2026-01-01T00:00:31.250Z");
        assert_eq!(time.as_millis(), 1_767_225_631_250);
        assert_eq!(MilliTime::from_millis(i64::MAX), None);
    }
}
