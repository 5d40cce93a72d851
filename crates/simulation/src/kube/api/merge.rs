//! Merge patches, and server-side apply as far as the product uses it.

use serde_json::{Map, Value};

/// RFC 7396.
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
    // A patch of a field that was not there leaves no empty rest: `into[name]` makes a null.
    if let Some(map) = into.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// Takes out of `from` what `before` had and `now` has not: what a manager has applied and applies no more.
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
