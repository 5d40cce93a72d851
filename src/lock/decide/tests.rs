use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::*;
use crate::{
    lock::holds::Terms,
    redlock::{Extend, LockKey, Nonce, Votes},
};

const WALL: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z
const NOW: Boottime = Boottime::new(Duration::from_secs(1_000));
/// In an earlier term.
const BEFORE: Boottime = Boottime::new(Duration::from_secs(999));

fn lock(extra: serde_json::Value) -> DistributedLock {
    let mut lock = json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 2, "finalizers": [LOCK_FINALIZER],
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"key": "k", "claim": {"identity": "a"}}
    });
    merge(&mut lock, &extra);
    serde_json::from_value(lock).unwrap()
}

fn merge(base: &mut serde_json::Value, extra: &serde_json::Value) {
    match extra.as_object() {
        Some(fields) => fields.iter().for_each(|(name, value)| merge(&mut base[name], value)),
        None => *base = extra.clone(),
    }
}

/// Held since 00:00:50, renewed at 00:00:58, valid until 00:01:07.
fn held_lock(extra: serde_json::Value) -> DistributedLock {
    let mut lock = lock(json!({"status": {
        "transitions": 1, "holder": {"identity": "a", "nonce": "0101"}, "fencingToken": 7, "votes": "3/3",
        "acquiredAt": "2026-01-01T00:00:50.000Z", "renewedAt": "2026-01-01T00:00:58.000Z",
        "validUntil": "2026-01-01T00:01:07.000Z", "conditions": [
            {"type": "QuorumAvailable", "status": "True", "reason": "AsExpected", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:50Z"}]
    }}));
    let mut value = serde_json::to_value(&lock).unwrap();
    merge(&mut value, &extra);
    lock = serde_json::from_value(value).unwrap();
    lock
}

fn hold(renewed_at: i64, valid_for: u64) -> Hold {
    let terms = Terms {
        lock: ObjectRef::new("a").within("ns"),
        uid: "u".into(),
        quorum: ObjectRef::new("main").within("ns"),
        key: LockKey::new("ns/k"),
        nonce: Nonce::from_bytes([1; 10]),
        ttl: Duration::from_secs(9),
        renew_interval: Duration::from_secs(3),
    };
    let valid_until = NOW + Duration::from_millis(valid_for);
    let wall = UnixMillis(WALL.0 + i64::try_from(valid_for).unwrap());
    Hold::new(terms, valid_until, wall, UnixMillis(renewed_at), NOW).granted(Votes { yes: 3, of: 3 }, BEFORE)
}

fn view(lock: &DistributedLock) -> View<'_> {
    View {
        lock,
        held: None,
        refusal: None,
        contender: Ok(Contender::Identity("a".into())),
        place: Place::First,
        pause: None,
        term_began: NOW,
        now: NOW,
        wall: WALL,
    }
}

fn held_view(lock: &DistributedLock, standing: Standing, hold: Option<Hold>) -> View<'_> {
    View { held: Some(Held { standing, hold, sealed: false }), ..view(lock) }
}

fn held_reason(step: &Step) -> String {
    let (Step::Rest(rest) | Step::Keep(rest)) = step else { panic!("not a rest: {step:?}") };
    rest.status.conditions.iter().find(|c| c.type_ == "Held").unwrap().reason.clone()
}

#[test]
fn the_head_of_the_queue_acquires_once_its_object_cannot_vanish() {
    let lock = lock(json!({}));
    assert_eq!(decide(&view(&lock)), Step::Acquire(Contender::Identity("a".into())));
    let mut without_finalizer = lock.clone();
    without_finalizer.metadata.finalizers = None;
    assert_eq!(decide(&view(&without_finalizer)), Step::AddFinalizer);
}

