use super::*;

#[test]
fn a_renewal_is_published_when_too_little_would_be_left_at_the_next_one() {
    // What is published ends in 7 s; the next renewal comes in 3 s, and a quarter of the 9 s has to be left then.
    let lock = held_lock(json!({}));
    let early = hold(WALL.0 + 1_749, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(early))) else { panic!() };
    assert_eq!(rest.status.renewed_at, lock.status.as_ref().unwrap().renewed_at);
    let due = hold(WALL.0 + 1_750, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(due))) else { panic!() };
    assert_eq!(rest.status.renewed_at.unwrap().as_millis(), WALL.0 + 1_750);
    assert_eq!(rest.wake, Some(Duration::from_secs(8)), "the end of its validity");
}

#[test]
fn with_a_lease_each_renewal_is_published_and_a_label_that_is_gone_comes_back_first() {
    let mut lock = held_lock(json!({}));
    (lock.spec.claim, lock.spec.election) = (None, Some(with_lease()));
    let renewed = hold(WALL.0 - 1_999, 8_000);
    assert_eq!(decide(&held_view(&lock, Verdict::Keep, Some(renewed.clone()))), Step::Prepare);
    lock.metadata.labels = Some([(LEASE_LABEL.to_owned(), "true".to_owned())].into());
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(renewed))) else { panic!() };
    assert_eq!(rest.status.renewed_at.unwrap().as_millis(), WALL.0 - 1_999, "7 s are left of what is published");
}

#[test]
fn a_lease_that_does_not_fit_is_reported_while_the_lock_is_served() {
    let lock = held_lock(json!({}));
    let misfit = Refusal::LeaseTooLong {
        lease: "ns/ctl".into(),
        duration: Duration::from_secs(15).into(),
        half: Duration::from_secs(4).into(),
        ttl: Duration::from_secs(9).into(),
        least: Duration::from_secs(30).into(),
    };
    let view = held_view(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let Step::Keep(rest) = decide(&View { lease_misfit: Some(misfit), ..view }) else { panic!() };
    let accepted = find_condition(&rest.status.conditions, LockCondition::Accepted).unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("True", "LeaseTooLong"));
}

#[test]
fn a_short_lock_is_published_so_often_that_what_is_published_never_runs_out() {
    // A TTL of 1 s: each renewal, every 333 ms, has to be seen before the validity of the one before ends.
    let lock = held_lock(
        json!({"status": {"renewedAt": "2026-01-01T00:00:59.600Z", "validUntil": "2026-01-01T00:01:00.580Z"}}),
    );
    let renewed = |at: i64| {
        let mut hold = hold(WALL.0 + at, 900);
        (hold.terms.ttl, hold.terms.renew_interval) = (Duration::from_secs(1), Duration::from_millis(333));
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(hold))) else { panic!() };
        rest.status.renewed_at.map(|at| at.as_millis() - WALL.0)
    };
    assert_eq!(renewed(-67), Some(-67));
    assert_eq!(renewed(-400), Some(-400), "nothing new");
}

#[test]
fn a_validity_is_published_by_the_earliest_reading_and_not_at_all_without_one() {
    let lock = held_lock(json!({"spec": {"maxHold": "12s", "minHold": "11s"}}));
    let read = |clock| {
        let held = Held { clock, ..held(Verdict::Keep, Some(hold(WALL.0 + 2_000, 8_900))) };
        let Step::Keep(rest) = decide(&View { held: Some(held), ..view(&lock) }) else { panic!() };
        (rest.status.valid_until.unwrap().as_millis() - WALL.0, rest.renewal.is_some(), rest.wake.unwrap())
    };
    let (published, millis) = (7_000, Duration::from_millis);
    assert_eq!(read(None), (published, false, millis(8_900)));
    // It has held for 10 s.
    assert_eq!(read(Some(clock())), (8_900, true, millis(1_000)));
    let wide = ClockOffset::of_reading(UnixMicros((WALL.0 - 700) * 1_000), millis(1_000), NOW, NOW);
    assert_eq!(read(Some(wide)), (8_200, true, millis(1_700)), "minHold late, maxHold early");
}

