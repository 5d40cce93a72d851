//! Removes one field of a specification from the operator's view: `BLIND=claim.heartbeat`, `BLIND=RedisQuorum.maxTTL`.
//!
//! The simulation must detect the removal of each field of the API. This needs no build for each field.

use std::sync::OnceLock;

use hyper::body::Bytes;
use redlock_simulation::kube::api::Kind;
use serde_json::Value;

/// The prefix of a field of a RedisQuorum. The other fields are those of a DistributedLock.
const OF_QUORUM: &str = "RedisQuorum.";

/// The hidden field, and the kind that has it.
type Hidden = Option<(Kind, String)>;

static HIDDEN: OnceLock<Hidden> = OnceLock::new();

fn named(field: &str) -> Hidden {
    match field.strip_prefix(OF_QUORUM) {
        _ if field.is_empty() => None,
        Some(field) => Some((Kind::RedisQuorum, field.to_owned())),
        None => Some((Kind::DistributedLock, field.to_owned())),
    }
}

fn hidden() -> Option<&'static (Kind, String)> {
    HIDDEN.get_or_init(|| named(&std::env::var("BLIND").unwrap_or_default())).as_ref()
}

/// Whether a path of the API server is one of objects with the hidden field.
pub(crate) fn concerns(path: &str) -> bool {
    hidden().is_some_and(|(kind, _)| path.contains(&format!("/{}", kind.facts().plural)))
}

/// Whether objects of this kind have the hidden field.
pub(crate) fn concerns_kind(kind: Kind) -> bool {
    hidden().is_some_and(|(of, _)| *of == kind)
}

/// Removes the field from an object, a list of objects, or an event of a watch.
pub(crate) fn without_field(bytes: Bytes) -> Bytes {
    let Some((_, field)) = hidden() else { return bytes };
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

#[test]
fn a_field_of_a_quorum_has_its_kind_as_prefix() {
    assert_eq!(named("RedisQuorum.maxTTL"), Some((Kind::RedisQuorum, "maxTTL".to_owned())));
    assert_eq!(named("claim.heartbeat"), Some((Kind::DistributedLock, "claim.heartbeat".to_owned())));
    assert_eq!(named(""), None);
}