#[test]
fn a_refused_spec_says_why_and_does_not_contend() {
    let lock = lock(json!({}));
    let refusal = Refusal { reason: AcceptedReason::TTLTooLong, message: "write a shorter ttl".into() };
    let step = decide(&View { refusal: Some(refusal), ..view(&lock) });
    assert_eq!(held_reason(&step), "NotAccepted");
    let Step::Rest(rest) = step else { panic!() };
    assert!(rest.status.conditions.iter().any(|c| c.type_ == "Accepted" && c.status == "False"));
    assert_eq!(rest.wake, None, "an event about the quorum or the lock wakes it");
}

#[test]
fn whoever_is_not_first_waits_in_the_queue_with_its_position() {
    let lock = lock(json!({}));
    let step = decide(&View { place: Place::Behind { holder: "b (x)".into(), position: 3 }, ..view(&lock) });
    assert_eq!(held_reason(&step), "Queued");
    let Step::Rest(rest) = step else { panic!() };
    assert_eq!(rest.status.queue_position, Some(3));
}

#[test]
fn positions_behind_the_tenth_are_not_written() {
    let lock = lock(json!({}));
    let Step::Rest(rest) = decide(&View { place: Place::Waiting { position: 11 }, ..view(&lock) }) else { panic!() };
    assert_eq!(rest.status.queue_position, None);
}

#[test]
fn after_an_attempt_without_success_the_next_one_waits_and_the_answer_is_told() {
    let lock = lock(json!({}));
    let pause = Pause {
        until: NOW + Duration::from_millis(200),
        reason: HeldReason::NoQuorum,
        message: "main-1: unreachable".into(),
    };
    let step = decide(&View { pause: Some(pause.clone()), ..view(&lock) });
    assert_eq!(held_reason(&step), "NoQuorum");
    let Step::Rest(rest) = step else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_millis(200)));
    let over = View { pause: Some(pause), now: NOW + Duration::from_millis(200), ..view(&lock) };
    assert!(matches!(decide(&over), Step::Acquire(_)));
}

#[test]
fn a_claim_that_waited_too_long_is_finished() {
    let lock = lock(json!({"spec": {"waitTimeout": "1m"}}));
    let step = decide(&view(&lock));
    assert_eq!(held_reason(&step), "WaitTimeout");
    let Step::Rest(rest) = step else { panic!() };
    assert!(is_true(&rest.status.conditions, LockCondition::Finished));
}

#[test]
fn a_finished_claim_never_contends_again_and_is_deleted_in_the_end() {
    let finished = |at: &str| {
        json!({"status": {"transitions": 1, "conditions": [{"type": "Finished", "status": "True",
        "reason": "Released", "message": "", "lastTransitionTime": at}]}, "spec": {"ttlAfterFinished": "30s"}})
    };
    let recent = lock(finished("2026-01-01T00:00:50Z"));
    let Step::Rest(rest) = decide(&view(&recent)) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(20)));
    assert_eq!(decide(&view(&lock(finished("2026-01-01T00:00:30Z")))), Step::Delete);
}

#[test]
fn a_deleted_lock_that_is_not_held_is_let_go() {
    let lock = lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    assert_eq!(decide(&view(&lock)), Step::RemoveFinalizer);
}

#[test]
fn a_valid_hold_is_kept_and_published_once_a_second() {
    let lock = held_lock(json!({}));
    let fresh = hold(WALL.0 - 2_000 + 999, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(fresh))) else { panic!() };
    assert_eq!(rest.status.renewed_at, lock.status.as_ref().unwrap().renewed_at, "999 ms after the published one");
    let due = hold(WALL.0 - 2_000 + 1_000, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(due))) else { panic!() };
    assert_eq!(rest.status.renewed_at.unwrap().as_millis(), WALL.0 - 1_000);
    assert_eq!(rest.wake, Some(Duration::from_secs(8)), "the end of its validity");
}

