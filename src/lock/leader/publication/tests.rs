use serde_json::json;

use super::*;

const NONCE: [u8; 10] = [7; 10];

fn lock(version: &str, status: serde_json::Value) -> DistributedLock {
    serde_json::from_value(json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "l", "namespace": "ns", "uid": "u", "resourceVersion": version},
        "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status
    }))
    .unwrap()
}

fn free() -> serde_json::Value {
    json!({"transitions": 0})
}

fn named() -> serde_json::Value {
    json!({"transitions": 1, "holder": {"identity": "a", "nonce": Nonce::from_bytes(NONCE).to_string()}})
}

fn writes(lock: &DistributedLock) -> Writes {
    Writes::new(lock, Nonce::from_bytes(NONCE))
}

fn refused() -> RequestError {
    RequestError::Refused(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded))
}

fn unknown() -> RequestError {
    RequestError::Unknown(None)
}

#[test]
fn a_grant_is_written_again_after_somebody_changed_the_spec() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    assert!(!writes.failed(&decided_on, &RequestError::Conflict));
    assert_eq!(writes.read(&lock("6", free()), true, false), Next::Write);
}

#[test]
fn a_grant_is_not_written_over_a_status_that_somebody_else_has_written() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    assert!(!writes.failed(&decided_on, &RequestError::Conflict));
    // Another leader took the key for an orphan: it has withdrawn the grant, and is releasing the key.
    let withdrawn = json!({"transitions": 0, "conditions": [{"type": "Held", "status": "False", "reason": "Pending",
        "message": "a grant was withdrawn", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    assert_eq!(writes.read(&lock("6", withdrawn), true, false), Next::Impossible);
}

#[test]
fn a_write_whose_outcome_is_unknown_stays_possible_until_the_object_has_moved_on() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    assert!(!writes.failed(&decided_on, &unknown()));
    assert_eq!(writes.read(&decided_on, false, false), Next::Withdraw, "it may still land");
    assert_eq!(writes.read(&lock("6", free()), false, false), Next::Impossible, "it carried version 5");
}

#[test]
fn a_refusal_settles_nothing_while_an_earlier_write_may_still_land() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    assert!(!writes.failed(&decided_on, &unknown()));
    assert!(!writes.failed(&decided_on, &refused()));
    assert_eq!(writes.read(&decided_on, true, false), Next::Write);
    assert_eq!(writes.read(&lock("6", named()), true, false), Next::Named);
}

#[test]
fn a_refusal_of_the_only_write_settles_it() {
    let decided_on = lock("5", free());
    assert!(writes(&decided_on).failed(&decided_on, &refused()));
    let mut after_a_conflict = writes(&decided_on);
    assert!(!after_a_conflict.failed(&decided_on, &unknown()));
    let changed = lock("6", free());
    assert_eq!(after_a_conflict.read(&changed, true, false), Next::Write);
    assert!(after_a_conflict.failed(&changed, &refused()), "the unknown write carried version 5");
}

#[test]
fn a_grant_is_neither_written_into_a_lock_that_cannot_be_read_nor_taken_back_beside_a_holder_without_a_nonce() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    assert!(!writes.failed(&decided_on, &unknown()));
    let mut unreadable = lock("6", free());
    unreadable.spec.unreadable = Some("why".into());
    assert_eq!(writes.read(&unreadable, true, false), Next::Impossible, "the write carried version 5");
    let unclear = lock("7", json!({"transitions": 1, "holder": {"identity": "unknown"}}));
    assert_eq!(writes.read(&unclear, true, false), Next::GiveUp);
}

#[test]
fn an_api_server_that_takes_no_write_is_given_up_when_the_validity_is_over() {
    let decided_on = lock("5", free());
    let mut writes = writes(&decided_on);
    for _ in 0..UNCONFIRMED {
        assert_ne!(writes.read(&decided_on, true, true), Next::GiveUp);
        assert!(!writes.failed(&decided_on, &unknown()));
    }
    assert_eq!(writes.read(&decided_on, true, false), Next::Write);
    assert_eq!(writes.read(&decided_on, true, true), Next::GiveUp);
    assert!(writes.open, "so its key is left to lapse");
}
