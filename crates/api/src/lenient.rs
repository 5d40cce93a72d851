//! Fields that a newer version has written. An unreadable one is absent, so that it hides nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Whether a value can be read. No value ends the process.
pub(crate) fn is_readable<T: DeserializeOwned>(value: &Value) -> bool {
    read::<T>(value).is_some()
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    catch_unwind(AssertUnwindSafe(|| T::deserialize(value).ok())).ok().flatten()
}

/// Reads a field. An unreadable value is absent.
///
/// # Errors
/// If the input is no JSON.
pub fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(read(&Value::deserialize(deserializer)?))
}

/// Reads the readable items of a list. An unreadable list is empty.
///
/// # Errors
/// If the input is no JSON.
pub fn readable_items<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Value::deserialize(deserializer)?;
    Ok(list.as_array().into_iter().flatten().filter_map(read).collect())
}