#[test]
fn a_short_lock_is_published_so_often_that_what_is_published_never_runs_out() {
    // A TTL of 1 s: each renewal, every 333 ms, has to be seen before the validity of the one before ends.
    let lock = held_lock(
        json!({"status": {"renewedAt": "2026-01-01T00:00:59.600Z", "validUntil": "2026-01-01T00:01:00.580Z"}}),
    );
    let renewed = |at: i64| {
        let mut hold = hold(WALL.0 + at, 900);
        hold.terms.renew_interval = Duration::from_millis(333);
        let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(hold))) else { panic!() };
        rest.status.renewed_at.map(|at| at.as_millis() - WALL.0)
    };
    assert_eq!(renewed(-67), Some(-67));
    assert_eq!(renewed(-400), Some(-400), "nothing new");
}

#[test]
fn with_transitions_a_renewal_is_published_only_when_it_was_asked_for() {
    let lock = held_lock(json!({"spec": {"validity": "Transitions"}}));
    let renewed = hold(WALL.0 - 1_000, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(renewed.clone()))) else { panic!() };
    let before = lock.status.as_ref().unwrap().valid_until;
    assert_eq!(rest.status.valid_until, before);
    let mut asked = renewed;
    asked.announce = true;
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(asked))) else { panic!() };
    assert!(rest.status.valid_until > before);
}

#[test]
fn a_change_of_votes_is_published_at_once() {
    let lock = held_lock(json!({}));
    let hold = hold(WALL.0 - 1_900, 8_000).granted(Votes { yes: 2, of: 3 }, NOW);
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, Some(hold))) else { panic!() };
    assert_eq!(rest.status.votes.as_deref(), Some("2/3"));
    assert!(!is_true(&rest.status.conditions, LockCondition::FullyReplicated));
}

#[test]
fn a_hold_that_nobody_here_can_continue_is_lost() {
    let lock = held_lock(json!({}));
    assert!(matches!(decide(&held_view(&lock, Standing::Good, None)), Step::Lose(_)));
    let mut expired = hold(WALL.0 - 9_000, 0);
    assert!(matches!(decide(&held_view(&lock, Standing::Good, Some(expired.clone()))), Step::Lose(_)));
    expired.valid_until = NOW + Duration::from_secs(5);
    expired.loss = Some(Loss::Refused);
    assert!(matches!(decide(&held_view(&lock, Standing::Good, Some(expired))), Step::Lose(_)));
}

#[test]
fn what_this_leader_has_renewed_and_no_longer_can_is_offered_to_another() {
    let lock = held_lock(json!({}));
    let step = |hold: &Hold| decide(&held_view(&lock, Standing::Good, Some(hold.clone())));
    let votes = Votes { yes: 3, of: 3 };
    let mut renewed = hold(WALL.0 - 8_100, 900).granted(votes, NOW);
    let mut inherited = hold(WALL.0 - 8_100, 900);
    assert!(matches!(step(&renewed), Step::Keep(_)), "its renewal has not failed yet");
    for hold in [&mut renewed, &mut inherited] {
        hold.trouble = Some("q-0: no answer".into());
        hold.silence = true;
    }
    let offered = Step::HandOver(renewed.terms.quorum.clone(), "q-0: no answer".into());
    assert_eq!(step(&renewed), offered, "before it runs out");
    assert!(matches!(step(&inherited), Step::Keep(_)), "whoever led before could not renew it either");
    for hold in [&mut renewed, &mut inherited] {
        hold.valid_until = NOW;
        hold.loss = Some(Loss::Expired);
    }
    assert_eq!(step(&renewed), offered);
    assert!(matches!(step(&inherited), Step::Lose(_)));
    renewed.silence = false;
    assert!(matches!(step(&renewed), Step::Lose(_)), "members that are fenced for this replica are so for all");
    renewed.trouble = None;
    assert_eq!(step(&renewed), Step::HandOver(renewed.terms.quorum.clone(), "not renewed in time".into()));
    renewed.loss = Some(Loss::Refused);
    assert!(matches!(step(&renewed), Step::Lose(_)), "a refusal is an answer");
}

