//! Pure: a quantity as Kubernetes reads it.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Reads a quantity like Kubernetes, in whole bytes: a decimal number with a unit or an exponent.
///
/// `None` if it is invalid or too large.
pub fn bytes(quantity: &Quantity) -> Option<u64> {
    let text = quantity.0.trim_start_matches('+');
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let place = |units: &[&str]| units.iter().position(|other| *other == unit);
    let (decimal, binary) =
        (place(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]), place(&["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]));
    let (factor, exponent) = match (decimal, binary) {
        (Some(place), _) => (1, 3 * i32::try_from(place).ok()? - 9),
        (_, Some(place)) => (1024_u128.pow(u32::try_from(place).ok()? + 1), 0),
        _ => (1, unit.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let (power, value) = (exponent.checked_sub(scale)?, digits.checked_mul(factor)?);
    let ten = 10_u128.checked_pow(power.unsigned_abs());
    let value = if power < 0 { ten.map_or(0, |ten| value / ten) } else { value.checked_mul(ten?)? };
    u64::try_from(value).ok()
}
