//! Generators of objects, for property tests of this crate and of its users.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests alone use it")]

mod accepted;
mod odd;

use serde_json::{Value, json};

use crate::{GROUP, VERSION, crds};

pub use accepted::accepted;
pub use odd::{config, object};
#[cfg(test)]
pub(crate) use odd::{text, times};

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
