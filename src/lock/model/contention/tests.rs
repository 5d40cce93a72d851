use serde_json::json;

use super::*;
use crate::api::test_util::{claim, condition, parsed};

fn with_condition(name: &str, created: u8, condition: serde_json::Value) -> DistributedLock {
    claim(name, created, json!({"status": {"transitions": 0, "conditions": [condition]}}))
}

fn waits(name: &str, created: u8) -> DistributedLock {
    claim(name, created, json!({}))
}

fn shared(lock: &DistributedLock) -> SharedRef {
    SharedRef::new(LockRef::from_obj(lock))
}

fn of(locks: &[&DistributedLock]) -> Contention {
    let mut contention = Contention::default();
    for lock in locks {
        contention.changed(&shared(lock), None, Some(&Entry::of(lock)));
    }
    contention
}

fn names<'a>(locks: impl IntoIterator<Item = &'a LockRef>) -> Vec<&'a str> {
    locks.into_iter().map(|lock| lock.name.as_str()).collect()
}

#[test]
fn locks_before_another_one_are_in_queue_order() {
    let urgent = claim("urgent", 9, json!({"spec": {"priority": 5}}));
    let suspended = claim("suspended", 0, json!({"spec": {"suspend": true}}));
    let elsewhere = claim("elsewhere", 0, json!({"metadata": {"namespace": "other"}}));
    let (a, b, c) = (waits("a", 1), waits("b", 2), waits("c", 3));
    let contention = of(&[&c, &b, &a, &urgent, &suspended, &elsewhere]);
    assert_eq!(names(contention.before(&c, false)), ["urgent", "a", "b"]);
    assert_eq!(names(contention.before(&c, true)), ["urgent", "elsewhere", "a", "b"]);
    assert_eq!(names(contention.before(&urgent, true)), [""; 0]);
    assert_eq!(names(contention.oldest(&c, false)), ["a", "b", "c", "urgent"]);
}

#[test]
fn another_shape_has_a_queue_of_its_own_and_none_is_forgotten() {
    let other = claim("other-shape", 0, json!({"spec": {"slots": 2, "priority": -1}}));
    let (a, b) = (waits("a", 1), waits("b", 2));
    let contention = of(&[&a, &b, &other]);
    assert_eq!(names(contention.before(&b, false)), ["a"]);
    assert_eq!(names(&contention.concerned(&Entry::of(&b), false)), ["a", "b", "other-shape"]);
}

#[test]
fn a_lock_that_nothing_on_its_key_keeps_waiting_is_passed_over() {
    let refused = with_condition("refused", 0, condition("Accepted", "False", "TTLTooLong"));
    let many: Vec<_> = (1..15).map(|number| waits(&format!("w-{number:02}"), number)).collect();
    let all: Vec<_> = many.iter().chain([&refused]).collect();
    let contention = of(&all);
    assert_eq!(names(contention.before(&many[1], false)), ["w-01"], "no lock waits for a refused one");
    assert!(decides_slots(&many[0]) && !decides_slots(&refused), "a refused lock does not fix the shape");
    let concerned = contention.concerned(&Entry::of(&many[0]), false);
    assert_eq!(concerned.len(), LAST_POSITION + 1 + 1, "the oldest is included, because it fixes the shape");
    assert!(names(&concerned).contains(&"w-11") && !names(&concerned).contains(&"w-12"));
}

#[test]
fn locks_without_a_quorum_keep_their_turns() {
    let starting = || condition("Accepted", "False", "QuorumNotReady");
    let starts = |number| with_condition(&format!("s-{number:02}"), number, starting());
    let many: Vec<_> = (1..15).map(starts).collect();
    let able = waits("able", 20);
    let contention = of(&many.iter().chain([&able]).collect::<Vec<_>>());
    assert_eq!(contention.before(&able, false).count(), 14);
    assert_eq!(contention.concerned(&Entry::of(&able), false).len(), LAST_POSITION + 1, "its quorum wakes all of them");
}

#[test]
fn elections_that_wait_or_hold_are_listed_by_age() {
    let election = |name: &str, created: u8, extra: serde_json::Value| {
        let mut lock = claim(name, created, extra);
        lock.spec.election = Some(parsed(json!({"selector": {"matchLabels": {"app": "a"}}})));
        lock.spec.claim = None;
        lock
    };
    let holds = election("holds", 5, json!({"status": {"transitions": 1, "holder": {"identity": "p"}}}));
    let (young, suspended) = (election("young", 9, json!({})), election("idle", 1, json!({"spec": {"suspend": true}})));
    let mut contention = of(&[&young, &holds, &suspended, &waits("a", 1)]);
    assert_eq!(names(&contention.elections("k")), ["holds", "young"]);
    contention.changed(&shared(&holds), Some(&Entry::of(&holds)), None);
    assert_eq!(names(&contention.elections("k")), ["young"]);
}

#[test]
fn an_earlier_state_of_a_lock_is_forgotten() {
    let before = waits("a", 1);
    let mut contention = of(&[&before]);
    let held = claim("a", 1, json!({"status": {"transitions": 1, "holder": {"identity": "a"}}}));
    contention.changed(&shared(&held), Some(&Entry::of(&before)), Some(&Entry::of(&held)));
    assert_eq!(names(&contention.holders("k")), ["a"]);
    assert_eq!(names(contention.before(&waits("b", 2), false)), [""; 0]);
    let conditions = [condition("Finished", "True", "Released")];
    let finished = claim("a", 1, json!({"status": {"transitions": 1, "conditions": conditions}}));
    contention.changed(&shared(&held), Some(&Entry::of(&held)), Some(&Entry::of(&finished)));
    assert!(contention.holders("k").is_empty());
    assert_eq!(names(&contention.ended("k")), ["a"]);
    contention.changed(&shared(&held), Some(&Entry::of(&finished)), None);
    assert!(contention.0.is_empty());
}

#[test]
fn a_lock_that_is_served_with_a_fault_decides_slots() {
    let with = |status: &str, reason: &str| with_condition("a", 1, condition("Accepted", status, reason));
    assert!(decides_slots(&with("True", "LabelRefused")) && decides_slots(&with("True", "LeaseTooLong")));
    assert!(decides_slots(&with("False", "KeyShapeConflict")) && !decides_slots(&with("False", "TTLTooLong")));
    let starting = with("False", "QuorumNotReady");
    assert!(is_able(&starting), "its turn is kept");
    assert!(decides_slots(&starting), "a grant can be on its way");
}
