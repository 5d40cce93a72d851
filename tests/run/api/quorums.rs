//! The quorum of the API server.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

/// One quorum, of which a member restarted.
pub(super) fn list(now: Timestamp) -> Value {
    let member = |name: &str| json!({"name": name, "state": "Admitted", "admittedAt": "2026-01-01T00:00:00.000Z"});
    let fenced = json!({"name": "main-2", "state": "Fenced", "reason": "Restarted",
        "rejoinAt": super::text(now + Duration::from_secs(600))});
    json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorumList", "metadata": {"resourceVersion": "1"}, "items": [{
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
        "metadata": {"name": "main", "namespace": "redlock-system", "uid": "u-quorum",
            "annotations": {"redlock-operator.io/default-quorum": "true"}},
        "spec": {"maxTTL": "30s"},
        "status": {"quorum": 2, "voters": ["main-0", "main-1", "main-2"], "tokenFloor": 1,
            "members": [member("main-0"), member("main-1"), fenced], "conditions": []},
    }]})
}

/// The answer to `/version`.
pub(super) fn version() -> Value {
    let empty = ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    let mut version = json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"});
    for name in empty {
        version[name] = json!("");
    }
    version
}
