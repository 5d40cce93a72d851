//! Objects of tests.

use redlock_api::test_util::{merged, parsed};
use serde_json::json;

use super::*;

/// The time of the tests.
pub(crate) fn now() -> MilliTime {
    "2026-01-01T12:00:00.000Z".parse().unwrap()
}

/// A condition that changed an hour ago.
pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    let since = "2026-01-01T11:00:00Z";
    parsed(json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}))
}

/// A lock in namespace `shop`, from the YAML of its specification and status.
pub(crate) fn lock(name: &str, yaml: &str) -> LockObject {
    object(name, serde_yaml::from_str(yaml).unwrap())
}

/// A lock in namespace `shop` with this specification and this status.
fn object(name: &str, parts: Value) -> LockObject {
    let metadata = json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1,
        "creationTimestamp": "2026-01-01T11:00:00Z", "managedFields": [{"manager": "x"}]});
    parsed(merged(parts, json!({"metadata": metadata})))
}

/// A claim on key `reindex` that holds.
pub(crate) fn held(name: &str) -> LockObject {
    let accepted = condition("Accepted", "True", "Accepted", "ok");
    let mut held = condition("Held", "True", "Held", &format!("held by {name}"));
    held.last_transition_time = parsed(json!("2026-01-01T11:59:00Z"));
    let quorum = json!({"namespace": "redlock-system", "name": "main", "uid": "u"});
    let spec = json!({"key": "reindex", "ttl": "10s", "slots": 1, "claim": {"identity": name}});
    let status = json!({
        "observedGeneration": 1, "key": "reindex", "holder": {"identity": name, "quorum": quorum}, "fencingToken": 42,
        "acquiredAt": "2026-01-01T11:59:00.000Z", "renewedAt": "2026-01-01T11:59:58.000Z",
        "validUntil": "2026-01-01T12:00:08.200Z", "votes": "3/3", "queuePosition": 0, "transitions": 1,
        "conditions": [accepted, held],
    });
    object(name, json!({"spec": spec, "status": status}))
}

/// A claim on key `reindex` that was lost ten seconds ago, and whose end no majority has confirmed.
pub(crate) fn lost(name: &str) -> LockObject {
    let mut lock = held(name);
    let condition = lock.status.conditions.last_mut().unwrap();
    (condition.status, condition.reason) = ("False".into(), "Expired".into());
    condition.last_transition_time = parsed(json!("2026-01-01T11:59:50Z"));
    lock
}

/// A claim on key `reindex` that is not held, for this reason.
pub(crate) fn waiting(name: &str, reason: &str, message: &str, position: Option<i32>) -> LockObject {
    let conditions = [condition("Accepted", "True", "Accepted", "ok"), condition("Held", "False", reason, message)];
    let status = json!({"observedGeneration": 1, "queuePosition": position, "conditions": conditions});
    object(name, json!({"spec": {"key": "reindex", "ttl": "10s", "claim": {"identity": name}}, "status": status}))
}

/// The quorum `redlock-system/main` of three members in these states.
pub(crate) fn quorum(states: [&str; 3]) -> QuorumObject {
    let member = |(index, state): (usize, &str)| {
        let fence = match state {
            "Fenced" => json!({"reason": "Restarted", "rejoinAt": "2026-01-01T12:00:12.000Z"}),
            "Admitted" => json!({"admittedAt": "2026-01-01T10:00:00.000Z"}),
            _ => json!({"message": "does not answer"}),
        };
        let member = json!({
            "name": format!("main-{index}"), "podName": format!("main-{index}-0"), "podUID": format!("pod-{index}"),
            "nodeName": format!("node-{index}"), "runID": format!("run-{index}"), "state": state,
        });
        merged(member, fence)
    };
    let members: Vec<_> = states.into_iter().enumerate().map(member).collect();
    let voting = states.iter().filter(|state| **state == "Admitted").count();
    let ready = match voting {
        3 => condition("Ready", "True", "AllAdmitted", "all members vote"),
        _ => condition("Ready", "False", "MembersFenced", "main-2 votes from 12:00:12"),
    };
    let available = match voting {
        3 => condition("QuorumAvailable", "True", "AllAdmitted", ""),
        2 => condition("QuorumAvailable", "True", "MajorityAdmitted", ""),
        _ => condition("QuorumAvailable", "False", "MajorityLost", ""),
    };
    parsed(json!({
        "metadata": {"name": "main", "namespace": "redlock-system", "generation": 1,
            "annotations": {"redlock-operator.io/default-quorum": "true"}},
        "spec": {"maxTTL": "30s"},
        "status": {"observedGeneration": 1, "operator": "redlock-system/redlock-operator", "quorum": 2,
            "ready": format!("{voting}/3"), "maxTTLInForce": "30s", "voters": ["main-0", "main-1", "main-2"],
            "members": members, "conditions": [ready, available]},
    }))
}
