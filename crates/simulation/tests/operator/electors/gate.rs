//! The rule of the chart's policy (lease-gate.yaml) as a function.

use redlock_api::{LEASE_LOCK_ANNOTATION, LEASE_TOKEN_ANNOTATION};
use serde_json::Value;

use redlock_simulation::kube::api::{Shared, millis};

/// The reserve for a candidate's slow clock, in milliseconds.
const RESERVE: i64 = 1_000;

/// Whether the pod with this UID can write this specification into the Lease of this lock.
///
/// `before` is the Lease that it replaces.
pub(super) fn admits(lock: &Value, before: Option<&Shared>, lease: &Value, pod_uid: &str) -> bool {
    if lease["holderIdentity"].as_str().unwrap_or_default().is_empty() || lock.is_null() {
        return true;
    }
    let holder = lock["status"]["holder"]["podUID"].as_str().unwrap_or_default();
    let is_holder = !holder.is_empty() && holder == pod_uid;
    is_holder && is_bounded(lock, lease) && before.is_none_or(|before| is_open(lock, before, lease))
}

fn is_open(lock: &Value, before: &Shared, lease: &Value) -> bool {
    let token = lock["status"]["fencingToken"].as_i64().unwrap_or(0).to_string();
    before.annotation(LEASE_LOCK_ANNOTATION) != lock["metadata"]["name"].as_str()
        || before.annotation(LEASE_TOKEN_ANNOTATION) == Some(&token)
        || before.value["spec"]["holderIdentity"] == lease["holderIdentity"]
}

fn is_bounded(lock: &Value, lease: &Value) -> bool {
    let time = |value: &Value| value.as_str().and_then(millis);
    let (until, renewed) = (time(&lock["status"]["validUntil"]), time(&lease["renewTime"]));
    let seconds = lease["leaseDurationSeconds"].as_i64();
    let fits = |((until, renewed), seconds)| renewed + seconds * 1_000 + RESERVE <= until;
    until.zip(renewed).zip(seconds).is_some_and(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_admitted_from_the_holding_pod_in_its_validity() {
        let lock = json!({"status": {"holder": {"podUID": "a"}, "validUntil": "2026-01-01T00:00:10.000Z"}});
        let lease = |seconds: i64| json!({"holderIdentity": "x", "renewTime": "2026-01-01T00:00:04.000000Z", "leaseDurationSeconds": seconds});
        assert!(admits(&lock, None, &lease(5), "a"));
        assert!(!admits(&lock, None, &lease(6), "a") && !admits(&lock, None, &lease(5), "b"));
        assert!(admits(&lock, None, &json!({"holderIdentity": ""}), "b"));
        assert!(!admits(&json!({}), None, &lease(5), "") && admits(&Value::Null, None, &lease(5), "b"));
    }
}
