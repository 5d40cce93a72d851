//! Formats and truncates numbers like Lua 5.1, cjson and Redis.

/// C's `%.<precision>g`.
pub(super) fn general(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let precision = i32::try_from(precision).unwrap();
    if exponent < -4 || exponent >= precision {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(precision - 1 - exponent).unwrap();
    without_zeros(&format!("{number:.decimals$}"))
}

/// C's cast to `long long` on x86: a number out of range becomes the smallest one.
pub(super) fn cut(number: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[allow(clippy::cast_possible_truncation, reason = "it fits")]
    if fits { number as i64 } else { i64::MIN }
}

/// Redis' `string2ll`: digits without surrounding characters.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (number, precision, text) in [
            (0.0, 14, "0"),
            (1.0, 14, "1"),
            (2.5, 14, "2.5"),
            (1e15, 14, "1e+15"),
            (123_456_789_012_345_678.0, 14, "1.2345678901235e+17"),
            (12_345_678_901_234.0, 14, "12345678901234"),
            (0.1, 17, "0.10000000000000001"),
            (1e17, 17, "1e+17"),
            (1e16, 17, "10000000000000000"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (-1.75, 14, "-1.75"),
        ] {
            assert_eq!(general(number, precision), text);
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_the_smallest() {
        assert_eq!([1.7, -1.7, 1e20, -1e20, f64::NAN].map(cut), [1, -1, i64::MIN, i64::MIN, i64::MIN]);
        assert_eq!(
            ["1", "-1", "01", "+1", "", " 1", "-0"].map(|text| integer(text.as_bytes())).iter().flatten().count(),
            2
        );
    }
}
