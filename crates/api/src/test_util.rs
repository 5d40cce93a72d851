//! Objects, and their generators, for tests of this crate and of its users.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests alone use it")]

mod accepted;
mod odd;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{DistributedLock, GROUP, RedisQuorum, VERSION, crds};

pub use accepted::accepted;
pub use odd::{config, object};
#[cfg(test)]
pub(crate) use odd::{text, times};

/// The object that this JSON describes.
#[track_caller]
pub fn parsed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// The lock `ns/l` with this specification and this status.
pub fn lock(spec: Value, status: Value) -> DistributedLock {
    parsed(json!({"metadata": {"name": "l", "namespace": "ns", "uid": "u"}, "spec": spec, "status": status}))
}

/// A claim in namespace `ns` on the key `k`, created in this second of 2026, with other fields.
pub fn claim(name: &str, second: u8, extra: Value) -> DistributedLock {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created});
    parsed(merged(json!({"metadata": metadata, "spec": {"key": "k", "claim": {"identity": name}}}), extra))
}

/// The quorum `locks/main` with this specification and this status.
pub fn quorum(spec: Value, status: Value) -> RedisQuorum {
    parsed(json!({"metadata": {"name": "main", "namespace": "locks", "uid": "uid"}, "spec": spec, "status": status}))
}

/// A condition of a status, as JSON without a message.
pub fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since})
}

/// The JSON of an object with the fields of another one, at any depth.
pub fn merged(base: Value, extra: Value) -> Value {
    match (base, extra) {
        (Value::Object(mut base), Value::Object(extra)) => {
            for (name, value) in extra {
                let before = base.remove(&name).unwrap_or_default();
                base.insert(name, merged(before, value));
            }
            Value::Object(base)
        }
        (_, extra) => extra,
    }
}

/// The schema of a kind.
fn schema_of(kind: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    serde_json::to_value(schema).unwrap()
}

/// An object of its parts. `extra` is one more field of the metadata.
fn assembled(kind: &str, extra: (&str, Value), spec: Value, status: Option<Value>, deleted: bool) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "spec": spec,
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    object["metadata"][extra.0] = extra.1;
    if let Some(status) = status {
        object["status"] = status;
    }
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:01Z");
    }
    object
}
