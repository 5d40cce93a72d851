use super::*;
use crate::api::MilliTime;
use crate::lock::model::hold::RenewalOutcome;

#[test]
fn a_lease_misfit_is_reported_while_the_lock_is_served() {
    let lock = held_lock(json!({}));
    let misfit = Refusal::LeaseTooLong {
        lease: "ns/ctl".into(),
        duration: Duration::from_secs(15).into(),
        half: Duration::from_secs(4).into(),
        ttl: Duration::from_secs(9).into(),
        least: Duration::from_secs(30).into(),
    };
    let input = held_input(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let Step::Keep(rest) = decide(&LockInput { trouble: Some(misfit), ..input }) else { panic!() };
    let accepted = find_condition(&rest.status.conditions, LockCondition::Accepted).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("True", "LeaseTooLong"));
}

#[test]
fn a_refused_label_is_in_the_status_of_the_lock() {
    let (label, pod, cause) = ("l".into(), "ns/a-0".into(), "labels are final".into());
    let refused = Some(Refusal::LabelNotSet { label, pod, cause });
    let accepted = |step: &Step| {
        let (Step::Keep(rest) | Step::Rest(rest)) = step else { panic!("{step:?}") };
        let accepted = find_condition(&rest.status.conditions, LockCondition::Accepted).unwrap();
        (accepted.status.clone(), accepted.reason.clone(), accepted.message.contains("ns/a-0, so no Service"))
    };
    let named = ("True".to_owned(), "LabelRefused".to_owned(), true);
    let held = held_lock(json!({}));
    let view_of_held = held_input(&held, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    assert_eq!(accepted(&decide(&LockInput { trouble: refused.clone(), ..view_of_held })), named);
    let free = lock(json!({}));
    let contender = Err(HeldMessage::NoLeader { why: "no pod is ready".into() }.into());
    assert_eq!(accepted(&decide(&LockInput { trouble: refused, contender, ..input(&free) })), named);
}

#[test]
fn a_hold_without_a_round_for_one_ttl_is_sealed() {
    let lock = held_lock(json!({}));
    let terms = hold(WALL.0, 0).terms;
    let step = |asked_for: u64| {
        let adopted_at = NOW.saturating_sub(Duration::from_secs(asked_for));
        let named = Hold::named(terms.clone(), adopted_at, NOW);
        decide(&held_input(&lock, Verdict::Keep, Some(named)))
    };
    assert!(matches!(step(8), Step::Keep(_)), "the adopted hold has one more second for its first round");
    assert!(matches!(step(9), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
}

#[test]
fn a_refused_hold_without_lock_delay_ends_at_once() {
    let mut refused = hold(WALL.0 - 2_000, 5_000);
    refused.refused = true;
    let plain = held_lock(json!({}));
    assert!(matches!(
        decide(&held_input(&plain, Verdict::Keep, Some(refused.clone()))),
        Step::Advance(Phase::Freed(_))
    ));
    let delayed = held_lock(json!({"spec": {"lockDelay": "5s"}}));
    let step = decide(&held_input(&delayed, Verdict::Keep, Some(refused)));
    assert!(matches!(step, Step::Advance(Phase::Ending(End::Refused { .. }))));
}

#[test]
fn a_hold_without_session_is_lost_after_its_rejoin_delay() {
    let lock = held_lock(json!({}));
    let step = |observed_for: u64, exists: bool| {
        let observed = ObservedSince { held: NOW.saturating_sub(Duration::from_secs(observed_for)), ending: None };
        let held = HoldInput { clock: None, quorum_exists: exists, observed, ..held(Verdict::Keep, None) };
        decide(&LockInput { held: Some(held), ..input(&lock) })
    };
    assert!(matches!(step(30, true), Step::Rest(_)));
    assert!(matches!(step(31, true), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
    assert!(matches!(step(0, false), Step::Advance(Phase::Ending(End::QuorumGone))), "a deleted quorum needs no wait");
}

#[test]
fn a_refused_specification_sets_a_condition_and_keeps_the_hold() {
    let lock = held_lock(json!({}));
    let refusal = too_long();
    let kept =
        LockInput { refusal: Some(refusal), ..held_input(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000))) };
    let Step::Keep(rest) = decide(&kept) else { panic!() };
    let accepted = rest.status.conditions.iter().find(|c| c.type_ == "Accepted").unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "TTLTooLong"));
    assert!(rest.status.holder.is_some());
}

#[test]
fn the_record_of_a_hold_is_completed_and_its_delay_only_grows() {
    let lock = held_lock(json!({}));
    let kept = held_input(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let Step::Keep(rest) = decide(&kept) else { panic!() };
    let holder = rest.status.holder.clone().unwrap();
    assert_eq!((holder.quorum, holder.key.as_deref()), (Some(quorum()), Some("ns/k")));
    let mut recorded = lock.clone();
    recorded.status = Some(rest.status);
    let shorter = HoldInput { rejoin_delay: Some(Duration::from_secs(9)), ..kept.held.clone().unwrap() };
    let Step::Keep(rest) = decide(&LockInput { held: Some(shorter), ..input(&recorded) }) else { panic!() };
    assert_eq!(rest.status.holder.unwrap().rejoin_delay, Some(crate::api::GoDuration::from_secs(31)));
}

#[test]
fn a_release_with_another_token_delays_no_renewal() {
    let release = |token: &str| held_lock(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: token}}}));
    let late = release("6");
    let step = decide(&held_input(&late, Verdict::Keep, Some(hold(WALL.0 + 1_750, 8_000))));
    // An admission policy can refuse to remove the annotation.
    assert!(matches!(step, Step::Keep(Rest { publish_by: Some(_), .. })), "{step:?}");
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
    let publish_by = |lock: &DistributedLock| {
        let step = decide(&held_input(lock, Verdict::Keep, Some(hold(WALL.0 - 100, 8_900))));
        let Step::Keep(Rest { publish_by, .. }) = step else { panic!("{step:?}") };
        publish_by
    };
    let mut elected = held_lock(json!({}));
    assert_eq!(publish_by(&elected), None, "of 9 s, 7 s are left");
    elected.spec.election = Some(with_lease());
    assert_eq!(publish_by(&elected), Some(NOW + Duration::from_millis(2_500)));
}