#[test]
fn a_better_reading_of_the_clock_is_no_renewal() {
    let lock = held_lock(json!({"spec": {"ttl": "9s", "renewInterval": "4500ms"}}));
    let is_written = |better: i64| {
        let mut hold = hold(WALL.0 - 100, u64::try_from(7_000 + better).unwrap());
        hold.terms.renew_interval = Duration::from_millis(4_900);
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(hold))) else { panic!() };
        rest.renewal.is_some()
    };
    assert!(!is_written(450) && is_written(451));
}

#[test]
fn with_transitions_a_renewal_is_not_published() {
    let lock = held_lock(json!({"spec": {"validity": "Transitions"}}));
    let renewed = hold(WALL.0 - 1_000, 8_000);
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(renewed))) else { panic!() };
    assert_eq!(rest.status.valid_until, lock.status.as_ref().unwrap().valid_until);
}

#[test]
fn nothing_is_published_before_a_round_of_this_replica_has_asked_the_members() {
    let wrong = json!({"status": {"validUntil": "2026-01-01T01:00:00Z"}});
    for (spec, trouble) in [("Published", None), ("Transitions", None), ("Published", Some("silent"))] {
        let mut lock = held_lock(wrong.clone());
        lock.spec.validity = serde_json::from_value(json!(spec)).unwrap();
        let earned = hold(WALL.0 - 1_000, 9_000);
        let mut named = Hold::named(earned.terms.clone(), NOW, NOW);
        named.trouble = trouble.map(str::to_owned);
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(named))) else { panic!() };
        assert_eq!(rest.status.valid_until, lock.status.as_ref().unwrap().valid_until);
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(earned))) else { panic!() };
        assert_eq!(rest.status.valid_until.unwrap().as_millis(), WALL.0 + 9_000);
    }
}

#[test]
fn a_change_of_votes_alone_is_not_written_and_the_next_write_tells_it() {
    let lock = held_lock(json!({}));
    let votes = |renewed_after: i64| {
        let hold = Hold { votes: Some(Votes { yes: 2, of: 3 }), ..hold(WALL.0 + renewed_after, 8_000) };
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(hold))) else { panic!() };
        (rest.status.votes, rest.renewal.is_some())
    };
    assert_eq!(votes(1_749), (Some("3/3".to_owned()), false));
    assert_eq!(votes(1_750), (Some("2/3".to_owned()), true), "a renewal that is published anyway");
}

