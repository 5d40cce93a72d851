//! Merge patches, and server-side apply as far as the product uses it.

use serde_json::{Map, Value};

/// Applies a merge patch (RFC 7396).
pub fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            if let Some(map) = into.as_object_mut() {
                map.remove(name);
            }
        } else {
            merge(&mut into[name.as_str()], value);
        }
    }
    // `into[name]` created a null for each absent field. Remove these nulls.
    if let Some(map) = into.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// Removes from `from` the fields that `before` has and `now` lacks.
pub(super) fn prune(from: &mut Value, before: &Value, now: &Value) {
    let (Some(from), Some(before)) = (from.as_object_mut(), before.as_object()) else { return };
    for (name, old) in before {
        match (from.get_mut(name), now.get(name)) {
            (Some(_), None) => {
                from.remove(name);
            }
            (Some(kept), Some(new)) => prune(kept, old, new),
            (None, _) => {}
        }
    }
}