#[test]
fn a_leader_without_members_frees_no_lock() {
    let lock = held_lock(json!({}));
    let step = |can_delete, may_hand_over| {
        let mut input = LockInput { may_hand_over, ..held_input(&lock, Verdict::Release(End::Terminated), None) };
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
    let step = |hold: &Hold, may_hand_over: bool| {
        decide(&LockInput { may_hand_over, ..held_input(&lock, Verdict::Keep, Some(hold.clone())) })
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
    assert!(
        matches!(step(&slipping, true), Step::Advance(Phase::Ending(_))),
        "members that are fenced for this replica are fenced for all"
    );
    slipping.trouble = None;
    slipping.last_majority_at = None;
    assert!(
        matches!(step(&slipping, true), Step::Advance(Phase::Ending(_))),
        "it ran out before this replica observed it"
    );
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
    let Step::Keep(rest) = decide(&held_input(&lock, Verdict::Keep, holds.get("u", &nonce))) else { panic!() };
    assert!(rest.status.holder.is_some());
}

#[test]
fn an_end_is_published_then_sealed_then_confirmed_by_members() {
    let lock = held_lock(json!({}));
    assert!(matches!(decide(&held_input(&lock, runs_out(), None)), Step::Advance(Phase::Ending(End::Suspended))));
    let ending = ending_lock(json!({}));
    let step = |sealed_until| {
        decide(&LockInput { held: Some(HoldInput { sealed_until, ..held(runs_out(), None) }), ..input(&ending) })
    };
    assert_eq!(step(None), Step::Seal);
    let Step::Rest(rest) = step(Some(NOW + Duration::from_secs(7))) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(7)));
    for ended in [NOW, NOW.saturating_sub(Duration::from_secs(1))] {
        let message = format!("{}; its validity has run out", End::Suspended);
        let end = End::Recorded { reason: HeldReason::Suspended, message };
        assert_eq!(step(Some(ended)), Step::Advance(Phase::RanOut(end)));
    }
}

#[test]
fn no_wall_clock_ends_a_hold_that_runs_out() {
    let over = ending_lock(json!({"status": {"ending": {"until": "2026-01-01T00:00:01.000Z"}}}));
    assert_eq!(decide(&held_input(&over, runs_out(), None)), Step::Seal);
    let sealed_until = Some(NOW + Duration::from_secs(7));
    let sealed = LockInput { held: Some(HoldInput { sealed_until, ..held(runs_out(), None) }), ..input(&over) };
    assert!(matches!(decide(&sealed), Step::Rest(_)));
}