#[test]
fn a_hold_that_no_round_of_this_replica_has_renewed_for_one_ttl_is_sealed_like_any_other_end() {
    let lock = held_lock(json!({}));
    let terms = hold(WALL.0, 0).terms;
    let step = |asked_for: u64| {
        let named = Hold::named(terms.clone(), NOW.saturating_sub(Duration::from_secs(asked_for)), NOW);
        decide(&held_view(&lock, Verdict::Keep, Some(named)))
    };
    assert!(matches!(step(8), Step::Keep(_)), "the members have not been asked yet");
    assert!(matches!(step(9), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
}

#[test]
fn a_refusal_by_a_majority_ends_a_hold_at_once_unless_a_delay_keeps_others_out() {
    let mut refused = hold(WALL.0 - 2_000, 5_000);
    refused.refused = true;
    let plain = held_lock(json!({}));
    assert!(matches!(decide(&held_view(&plain, Verdict::Keep, Some(refused.clone()))), Step::Advance(Phase::Freed(_))));
    let delayed = held_lock(json!({"spec": {"lockDelay": "5s"}}));
    let step = decide(&held_view(&delayed, Verdict::Keep, Some(refused)));
    assert!(matches!(step, Step::Advance(Phase::Ending(End::Refused { .. }))));
}

#[test]
fn while_its_quorum_is_not_known_a_hold_is_not_called_lost_before_the_members_can_have_forgotten_it() {
    let lock = held_lock(json!({}));
    let step = |seen_for: u64, exists: bool| {
        let sighting = Sighting { held: NOW.saturating_sub(Duration::from_secs(seen_for)), ending: None };
        let held = Held { clock: None, quorum_exists: exists, sighting, ..held(Verdict::Keep, None) };
        decide(&View { held: Some(held), ..view(&lock) })
    };
    assert!(matches!(step(30, true), Step::Rest(_)));
    assert!(matches!(step(31, true), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
    assert!(
        matches!(step(0, false), Step::Advance(Phase::Ending(End::QuorumGone))),
        "a quorum that is gone tells no time"
    );
}

#[test]
fn a_hold_whose_specification_is_refused_goes_on_and_the_condition_says_why() {
    let lock = held_lock(json!({}));
    let refusal = too_long();
    let kept = View { refusal: Some(refusal), ..held_view(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000))) };
    let Step::Keep(rest) = decide(&kept) else { panic!() };
    let accepted = rest.status.conditions.iter().find(|c| c.type_ == "Accepted").unwrap();
    assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "TTLTooLong"));
    assert!(rest.status.holder.is_some());
}

#[test]
fn the_record_of_a_hold_is_completed_and_its_delay_only_grows() {
    let lock = held_lock(json!({}));
    let kept = held_view(&lock, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000)));
    let Step::Keep(rest) = decide(&kept) else { panic!() };
    let holder = rest.status.holder.clone().unwrap();
    assert_eq!((holder.quorum, holder.key.as_deref()), (Some(quorum()), Some("ns/k")));
    let mut recorded = lock.clone();
    recorded.status = Some(rest.status);
    let shorter = Held { rejoin_delay: Some(Duration::from_secs(9)), ..kept.held.clone().unwrap() };
    let Step::Keep(rest) = decide(&View { held: Some(shorter), ..view(&recorded) }) else { panic!() };
    assert_eq!(rest.status.holder.unwrap().rejoin_delay, Some(crate::api::GoDuration::from_secs(31)));
}

#[test]
fn a_published_validity_that_no_renewal_earned_is_taken_back() {
    let lock = held_lock(json!({"status": {"validUntil": "2026-01-01T02:00:00.000Z"}}));
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(hold(WALL.0 - 2_000, 8_000)))) else {
        panic!()
    };
    assert_eq!(rest.status.valid_until.unwrap().as_millis(), WALL.0 + 8_000);
}

#[test]
fn a_word_with_another_token_is_taken_off() {
    let late = held_lock(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "6"}}}));
    let step = decide(&held_view(&late, Verdict::Keep, Some(hold(WALL.0 - 1_000, 8_000))));
    assert_eq!(step, Step::ClearRequests(vec![RELEASE_ANNOTATION]));
}

#[test]
fn what_this_leader_cannot_renew_is_offered_to_another_as_long_as_one_may_take_over() {
    let lock = held_lock(json!({}));
    let step = |hold: &Hold, may_hand_over: bool| {
        decide(&View { may_hand_over, ..held_view(&lock, Verdict::Keep, Some(hold.clone())) })
    };
    let mut slipping = hold(WALL.0 - 8_100, 900);
    assert!(matches!(step(&slipping, true), Step::Keep(_)), "its renewal has not failed yet");
    slipping.trouble = Some("q-0: no answer".into());
    slipping.silence = true;
    let offered = Step::HandOver(slipping.terms.quorum.reference(), "q-0: no answer".into());
    assert_eq!(step(&slipping, true), offered, "before it runs out, whichever replica renewed it last");
    assert!(matches!(step(&slipping, false), Step::Keep(_)), "nobody else can");
    slipping.valid_until = NOW;
    assert_eq!(step(&slipping, true), offered);
    assert!(matches!(step(&slipping, false), Step::Advance(Phase::Ending(End::NotRenewed { .. }))));
    slipping.silence = false;
    assert!(
        matches!(step(&slipping, true), Step::Advance(Phase::Ending(_))),
        "members that are fenced for this replica are so for all"
    );
    slipping.trouble = None;
    slipping.won = None;
    assert!(matches!(step(&slipping, true), Step::Advance(Phase::Ending(_))), "it ran out before this replica came");
    slipping = slipping.granted(Votes { yes: 3, of: 3 }, NOW);
    assert_eq!(step(&slipping, true), Step::HandOver(slipping.terms.quorum.reference(), "not renewed in time".into()));
    slipping.refused = true;
    assert!(matches!(step(&slipping, true), Step::Advance(Phase::Freed(_))), "a refusal is an answer");
}

