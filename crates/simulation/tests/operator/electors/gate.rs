//! The rule of the chart's policy (lease-gate.yaml) as a function.

use redlock_api::{LEASE_LABEL, LEASE_TOKEN_ANNOTATION};
use serde_json::Value;

use redlock_simulation::kube::api::millis;

/// The reserve for a candidate's slow clock, in milliseconds.
const RESERVE: i64 = 1_000;

/// Whether the pod with this UID can write this specification into the Lease of this lock.
///
/// `before` is the Lease that it replaces. Only the operator creates the Lease of a lock, and the policy finds a Lease by its label.
pub(super) fn admits(lock: &Value, before: Option<&Value>, lease: &Value, pod_uid: &str) -> bool {
    if lock.is_null() {
        return true;
    }
    let Some(before) = before else { return false };
    if before["metadata"]["labels"][LEASE_LABEL] != "true"
        || lease["holderIdentity"].as_str().unwrap_or_default().is_empty()
    {
        return true;
    }
    let holder = lock["status"]["holder"]["podUID"].as_str().unwrap_or_default();
    let is_holder = !holder.is_empty() && holder == pod_uid;
    is_holder && is_bounded(lock, lease) && is_open(lock, before, lease)
}

fn is_open(lock: &Value, before: &Value, lease: &Value) -> bool {
    let token = lock["status"]["fencingToken"].as_i64().unwrap_or(0).to_string();
    let opened = &before["metadata"]["annotations"][LEASE_TOKEN_ANNOTATION];
    *opened == *token || opened.is_null() && before["spec"]["holderIdentity"] == lease["holderIdentity"]
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
        let lock =
            json!({"status": {"fencingToken": 7, "holder": {"podUID": "a"}, "validUntil": "2026-01-01T00:00:10.000Z"}});
        let lease = |seconds: i64| json!({"holderIdentity": "x", "renewTime": "2026-01-01T00:00:04.000000Z", "leaseDurationSeconds": seconds});
        let with = |labels: Value, token: &str| {
            let metadata = json!({"labels": labels, "annotations": {LEASE_TOKEN_ANNOTATION: token}});
            json!({"metadata": metadata, "spec": {"holderIdentity": "x"}})
        };
        let open = with(json!({LEASE_LABEL: "true"}), "7");
        assert!(admits(&lock, Some(&open), &lease(5), "a"));
        assert!(!admits(&lock, Some(&open), &lease(6), "a") && !admits(&lock, Some(&open), &lease(5), "b"));
        assert!(admits(&lock, Some(&open), &json!({"holderIdentity": ""}), "b"));
        assert!(!admits(&lock, Some(&with(json!({LEASE_LABEL: "true"}), "6")), &lease(5), "a"));
        let before_the_lock = json!({"metadata": {"labels": {LEASE_LABEL: "true"}}, "spec": {"holderIdentity": "x"}});
        assert!(admits(&lock, Some(&before_the_lock), &lease(5), "a"));
        assert!(admits(&lock, Some(&with(json!({}), "6")), &lease(5), "b"), "no gate without the label");
        assert!(!admits(&lock, None, &lease(5), "a") && admits(&Value::Null, None, &lease(5), "b"));
    }
}