#[test]
fn an_unconfirmed_end_stays_until_a_majority_answers() {
    let ending = ending_lock(json!({"status": {"holder": {"nonce": Nonce::from_bytes([1; 10]).to_string()}}}));
    let step = |seconds: u64, quorum_exists: bool| {
        let since = NOW.saturating_sub(Duration::from_secs(seconds));
        let observed = ObservedSince { held: since, ending: Some(since) };
        decide(&LockInput {
            held: Some(HoldInput { observed, quorum_exists, ..held(runs_out(), None) }),
            ..input(&ending)
        })
    };
    assert_eq!(step(30, true), Step::Seal);
    assert!(matches!(step(31, true), Step::Advance(Phase::Unconfirmed(_))));
    let Step::Rest(rest) = step(30, false) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(1)), "the operator seals nothing on a deleted quorum");
    assert!(matches!(step(31, false), Step::Advance(Phase::RanOut(_))));
    // When the status has this end, the operator seals until the members answer.
    let mut left = ending.clone();
    left.status = Some(Draft::of(&ending, WALL).unconfirmed().finish());
    assert!(!is_true(&left.status.as_ref().unwrap().conditions, LockCondition::Held));
    let since = NOW.saturating_sub(Duration::from_secs(40));
    let observed = ObservedSince { held: since, ending: Some(since) };
    let step = |lock: &DistributedLock, sealed_until| {
        decide(&LockInput { held: Some(HoldInput { observed, sealed_until, ..held(runs_out(), None) }), ..input(lock) })
    };
    assert_eq!(step(&left, None), Step::Seal);
    assert!(matches!(step(&left, Some(NOW)), Step::Advance(Phase::RanOut(_))), "a majority has answered");
    left.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:59Z")).unwrap();
    assert_eq!(step(&left, None), Step::RemoveFinalizer, "the deletion does not wait for members");
}

#[test]
fn the_holders_own_word_frees_the_lock_at_once() {
    let lock = held_lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    let verdict = Verdict::Release(End::Deleted);
    assert!(matches!(decide(&held_input(&lock, verdict, None)), Step::Advance(Phase::Freed(End::Deleted))));
}

#[test]
fn death_deletes_the_key_and_an_expired_seal_is_left() {
    let over = ending_lock(json!({}));
    let ended = Verdict::Release(End::Terminated);
    assert!(matches!(decide(&held_input(&over, ended, None)), Step::Advance(Phase::Freed(_))));
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
fn max_hold_does_not_wake_a_hold_whose_job_is_being_stopped() {
    let wake = |extra| {
        let lock = held_lock(extra);
        let renewed = hold(WALL.0 - 1_000, 8_000);
        let Step::Keep(rest) = decide(&held_input(&lock, Verdict::Keep, Some(renewed))) else { panic!() };
        rest.wake
    };
    // The lock has been held for 10 s.
    let max_hold = json!({"spec": {"maxHold": "12s"}});
    assert_eq!(wake(max_hold), Some(Duration::from_secs(2)));
    let stopping = json!({"since": "2026-01-01T00:00:59Z", "reason": "MaxHoldReached"});
    let passed = json!({"spec": {"maxHold": "9s"}, "status": {"stopping": stopping}});
    assert_eq!(wake(passed), Some(Duration::from_secs(8)), "it wakes at the end of the validity");
}

#[test]
fn min_hold_keeps_a_hold_beyond_max_hold_without_a_hot_loop() {
    // The lock has been held for 10 s, with an uncertainty of the clock.
    let lock = held_lock(json!({"spec": {"minHold": "11s", "maxHold": "9s"}}));
    let Step::Keep(rest) = decide(&held_input(&lock, Verdict::Minimum(End::MaxHold), Some(hold(WALL.0, 8_000)))) else {
        panic!()
    };
    assert_eq!(rest.wake, Some(Duration::from_secs(1)));
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
fn a_lock_that_min_hold_keeps_says_so_once_and_until_when() {
    let held = |message: &str| {
        held_lock(
            json!({"spec": {"minHold": "1m"}, "status": {"key": "k", "conditions": [{"type": "Held", "status": "True", "reason": "Held",
            "message": message, "lastTransitionTime": "2026-01-01T00:00:50Z"}]}}),
        )
    };
    let message = |lock: &DistributedLock, verdict: Verdict| {
        let Step::Keep(rest) = decide(&held_input(lock, verdict, Some(hold(WALL.0, 8_000)))) else { panic!() };
        find_condition(&rest.status.conditions, LockCondition::Held).unwrap().message.clone()
    };
    let plain = "\"a\" holds key ns/k with fencing token 7";
    let ended = Verdict::Minimum(End::Deleted);
    let kept = message(&held(plain), ended.clone());
    assert!(kept.starts_with("The claim was deleted. minHold keeps the lock until 2026-01-01T00:01:50"), "{kept}");
    assert_eq!(message(&held(&kept), ended), kept);
    assert_eq!(message(&held(&kept), Verdict::Keep), plain, "the holder works again");
}