#[test]
fn a_round_without_a_majority_does_not_end_a_hold_that_is_still_valid() {
    let lock = held_lock(json!({}));
    let holds = crate::lock::replica::hold_table::Holds::default();
    holds.adopt(hold(WALL.0 - 2_000, 5_000), true);
    let nonce = Nonce::from_bytes([1; 10]);
    holds.take_due(NOW);
    holds.settle("u", &nonce, Extend::NoQuorum { failures: vec![] }, NOW);
    let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, holds.get("u", &nonce))) else { panic!() };
    assert!(rest.status.holder.is_some());
}

#[test]
fn a_hold_that_is_to_run_out_says_so_first_is_then_sealed_and_ends_when_the_members_say_so() {
    let lock = held_lock(json!({}));
    assert!(matches!(decide(&held_view(&lock, runs_out(), None)), Step::Advance(Phase::Ending(End::Suspended))));
    let ending = ending_lock(json!({}));
    let step = |sealing| decide(&View { held: Some(Held { sealing, ..held(runs_out(), None) }), ..view(&ending) });
    assert_eq!(step(Sealing::Unconfirmed), Step::Seal);
    let Step::Rest(rest) = step(Sealing::RunsOut(NOW + Duration::from_secs(7))) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(7)));
    for ended in [Sealing::RunsOut(NOW), Sealing::Gone] {
        let message = format!("{}; its validity has run out", End::Suspended);
        let end = End::Recorded { reason: HeldReason::Suspended, message };
        assert_eq!(step(ended), Step::Advance(Phase::RanOut(end)));
    }
}

#[test]
fn no_wall_clock_ends_a_hold_that_runs_out() {
    let over = ending_lock(json!({"status": {"ending": {"until": "2026-01-01T00:00:01.000Z"}}}));
    assert_eq!(decide(&held_view(&over, runs_out(), None)), Step::Seal);
    let sealing = Sealing::RunsOut(NOW + Duration::from_secs(7));
    let sealed = View { held: Some(Held { sealing, ..held(runs_out(), None) }), ..view(&over) };
    assert!(matches!(decide(&sealed), Step::Rest(_)));
}

