//! Objects and fields that this version possibly cannot read.
//!
//! A newer version can have written them. An unreadable field is absent, so that it hides nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object that cannot be read as its kind.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Name, UID, resourceVersion and finalizers are readable in every object.
    pub metadata: ObjectMeta,
    /// The whole object, without `managedFields`.
    pub object: Value,
    /// The reason why it cannot be read.
    pub error: String,
}

impl Unreadable {
    /// The value of `spec.<field>`, if there is one.
    #[must_use]
    pub fn spec(&self, field: &str) -> Option<&Value> {
        self.object.get("spec")?.get(field).filter(|value| !value.is_null())
    }

    /// The value of `status.<field>`, if there is one.
    #[must_use]
    pub fn status(&self, field: &str) -> Option<&Value> {
        self.object.get("status")?.get(field).filter(|value| !value.is_null())
    }
}

/// Reads a whole object. No value from a user or a controller ends the process.
///
/// `managedFields` are half of an object, and nothing needs them. A client can set values in them that no type accepts,
/// such as a time in the year 9999.
///
/// # Errors
/// If the object is not readable as its kind.
pub fn read_object<T: DeserializeOwned>(mut object: Value) -> Result<T, Box<Unreadable>> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let error = match catch_unwind(AssertUnwindSafe(|| T::deserialize(&object))) {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(error)) => error.to_string(),
        Err(_panic) => "the reader panicked".to_owned(),
    };
    let metadata = object.get("metadata").map(metadata_of).unwrap_or_default();
    Err(Box::new(Unreadable { metadata, object, error }))
}

/// The readable metadata, so that no object makes a whole list unreadable.
fn metadata_of(value: &Value) -> ObjectMeta {
    if let Ok(metadata) = ObjectMeta::deserialize(value) {
        return metadata;
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        generation: value.get("generation").and_then(Value::as_i64),
        finalizers: value.get("finalizers").and_then(read),
        // The operator needs the fact of the deletion, not its time.
        deletion_timestamp: value.get("deletionTimestamp").map(|time| Time::deserialize(time).unwrap_or(EPOCH)),
        ..ObjectMeta::default()
    }
}

const EPOCH: Time = Time(Timestamp::UNIX_EPOCH);

/// Reads metadata without `managedFields`.
///
/// # Errors
/// If the input is no JSON.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    value.as_object_mut().map(|fields| fields.remove("managedFields"));
    Ok(metadata_of(&value))
}

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
