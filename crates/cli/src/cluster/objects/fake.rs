//! Objects from YAML.

use super::*;

/// The time of the tests.
pub(crate) fn now() -> MilliTime {
    "2026-01-01T12:00:00.000Z".parse().unwrap()
}

/// A lock in namespace `shop`, from the YAML of its specification and status.
pub(crate) fn lock(name: &str, yaml: &str) -> LockObject {
    let mut object: serde_json::Value = serde_yaml::from_str(yaml).unwrap();
    let metadata = serde_json::json!({"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1,
        "creationTimestamp": "2026-01-01T11:00:00Z", "managedFields": [{"manager": "x"}]});
    object["metadata"] = metadata;
    serde_json::from_value(object).unwrap()
}

/// A claim on key `reindex` that holds.
pub(crate) fn held(name: &str) -> LockObject {
    lock(
        name,
        &format!(
            "spec: {{key: reindex, ttl: 10s, slots: 1, claim: {{identity: {name}}}}}
status:
  observedGeneration: 1
  key: reindex
  holder: {{identity: {name}, quorum: {{namespace: redlock-system, name: main, uid: u}}}}
  fencingToken: 42
  acquiredAt: 2026-01-01T11:59:00.000Z
  renewedAt: 2026-01-01T11:59:58.000Z
  validUntil: 2026-01-01T12:00:08.200Z
  votes: 3/3
  queuePosition: 0
  transitions: 1
  conditions:
  - {{type: Accepted, status: 'True', reason: Accepted, message: ok, lastTransitionTime: 2026-01-01T11:00:00Z}}
  - {{type: Held, status: 'True', reason: Held, message: 'held by {name}', lastTransitionTime: 2026-01-01T11:59:00Z}}
"
        ),
    )
}

/// A claim on key `reindex` that was lost ten seconds ago, and whose end no majority has confirmed.
pub(crate) fn lost(name: &str) -> LockObject {
    let mut lock = held(name);
    let condition = lock.status.conditions.last_mut().unwrap();
    (condition.status, condition.reason) = ("False".into(), "Expired".into());
    condition.last_transition_time = serde_json::from_value(serde_json::json!("2026-01-01T11:59:50Z")).unwrap();
    lock
}

/// A claim on key `reindex` that is not held, for this reason.
pub(crate) fn waiting(name: &str, reason: &str, message: &str, position: Option<i32>) -> LockObject {
    let position = position.map_or(String::new(), |position| format!("queuePosition: {position}"));
    lock(
        name,
        &format!(
            "spec: {{key: reindex, ttl: 10s, claim: {{identity: {name}}}}}
status:
  observedGeneration: 1
  {position}
  conditions:
  - {{type: Accepted, status: 'True', reason: Accepted, message: ok, lastTransitionTime: 2026-01-01T11:00:00Z}}
  - {{type: Held, status: 'False', reason: {reason}, message: '{message}', lastTransitionTime: 2026-01-01T11:00:00Z}}
"
        ),
    )
}

/// The quorum `redlock-system/main` of three members in these states.
pub(crate) fn quorum(states: [&str; 3]) -> QuorumObject {
    let member = |(index, state): (usize, &str)| {
        let fence = match state {
            "Fenced" => "reason: Restarted, rejoinAt: 2026-01-01T12:00:12.000Z",
            "Admitted" => "admittedAt: 2026-01-01T10:00:00.000Z",
            _ => "message: does not answer",
        };
        format!(
            "  - {{name: main-{index}, podName: main-{index}-0, podUID: pod-{index}, nodeName: node-{index}, \
             runID: run-{index}, state: {state}, {fence}}}"
        )
    };
    let members: Vec<_> = states.into_iter().enumerate().map(member).collect();
    let voting = states.iter().filter(|state| **state == "Admitted").count();
    let reason = match voting {
        3 => "True', reason: AllAdmitted, message: all members vote",
        _ => "False', reason: MembersFenced, message: main-2 votes from 12:00:12",
    };
    let available = match voting {
        3 => "True', reason: AllAdmitted",
        2 => "True', reason: MajorityAdmitted",
        _ => "False', reason: MajorityLost",
    };
    let yaml = format!(
        "metadata:
  name: main
  namespace: redlock-system
  generation: 1
  annotations: {{redlock-operator.io/default-quorum: 'true'}}
spec: {{maxTTL: 30s}}
status:
  observedGeneration: 1
  operator: redlock-system/redlock-operator
  quorum: 2
  ready: {voting}/3
  maxTTLInForce: 30s
  voters: [main-0, main-1, main-2]
  members:
{}
  conditions:
  - {{type: Ready, status: '{reason}, lastTransitionTime: 2026-01-01T11:00:00Z}}
  - {{type: QuorumAvailable, status: '{available}, message: '', lastTransitionTime: 2026-01-01T11:00:00Z}}
",
        members.join("\n")
    );
    serde_yaml::from_str(&yaml).unwrap()
}
