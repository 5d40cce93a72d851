use super::*;
use crate::api::{GoDuration, MilliTime};
use crate::lock::model::hold::RenewalOutcome;

#[test]
fn a_fault_is_in_the_condition_while_the_lock_is_served() {
    let (held, free) = (held_lock(json!({})), lock(json!({})));
    let view = || held_input(&held, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let [duration, half, ttl, least, max_ttl] = [15, 4, 9, 30, 5].map(GoDuration::from_secs);
    let misfit = Refusal::LeaseTooLong { lease: "ns/ctl".into(), duration, half, ttl, least };
    let too_long = Refusal::Ttl { ttl, max_ttl, quorum: "redlock-system/main".into() };
    let (label, pod, cause) = ("l".into(), "ns/a-0".into(), "labels are final".into());
    let refused = Some(Refusal::LabelNotSet { label, pod, cause });
    let contender = Err(HeldMessage::NoLeader { why: "no pod is ready".into() }.into());
    for (input, expected) in [
        (LockInput { trouble: Some(misfit), ..view() }, ["True", "LeaseTooLong", ""]),
        (LockInput { trouble: refused.clone(), ..view() }, ["True", "LabelRefused", "ns/a-0, so no Service"]),
        (LockInput { trouble: refused, contender, ..input(&free) }, ["True", "LabelRefused", "ns/a-0, so no Service"]),
        (LockInput { refusal: Some(too_long), ..view() }, ["False", "TTLTooLong", ""]),
    ] {
        let rest = if input.held.is_some() { kept(&input) } else { rested(&input) };
        let [status, reason, message] = condition(&rest, LockCondition::Accepted);
        assert_eq!([status, reason], expected[..2]);
        assert!(message.contains(expected[2]), "{message}");
        assert_eq!(rest.status.holder.is_some(), input.held.is_some(), "{reason}");
    }
}

#[test]
fn a_hold_without_a_round_for_one_ttl_is_sealed() {
    let lock = held_lock(json!({}));
    let terms = hold(WALL.0, 0).terms;
    let step = |asked_for: u64| {
        let named = Hold::named(terms.clone(), ago(asked_for), NOW);
        decide(&held_input(&lock, Verdict::Keep, Some(named)))
    };
    assert!(matches!(step(8), Step::Keep(_)), "the adopted hold has one more second for its first round");
    assert!(matches!(step(9), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
}

#[test]
fn a_refused_hold_without_lock_delay_ends_at_once() {
    let mut refused = hold(WALL.0 - 2_000, 5_000);
    refused.refused = true;
    let step = |extra| decide(&held_input(&held_lock(extra), Verdict::Keep, Some(refused.clone())));
    assert!(matches!(step(json!({})), Step::Advance(Phase::Freed(_))));
    let delayed = step(json!({"spec": {"lockDelay": "5s"}}));
    assert!(matches!(delayed, Step::Advance(Phase::Ending(End::Refused { .. }))));
}

#[test]
fn a_hold_without_session_is_lost_after_its_rejoin_delay() {
    let lock = held_lock(json!({}));
    let step = |observed_for: u64, exists: bool| {
        let observed = ObservedSince { held: ago(observed_for), ending: None };
        let held = HoldInput { clock: None, quorum_exists: exists, observed, ..held(Verdict::Keep, None) };
        decide(&LockInput { held: Some(held), ..input(&lock) })
    };
    assert!(matches!(step(30, true), Step::Rest(_)));
    assert!(matches!(step(31, true), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
    assert!(matches!(step(0, false), Step::Advance(Phase::Ending(End::QuorumGone))), "a deleted quorum needs no wait");
}

#[test]
fn the_record_of_a_hold_is_completed_and_its_delay_only_grows() {
    let lock = held_lock(json!({}));
    let first = held_input(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let rest = kept(&first);
    let holder = rest.status.holder.clone().unwrap();
    assert_eq!((holder.quorum, holder.key.as_deref()), (Some(quorum()), Some("ns/k")));
    let mut recorded = lock.clone();
    recorded.status = Some(rest.status);
    let shorter = HoldInput { rejoin_delay: Some(Duration::from_secs(9)), ..first.held.unwrap() };
    let rest = kept(&LockInput { held: Some(shorter), ..input(&recorded) });
    assert_eq!(rest.status.holder.unwrap().rejoin_delay, Some(GoDuration::from_secs(31)));
}

#[test]
fn a_release_with_another_token_delays_no_renewal() {
    let release = |token: &str| held_lock(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: token}}}));
    let late = release("6");
    // An admission policy can refuse to remove the annotation.
    assert!(keep(&late, hold(WALL.0 + 1_750, 8_000)).publish_by.is_some());
    let needed = Correction { stale: Some(RELEASE_ANNOTATION), fields: format!("annotation {RELEASE_ANNOTATION}") };
    assert_eq!(Correction::of(&late), Some(needed));
    assert_eq!(Correction::of(&release("7")), None, "the token is that of this hold");
}

#[test]
fn a_held_lock_gets_its_finalizer_again() {
    let lock = held_lock(json!({"metadata": {"finalizers": []}}));
    assert_eq!(Correction::of(&lock).unwrap().fields, format!("finalizer {LOCK_FINALIZER}"));
    let deleting = held_lock(json!({"metadata": {"finalizers": [], "deletionTimestamp": "2026-01-01T00:01:00Z"}}));
    assert_eq!(Correction::of(&deleting), None, "the API server adds no finalizer then");
}

/// The queue of writes passes the renewal that is needed first.
#[test]
fn a_renewal_of_a_lease_is_needed_at_half_of_the_ttl() {
    let publish_by = |lock: &DistributedLock| keep(lock, hold(WALL.0 - 100, 8_900)).publish_by;
    let mut elected = held_lock(json!({}));
    assert_eq!(publish_by(&elected), None, "of 9 s, 7 s are left");
    elected.spec.election = Some(with_lease());
    assert_eq!(publish_by(&elected), Some(NOW + Duration::from_millis(2_500)));
}

#[test]
fn a_leader_without_members_frees_no_lock() {
    let lock = held_lock(json!({}));
    let step = |can_delete, can_hand_over| {
        let mut input = LockInput { can_hand_over, ..held_input(&lock, Verdict::Release(End::Terminated), None) };
        input.held.as_mut().unwrap().can_delete = can_delete;
        decide(&input)
    };
    let freed = Step::Advance(Phase::Freed(End::Terminated));
    assert_eq!(step(true, true), freed);
    assert!(matches!(step(false, true), Step::Rest(Rest { wake: Some(_), .. })));
    assert_eq!(step(false, false), freed, "no other replica can lead");
}

#[test]
fn a_hold_that_cannot_be_renewed_is_handed_over_while_possible() {
    let lock = held_lock(json!({}));
    let step = |hold: &Hold, can_hand_over: bool| {
        decide(&LockInput { can_hand_over, ..held_input(&lock, Verdict::Keep, Some(hold.clone())) })
    };
    let mut slipping = hold(WALL.0 - 8_100, 900);
    assert!(matches!(step(&slipping, true), Step::Keep(_)), "its renewal has not failed yet");
    slipping.trouble = Some("q-0: no answer".into());
    slipping.unanswered = true;
    let offered = Step::HandOver(slipping.terms.quorum.reference(), "q-0: no answer".into());
    assert_eq!(step(&slipping, true), offered, "the hand-over comes before the hold runs out");
    assert!(matches!(step(&slipping, false), Step::Keep(_)), "no other replica can take over");
    slipping.valid_until = NOW;
    assert_eq!(step(&slipping, true), offered);
    assert!(matches!(step(&slipping, false), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
    slipping.unanswered = false;
    let ends = |hold: &Hold| matches!(step(hold, true), Step::Advance(Phase::Ending(_)));
    assert!(ends(&slipping), "members that are fenced for this replica are fenced for all");
    slipping.trouble = None;
    slipping.last_majority_at = None;
    assert!(ends(&slipping), "it ran out before this replica observed it");
    slipping = slipping.granted(Votes { yes: 3, of: 3 }, NOW);
    assert_eq!(step(&slipping, true), Step::HandOver(slipping.terms.quorum.reference(), "not renewed in time".into()));
    slipping.refused = true;
    assert!(matches!(step(&slipping, true), Step::Advance(Phase::Freed(_))), "a refusal is an answer");
}

#[test]
fn a_round_without_a_majority_does_not_end_a_valid_hold() {
    let lock = held_lock(json!({}));
    let holds = crate::lock::replica::hold_table::Holds::default();
    holds.adopt(hold(WALL.0 - 2_000, 5_000), true);
    let nonce = Nonce::from_bytes([1; 10]);
    holds.take_due(NOW);
    holds.apply_outcome("u", &nonce, RenewalOutcome::Round(Extend::NoQuorum { failures: vec![] }), NOW);
    assert!(keep(&lock, holds.get("u", &nonce).unwrap()).status.holder.is_some());
}

#[test]
fn an_end_is_published_then_sealed_then_confirmed_by_members() {
    let lock = held_lock(json!({}));
    assert!(matches!(decide(&held_input(&lock, runs_out(), None)), Step::Advance(Phase::Ending(End::Suspended))));
    let over = json!({"status": {"ending": {"until": "2026-01-01T00:00:01.000Z"}}});
    for (case, ending) in
        [("before its end", ending_lock(json!({}))), ("the wall clock ends no hold that runs out", ending_lock(over))]
    {
        let sealed = |sealed_until| LockInput {
            held: Some(HoldInput { sealed_until, ..held(runs_out(), None) }),
            ..input(&ending)
        };
        assert_eq!(decide(&sealed(None)), Step::Seal, "{case}");
        assert_eq!(rested(&sealed(Some(NOW + Duration::from_secs(7)))).wake, Some(Duration::from_secs(7)), "{case}");
        for ended in [NOW, ago(1)] {
            let message = format!("{}; its validity has run out", End::Suspended);
            let end = End::Recorded { reason: HeldReason::Suspended, message };
            assert_eq!(decide(&sealed(Some(ended))), Step::Advance(Phase::RanOut(end)), "{case}");
        }
    }
}

#[test]
fn an_unconfirmed_end_stays_until_a_majority_answers() {
    let ending = ending_lock(json!({"status": {"holder": {"nonce": Nonce::from_bytes([1; 10]).to_string()}}}));
    let view = |seconds, quorum_exists| {
        let observed = ObservedSince { held: ago(seconds), ending: Some(ago(seconds)) };
        let held = HoldInput { observed, quorum_exists, ..held(runs_out(), None) };
        LockInput { held: Some(held), ..input(&ending) }
    };
    assert_eq!(decide(&view(30, true)), Step::Seal);
    assert!(matches!(decide(&view(31, true)), Step::Advance(Phase::Unconfirmed(_))));
    let wake = rested(&view(30, false)).wake;
    assert_eq!(wake, Some(Duration::from_secs(1)), "the operator seals nothing on a deleted quorum");
    assert!(matches!(decide(&view(31, false)), Step::Advance(Phase::RanOut(_))));
    // When the status has this end, the operator seals until the members answer.
    let mut left = ending.clone();
    left.status = Some(Draft::of(&ending, WALL).unconfirmed().finish());
    assert!(!is_true(&left.status.as_ref().unwrap().conditions, LockCondition::Held));
    let observed = ObservedSince { held: ago(40), ending: Some(ago(40)) };
    let step = |lock: &DistributedLock, sealed_until| {
        decide(&LockInput { held: Some(HoldInput { observed, sealed_until, ..held(runs_out(), None) }), ..input(lock) })
    };
    assert_eq!(step(&left, None), Step::Seal);
    assert!(matches!(step(&left, Some(NOW)), Step::Advance(Phase::RanOut(_))), "a majority has answered");
    left.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:59Z")).unwrap();
    assert_eq!(step(&left, None), Step::RemoveFinalizer, "the deletion does not wait for members");
}

#[test]
fn a_proven_end_frees_the_lock_at_once() {
    let deleted = held_lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    for (lock, end) in [(deleted, End::Deleted), (ending_lock(json!({})), End::Terminated)] {
        let step = decide(&held_input(&lock, Verdict::Release(end.clone()), None));
        assert_eq!(step, Step::Advance(Phase::Freed(end)), "no seal and no validity is waited for");
    }
}

#[test]
fn a_job_is_suspended_before_its_hold_runs_out() {
    let (lock, end) = (held_lock(json!({})), End::InDoubt { doubt: Doubt::Vanished });
    let step = decide(&held_input(&lock, Verdict::Stop(end.clone()), Some(hold(WALL.0, 5_000))));
    assert_eq!(step, Step::Advance(Phase::Stopping(end.clone())));
    let status = Draft::of(&lock, WALL).stopping(&end).finish();
    assert!(is_true(&status.conditions, LockCondition::Held) && status.stopping.is_some(), "the lock is still held");
    let ended = Draft::from_status(&lock, status, WALL).ended(&end, WALL).finish();
    assert!(ended.stopping.is_none());
}

#[test]
fn a_kept_hold_wakes_at_the_next_end_that_can_come() {
    // The lock has been held for 10 s, and its validity ends in 8 s.
    let stopping = json!({"since": "2026-01-01T00:00:59Z", "reason": "MaxHoldReached"});
    for (extra, verdict, seconds) in [
        (json!({"spec": {"maxHold": "12s"}}), Verdict::Keep, 2),
        // Its Job is being stopped.
        (json!({"spec": {"maxHold": "9s"}, "status": {"stopping": stopping}}), Verdict::Keep, 8),
        (json!({"spec": {"minHold": "11s", "maxHold": "9s"}}), Verdict::Minimum(End::MaxHold), 1),
    ] {
        let (name, lock) = (extra.to_string(), held_lock(extra));
        let rest = kept(&held_input(&lock, verdict, Some(hold(WALL.0 - 1_000, 8_000))));
        assert_eq!(rest.wake, Some(Duration::from_secs(seconds)), "{name}");
    }
}

#[test]
fn a_hold_that_ran_out_ended_with_its_validity() {
    let to = |extra| {
        let ended = Draft::of(&ending_lock(extra), WALL).ended(&End::Suspended, WALL).finish();
        ended.history[0].to.as_millis()
    };
    let (early, late) = (WALL.0 - 5_000, WALL.0 + 5_000);
    let until = |millis| json!({"status": {"validUntil": MilliTime::from_millis(millis).unwrap()}});
    assert_eq!(to(until(early)), WALL.0 - 1_000, "the operator stopped renewing, and no majority confirmed the end");
    assert_eq!(to(until(late)), WALL.0, "its container ended before the validity");
}

#[test]
fn the_message_about_min_hold_has_its_end_and_is_not_repeated() {
    let held = |message: &str| {
        held_lock(
            json!({"spec": {"minHold": "1m"}, "status": {"key": "k", "conditions": [{"type": "Held", "status": "True", "reason": "Held",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:50Z"}]}}),
        )
    };
    let message = |lock: &DistributedLock, verdict: Verdict| {
        let rest = kept(&held_input(lock, verdict, Some(hold(WALL.0, 8_000))));
        condition(&rest, LockCondition::Held)[2].to_owned()
    };
    let plain = "\"a\" holds key ns/k with fencing token 7";
    let ended = Verdict::Minimum(End::Deleted);
    let kept = message(&held(plain), ended.clone());
    assert!(kept.starts_with("The claim was deleted. minHold keeps the lock until 2026-01-01T00:01:50"), "{kept}");
    assert_eq!(message(&held(&kept), ended), kept);
    assert_eq!(message(&held(&kept), Verdict::Keep), plain, "the holder works again");
}
