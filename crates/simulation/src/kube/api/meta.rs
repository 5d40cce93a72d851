//! Metadata that the server writes: names, UIDs, times, field managers.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::Millis;

/// Deterministic names and UIDs.
#[derive(Clone, Debug)]
pub(super) struct Names {
    seed: u64,
    count: u64,
}

impl Names {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        super::super::mix(self.seed ^ super::super::mix(self.count))
    }

    pub(super) fn uid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        )
    }

    /// The five characters that `generateName` adds.
    pub(super) fn suffix(&mut self) -> String {
        let mut bits = self.next();
        let mut letter = || {
            let index = (bits % 27) as usize;
            bits /= 27;
            char::from(b"bcdfghjklmnpqrstvwxz2456789"[index])
        };
        (0..5).map(|_| letter()).collect()
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Formats a time as in `creationTimestamp`: whole seconds.
pub fn seconds(at: Millis) -> String {
    Timestamp::from_second(at.div_euclid(1_000)).map(|time| time.to_string()).unwrap_or_default()
}

/// Parses a time into milliseconds.
pub fn millis(text: &str) -> Option<Millis> {
    text.parse::<Timestamp>().ok().map(|time| time.as_millisecond())
}

/// Removes empty maps and lists, because Go's types omit them.
pub(super) fn tidy(value: &mut Value) {
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = metadata.get(field).is_some_and(|value| match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            other => other.is_null(),
        });
        if is_empty {
            metadata.remove(field);
        }
    }
    if let Some(map) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        map.retain(|_, value| value.is_string());
    }
}

/// Whether two states agree in everything except versions and managers.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        value
    };
    one == other || strip(one) == strip(other)
}

/// Records the manager that last wrote each annotation, and when a Lease last changed.
///
/// The product reads nothing else of `managedFields`.
pub(super) fn manage(before: Option<&Value>, next: &mut Value, manager: &str, now: Millis) {
    let empty = Map::new();
    let annotations = |value: Option<&Value>| {
        value.and_then(|value| value["metadata"]["annotations"].as_object()).unwrap_or(&empty).clone()
    };
    let (old, new) = (annotations(before), annotations(Some(next)));
    let mut entries: Vec<Value> =
        before.and_then(|before| before["metadata"]["managedFields"].as_array()).cloned().unwrap_or_default();
    let written: Vec<_> =
        new.iter().filter(|(name, value)| old.get(*name) != Some(value)).map(|(name, _)| name).collect();
    for entry in &mut entries {
        if let Some(fields) = entry.pointer_mut("/fieldsV1/f:metadata/f:annotations").and_then(Value::as_object_mut) {
            fields.retain(|field, _| {
                field
                    .strip_prefix("f:")
                    .is_some_and(|name| new.contains_key(name) && !written.iter().any(|w| *w == name))
            });
        }
    }
    entries.retain(|entry| {
        entry
            .pointer("/fieldsV1/f:metadata/f:annotations")
            .and_then(Value::as_object)
            .is_some_and(|map| !map.is_empty())
    });
    if !written.is_empty() {
        let fields: Map<_, _> = written.iter().map(|name| (format!("f:{name}"), json!({}))).collect();
        entries.push(json!({
            "manager": manager, "operation": "Update", "apiVersion": next["apiVersion"], "time": seconds(now),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": fields}},
        }));
    }
    if next["spec"]["renewTime"].is_string() {
        entries = vec![json!({"manager": manager, "operation": "Update", "time": seconds(now)})];
    }
    if let Some(metadata) = next["metadata"].as_object_mut() {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}
