use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::{DistributedLock, LetGo, RedisQuorum};
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
    View {
        delay: DELAY,
        reachable: true,
        sealing: Sealing::Unconfirmed,
        ending: None,
        deleting: None,
        refused: false,
        told: false,
        now: at(now),
    }
}

fn ending_raw() -> Raw {
    with("/status/ending", json!({"since": "2026-01-01T00:00:00Z", "reason": "Unreadable"}))
}

#[test]
fn a_held_lock_is_written_down_as_ending_and_then_runs_out_by_the_members_word() {
    assert_eq!(decide(&with("/status/ending", json!(null)), &view(0)), Step::End);
    let ending = ending_raw();
    let since = View { ending: Some(at(0)), ..view(5) };
    assert_eq!(decide(&ending, &since), Step::Seal);
    let until = |until| View { sealing: Sealing::RunsOut(at(until)), ..since };
    assert_eq!(decide(&ending, &until(8)), Step::Wait(Duration::from_secs(3)));
    assert_eq!(decide(&ending, &until(5)), Step::Free { confirmed: true });
    assert_eq!(decide(&ending, &View { sealing: Sealing::Gone, ..since }), Step::Free { confirmed: true });
}

#[test]
fn without_the_members_word_a_hold_is_let_go_after_its_delay_and_not_before() {
    let ending = ending_raw();
    let since = |now| View { ending: Some(at(0)), reachable: false, ..view(now) };
    assert_eq!(decide(&ending, &since(29)), Step::Wait(Duration::from_secs(1)));
    assert_eq!(decide(&ending, &since(30)), Step::Free { confirmed: false });
    assert_eq!(decide(&ending, &View { reachable: true, ..since(29) }), Step::Seal);
    assert_eq!(decide(&ending, &View { reachable: true, ..since(30) }), Step::Free { confirmed: false });
}

#[test]
fn a_lock_that_is_deleted_goes_away_one_delay_after_that_was_seen() {
    let deleted = |status: Value| {
        let mut object = held();
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["status"] = status;
        raw(object)
    };
    let free = deleted(json!({}));
    let since = |now| View { deleting: Some(at(0)), ..view(now) };
    assert!(matches!(decide(&free, &since(29)), Step::Wait(_)));
    assert_eq!(decide(&free, &since(30)), Step::RemoveFinalizer);
    // What is held ends first, unless the API server does not take that.
    let held = deleted(held()["status"].clone());
    assert_eq!(decide(&held, &since(30)), Step::End);
    assert_eq!(decide(&held, &View { refused: true, ..since(30) }), Step::RemoveFinalizer);
    assert!(matches!(decide(&held, &View { refused: true, ..since(29) }), Step::Wait(_)));
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
    assert!(matches!(decide(&free, &View { told: true, ..view(0) }), Step::Wait(_)));
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
    let let_go = LetGo { nonce: nonce(), key: "shop/k".into(), ..LetGo::default() };
    let freed = apply(&ended(&held, Some(&let_go), NOW));
    assert_eq!((freed.holder, freed.ending, freed.fencing_token, freed.valid_until), (None, None, None, None));
    assert_eq!((freed.let_go, freed.transitions), (Some(let_go), 1));
    let finished =
        |status: &[_]| crate::api::conditions::is_true(status, crate::api::conditions::LockCondition::Finished);
    assert!(finished(&freed.conditions), "a claim ends once");
    assert_eq!(apply(&ended(&held, None, NOW)).let_go, None);
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

fn quorums() -> Vec<Arc<RedisQuorum>> {
    let quorum = |name: &str, uid: &str, default: &str| {
        let quorum = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum", "spec": {},
            "metadata": {"name": name, "namespace": "locks", "uid": uid,
                "annotations": {"redlock-operator.io/default-quorum": default}}});
        Arc::new(serde_json::from_value(quorum).unwrap())
    };
    vec![quorum("main", "q", "true"), quorum("other", "o", "false")]
}

#[test]
fn a_hold_is_located_by_its_status() {
    let place = locate(&raw(held()), &[]).unwrap();
    assert!(place.exact);
    assert_eq!((place.quorum.uid.as_str(), place.keys[0].as_str()), ("q", "shop/k"));
    assert_eq!(place.recorded, "40s".parse().ok());
}

#[test]
fn a_key_that_the_status_does_not_have_is_that_of_the_specification() {
    let quorums = quorums();
    for (pointer, value) in
        [("/status/holder/nonce", json!(7)), ("/status/holder/nonce", json!("n")), ("/status/holder/key", json!(null))]
    {
        let place = locate(&with(pointer, value.clone()), &quorums).unwrap();
        assert!(!place.exact, "{pointer} {value}");
        assert_eq!((place.quorum.uid.as_str(), place.keys[0].as_str()), ("q", "shop/k"), "{pointer} {value}");
    }
    assert_eq!(locate(&with("/status/holder/quorum", json!("main")), &quorums), None);
    assert_eq!(locate(&with("/status/holder", json!("me")), &quorums), None);
    let gone = locate(&with("/status/holder/key", json!(null)), &[]).unwrap();
    assert!(gone.keys.is_empty() && !gone.exact);
}

#[test]
fn of_a_lock_with_slots_every_slot_may_be_held() {
    let quorums = quorums();
    let keys = |slot: Value| {
        let mut object = held();
        object["spec"]["slots"] = json!(3);
        let holder = object["status"]["holder"].as_object_mut().unwrap();
        holder.insert("slot".into(), slot);
        holder.remove("key");
        let keys = locate(&raw(object), &quorums).unwrap().keys;
        keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(keys(json!(null)), ["shop/k#0", "shop/k#1", "shop/k#2"]);
    assert_eq!(keys(json!(2)), ["shop/k#2"]);
}

#[test]
fn after_three_panics_a_lock_is_left_alone_for_longer_and_longer_unless_another_hand_changes_it() {
    let mut panics = Panics::default();
    let versions = || [Some("4".to_owned()), Some("5".to_owned())];
    for second in 0..2 {
        panics.add(versions(), at(second));
        assert_eq!(panics.left(Some("4"), at(second)), None, "renewal and handling go on");
    }
    let mut now = at(2);
    for minutes in [1, 2, 4, 8, 10, 10] {
        panics.add(versions(), now);
        let pause = Duration::from_secs(60 * minutes);
        assert_eq!((panics.left(Some("4"), now), panics.left(Some("5"), now)), (Some(pause), Some(pause)));
        now = now + pause;
        assert_eq!(panics.left(Some("5"), now), None, "it is tried again");
    }
    panics.add(versions(), now);
    assert_eq!(panics.left(Some("6"), now), None, "a client changed it");
    panics.wrote(Some("6".to_owned()));
    assert!(panics.left(Some("6"), now).is_some(), "that was this leader");
}

#[test]
fn a_lock_whose_handling_fails_ends_in_the_same_way() {
    let mut object = held();
    object["spec"].as_object_mut().unwrap().remove("ttlAfterFinished");
    let lock: DistributedLock = serde_json::from_value(object).unwrap();
    let raw = Raw::failing(&lock, 3);
    assert!(raw.is_held() && locate(&raw, &[]).unwrap().exact);
    let patch = ending(&raw, NOW);
    assert_eq!(patch.pointer("/status/ending/reason"), Some(&json!("OperatorFault")));
    assert_eq!(patch.pointer("/status/conditions/0/status"), Some(&json!("Unknown")), "the specification may be good");
}
