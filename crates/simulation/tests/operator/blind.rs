//! Removes one field of a lock's specification from the operator's view: `BLIND=claim.heartbeat`.
//!
//! The simulation must detect the removal of each field of the API. This needs no build for each field.

use std::sync::OnceLock;

use hyper::body::Bytes;
use serde_json::Value;

static FIELD: OnceLock<Option<String>> = OnceLock::new();

fn field() -> Option<&'static str> {
    FIELD.get_or_init(|| std::env::var("BLIND").ok().filter(|field| !field.is_empty())).as_deref()
}

/// Removes the field from a lock, a list of locks, or an event of a watch.
pub(crate) fn without_field(bytes: Bytes) -> Bytes {
    let Some(field) = field() else { return bytes };
    let Ok(mut value) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    hide(&mut value, field);
    if let Some(items) = value["items"].as_array_mut() {
        items.iter_mut().for_each(|item| hide(item, field));
    }
    hide(&mut value["object"], field);
    if value["object"].is_null() {
        value.as_object_mut().map(|value| value.remove("object"));
    }
    let line = if bytes.ends_with(b"\n") { "\n" } else { "" };
    Bytes::from(format!("{value}{line}"))
}

fn hide(object: &mut Value, field: &str) {
    let (path, name) = field.rsplit_once('.').unwrap_or(("", field));
    let path = format!("/spec/{}", path.replace('.', "/"));
    let parent = object.pointer_mut(path.trim_end_matches('/'));
    parent.and_then(Value::as_object_mut).map(|parent| parent.remove(name));
}

#[test]
fn a_field_is_hidden_wherever_a_lock_is() {
    let lock = || serde_json::json!({"spec": {"ttl": "1s", "claim": {"identity": "a", "heartbeat": "1s"}}});
    let (mut plain, mut list) = (lock(), serde_json::json!([lock()]));
    hide(&mut plain, "claim.heartbeat");
    assert_eq!(plain, serde_json::json!({"spec": {"ttl": "1s", "claim": {"identity": "a"}}}));
    hide(&mut list[0], "ttl");
    assert_eq!(list[0]["spec"].get("ttl"), None);
    assert!(list[0]["spec"]["claim"]["heartbeat"].is_string());
}