#[test]
fn a_hold_whose_end_nobody_confirms_is_lost_when_no_member_can_remember_it_and_stays_until_a_majority_answers() {
    let ending = ending_lock(json!({"status": {"holder": {"nonce": Nonce::from_bytes([1; 10]).to_string()}}}));
    let step = |seconds: u64, quorum_exists: bool| {
        let since = NOW.saturating_sub(Duration::from_secs(seconds));
        let sighting = Sighting { held: since, ending: Some(since) };
        decide(&View { held: Some(Held { sighting, quorum_exists, ..held(runs_out(), None) }), ..view(&ending) })
    };
    assert_eq!(step(30, true), Step::Seal);
    assert!(matches!(step(31, true), Step::Advance(Phase::Unconfirmed(_))));
    let Step::Rest(rest) = step(30, false) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(1)), "a quorum that is gone is not asked");
    assert!(matches!(step(31, false), Step::Advance(Phase::RanOut(_))));
    // Once that is said, the members are asked until they answer.
    let mut left = ending.clone();
    left.status = Some(Draft::of(&ending, WALL).unconfirmed().finish());
    assert!(!is_true(&left.status.as_ref().unwrap().conditions, LockCondition::Held));
    let since = NOW.saturating_sub(Duration::from_secs(40));
    let sighting = Sighting { held: since, ending: Some(since) };
    let step = |lock: &DistributedLock, sealing| {
        decide(&View { held: Some(Held { sighting, sealing, ..held(runs_out(), None) }), ..view(lock) })
    };
    assert_eq!(step(&left, Sealing::Unconfirmed), Step::Seal);
    assert!(matches!(step(&left, Sealing::Gone), Step::Advance(Phase::RanOut(_))), "a majority has answered");
    left.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:59Z")).unwrap();
    assert_eq!(step(&left, Sealing::Unconfirmed), Step::RemoveFinalizer, "no object waits longer for members");
}

#[test]
fn the_holders_own_word_frees_the_lock_at_once() {
    let lock = held_lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    let verdict = Verdict::Release(End::Deleted);
    assert!(matches!(decide(&held_view(&lock, verdict, None)), Step::Advance(Phase::Freed(End::Deleted))));
}

#[test]
fn known_death_deletes_the_key_and_a_seal_that_has_run_out_is_left() {
    let over = ending_lock(json!({}));
    let ended = Verdict::Release(End::Terminated);
    assert!(matches!(decide(&held_view(&over, ended, None)), Step::Advance(Phase::Freed(_))));
}

#[test]
fn a_job_is_suspended_before_its_hold_runs_out_and_the_status_says_so() {
    let (lock, end) = (held_lock(json!({})), End::InDoubt { doubt: "its pod vanished".into() });
    let step = decide(&held_view(&lock, Verdict::Stop(end.clone()), Some(hold(WALL.0, 5_000))));
    assert_eq!(step, Step::Advance(Phase::Stopping(end.clone())));
    let status = Draft::of(&lock, WALL).stopping(&end).finish();
    assert!(is_true(&status.conditions, LockCondition::Held) && status.stopping.is_some(), "it is held meanwhile");
    let ended = Draft::from_status(&lock, status, WALL).ended(&end, WALL).finish();
    assert!(ended.stopping.is_none());
}

#[test]
fn a_hold_whose_job_is_being_stopped_is_not_looked_at_again_for_its_max_hold() {
    let wake = |extra| {
        let lock = held_lock(extra);
        let renewed = hold(WALL.0 - 1_000, 8_000);
        let Step::Keep(rest) = decide(&held_view(&lock, Verdict::Keep, Some(renewed))) else { panic!() };
        rest.wake
    };
    // Held for 10 s.
    let max_hold = json!({"spec": {"maxHold": "12s"}});
    assert_eq!(wake(max_hold), Some(Duration::from_secs(2)));
    let stopping = json!({"since": "2026-01-01T00:00:59Z", "reason": "MaxHoldReached"});
    let passed = json!({"spec": {"maxHold": "9s"}, "status": {"stopping": stopping}});
    assert_eq!(wake(passed), Some(Duration::from_secs(8)), "the end of its validity, not at once");
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
        let Step::Keep(rest) = decide(&held_view(lock, verdict, Some(hold(WALL.0, 8_000)))) else { panic!() };
        find_condition(&rest.status.conditions, LockCondition::Held).unwrap().message.clone()
    };
    let plain = "\"a\" holds key ns/k with fencing token 7";
    let ended = Verdict::Minimum(End::Deleted);
    let says = message(&held(plain), ended.clone());
    assert!(says.starts_with("The claim was deleted. minHold keeps the lock until 2026-01-01T00:01:50"), "{says}");
    assert_eq!(message(&held(&says), ended), says);
    assert_eq!(message(&held(&says), Verdict::Keep), plain, "the holder works again");
}