#[test]
fn a_round_without_a_majority_does_not_end_a_hold_that_is_still_valid() {
    let lock = held_lock(json!({}));
    let holds = crate::lock::holds::Holds::default();
    holds.adopt(hold(WALL.0 - 2_000, 5_000), true);
    let nonce = Nonce::from_bytes([1; 10]);
    holds.take_due(NOW);
    holds.settle("u", &nonce, Extend::NoQuorum { failures: vec![] }, (NOW, WALL), NOW);
    let Step::Keep(rest) = decide(&held_view(&lock, Standing::Good, holds.get("u"))) else { panic!() };
    assert!(rest.status.holder.is_some());
    assert!(!is_true(&rest.status.conditions, LockCondition::QuorumAvailable));
}

#[test]
fn a_hold_that_is_to_run_out_says_so_first_is_then_sealed_and_ends_with_its_validity() {
    let runs_out = || Standing::RunsOut(HeldReason::Suspended, "suspended".into());
    let lock = held_lock(json!({}));
    assert!(matches!(decide(&held_view(&lock, runs_out(), None)), Step::RunOut(HeldReason::Suspended, _)));
    let ending = |until: &str| {
        held_lock(json!({"status": {"ending":
            {"since": "2026-01-01T00:00:59.000Z", "reason": "Suspended", "until": until}}}))
    };
    let running_out = ending("2026-01-01T00:01:07.000Z");
    assert_eq!(decide(&held_view(&running_out, runs_out(), None)), Step::Seal);
    let sealed = View {
        held: Some(Held { standing: runs_out(), hold: None, sealed: true }),
        ..held_view(&running_out, runs_out(), None)
    };
    let Step::Rest(rest) = decide(&sealed) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(7)));
    let over = ending("2026-01-01T00:01:00.000Z");
    assert!(matches!(
        decide(&held_view(&over, runs_out(), None)),
        Step::Free(Freed { reason: HeldReason::Suspended, leave_seal: false, .. })
    ));
}

#[test]
fn the_holders_own_word_frees_the_lock_at_once() {
    let lock = held_lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    let standing = Standing::Free(HeldReason::Released, "the claim was deleted".into());
    assert!(matches!(
        decide(&held_view(&lock, standing, None)),
        Step::Free(Freed { reason: HeldReason::Released, .. })
    ));
}

#[test]
fn with_a_lock_delay_the_seal_stays_when_the_hold_has_run_out() {
    let over = held_lock(json!({"spec": {"lockDelay": "5s"}, "status": {"ending":
        {"since": "2026-01-01T00:00:50.000Z", "reason": "Suspended", "until": "2026-01-01T00:00:59.000Z"}}}));
    let standing = Standing::RunsOut(HeldReason::Suspended, "suspended".into());
    assert!(matches!(decide(&held_view(&over, standing, None)), Step::Free(Freed { leave_seal: true, .. })));
    let ended = Standing::Free(HeldReason::HolderGone, "its container has terminated".into());
    assert!(matches!(decide(&held_view(&over, ended, None)), Step::Free(Freed { leave_seal: false, .. })));
}

#[test]
fn a_request_is_taken_off_before_it_could_end_a_later_hold() {
    let lock = lock(json!({"metadata": {"annotations": {STEP_DOWN_ANNOTATION: "please"}}}));
    assert_eq!(decide(&view(&lock)), Step::ClearRequests);
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let first = lock(json!({}));
    let place = Place::Behind { holder: "b (x)".into(), position: 1 };
    let Step::Rest(rest) = decide(&View { place: place.clone(), ..view(&first) }) else { panic!() };
    let mut second = first.clone();
    second.status = Some(rest.status);
    let later = View { place, wall: UnixMillis(WALL.0 + 5_000), ..view(&second) };
    let Step::Rest(rest) = decide(&later) else { panic!() };
    assert_eq!(second.status, Some(rest.status));
}
