//! Pure: a quantity as Kubernetes reads it.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity as Kubernetes reads it, in whole bytes: a decimal number with a unit or an exponent. `None` if it is none, or too large.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim_start_matches('+');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (factor, exponent): (u128, i32) = match unit {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, unit.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let (power, value) = (exponent.checked_sub(scale)?, digits.checked_mul(factor)?);
    let ten = 10_u128.checked_pow(power.unsigned_abs());
    let value = match (power < 0, ten) {
        (false, Some(ten)) => value.checked_mul(ten)?,
        (true, Some(ten)) => value / ten,
        (false, None) => return None,
        (true, None) => 0,
    };
    u64::try_from(value).ok()
}
