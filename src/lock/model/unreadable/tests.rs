use serde_json::json;

use super::*;
use crate::api::DistributedLock;
use crate::redlock::Nonce;
use crate::runtime::cache::Guarded;
use crate::time::UnixMillis;

const DELAY: Duration = Duration::from_secs(30);
const NOW: UnixMillis = UnixMillis(1_767_225_600_000);

fn at(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(1_000 + seconds))
}

fn nonce() -> String {
    Nonce::from_bytes([7; 10]).to_string()
}

/// A held claim that nobody can read, for a field of its specification.
fn held() -> Value {
    json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "bad", "namespace": "shop", "uid": "u", "resourceVersion": "9", "generation": 3,
            "finalizers": [LOCK_FINALIZER, "other"]},
        "spec": {"key": "k", "claim": {"identity": "me"}, "ttlAfterFinished": "9999999h"},
        "status": {"transitions": 1, "fencingToken": 5,
            "holder": {"identity": "me", "nonce": nonce(), "key": "shop/k", "rejoinDelay": "40s",
                "quorum": {"namespace": "locks", "name": "main", "uid": "q"}},
            "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]}})
}

fn raw(object: Value) -> Raw {
    match serde_json::from_value::<Guarded<DistributedLock>>(object).unwrap() {
        Guarded::Unreadable(raw) => Raw::unreadable(&raw),
        Guarded::Read(lock) => panic!("can be read: {lock:?}"),
    }
}

fn with(pointer: &str, value: Value) -> Raw {
    let mut object = held();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    raw(object)
}

fn view(now: u64) -> View {
    View { delay: DELAY, ending: None, deleting: None, told: false, now: at(now) }
}

#[test]
fn a_held_lock_is_written_down_as_ending_and_has_no_holder_when_no_member_can_remember_it() {
    assert_eq!(decide(&with("/status/ending", json!(null)), &view(0)), Step::End);
    let ending = with("/status/ending", json!({"since": "2026-01-01T00:00:00Z", "reason": "Unreadable"}));
    let since = |now| View { ending: Some(at(0)), ..view(now) };
    assert_eq!((decide(&ending, &since(29)), decide(&ending, &since(30))), (Step::Wait, Step::Free));
}

#[test]
fn a_lock_that_is_deleted_goes_away_one_delay_after_that_was_seen() {
    let since = |now| View { deleting: Some(at(0)), told: true, ..view(now) };
    let (held, free) = (raw(held()), with("/status/holder", json!(null)));
    assert_eq!((decide(&held, &since(29)), decide(&held, &since(30))), (Step::End, Step::RemoveFinalizer));
    assert_eq!((decide(&free, &since(29)), decide(&free, &since(30))), (Step::Wait, Step::RemoveFinalizer));
}

#[test]
fn a_lock_that_nobody_holds_is_told_of_once() {
    let free = with("/status/holder", json!(null));
    assert_eq!(decide(&free, &view(0)), Step::Tell);
    let patch = told(&free, NOW).unwrap();
    let accepted = patch.pointer("/status/conditions/0").unwrap();
    assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("Unreadable")));
    assert!(accepted["message"].as_str().unwrap().contains("9999999h"), "{accepted}");
    let mut object = free.object.clone();
    object["status"]["conditions"] = patch["status"]["conditions"].clone();
    assert_eq!(told(&raw(object), UnixMillis(NOW.0 + 5_000)), None);
    assert_eq!(decide(&free, &View { told: true, ..view(0) }), Step::Wait);
}

#[test]
fn what_is_written_names_the_version_it_was_decided_on_and_can_be_read() {
    let held = raw(held());
    let apply = |patch: &Value| {
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "9"}));
        let mut object = held.object.clone();
        object["spec"]["ttlAfterFinished"] = json!("1h");
        for (name, value) in patch["status"].as_object().unwrap() {
            object["status"][name] = value.clone();
        }
        let object = strip_nulls(object);
        serde_json::from_value::<DistributedLock>(object).unwrap().status.unwrap()
    };
    let ends = apply(&ending(&held, NOW));
    let end = ends.ending.unwrap();
    assert_eq!((end.reason.as_str(), end.until), ("Unreadable", None));
    assert!(ends.holder.is_some() && end.message.unwrap().contains("9999999h"));
    let freed = apply(&ended(&held, NOW));
    assert_eq!((freed.holder, freed.ending, freed.fencing_token, freed.valid_until), (None, None, None, None));
    assert_eq!(freed.transitions, 1);
    let finished =
        |status: &[_]| crate::api::conditions::is_true(status, crate::api::conditions::LockCondition::Finished);
    assert!(finished(&freed.conditions), "a claim ends once");
}

fn strip_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, strip_nulls(value)))
            .collect(),
        other => other,
    }
}

#[test]
fn a_hold_is_located_by_its_status_or_not_at_all() {
    let (quorum, key, found) = raw(held()).place().unwrap();
    assert_eq!((quorum.uid.as_str(), key.as_str(), found.to_string()), ("q", "shop/k", nonce()));
    assert_eq!(raw(held()).rejoin_delay(), Some(Duration::from_secs(40)));
    for (pointer, value) in [
        ("/status/holder/nonce", json!(7)),
        ("/status/holder/quorum", json!("main")),
        ("/status/holder/key", json!(null)),
        ("/status/holder", json!("me")),
    ] {
        assert_eq!(with(pointer, value.clone()).place(), None, "{pointer} {value}");
    }
}
