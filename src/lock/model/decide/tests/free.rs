use super::*;

#[test]
fn the_head_of_the_queue_acquires_once_its_object_cannot_vanish() {
    let lock = lock(json!({}));
    assert_eq!(decide(&input(&lock)), Step::Acquire(Contender::Identity("a".into())));
    let mut without_finalizer = lock.clone();
    without_finalizer.metadata.finalizers = None;
    assert_eq!(decide(&input(&without_finalizer)), Step::Prepare);
    let mut gated = lock.clone();
    gated.spec.election = Some(with_lease());
    assert_eq!(decide(&input(&gated)), Step::Prepare, "the label for the policy on Leases is missing");
    let early = |change: &dyn Fn(&mut LockInput<'_>)| {
        let mut input = input(&gated);
        change(&mut input);
        decide(&input)
    };
    let no_candidate = || HeldMessage::NoCandidate { why: "none is ready".into() };
    assert_eq!(
        early(&|input| input.contender = Err(no_candidate().into())),
        Step::Prepare,
        "the label does not wait for a candidate"
    );
    let starting = || Refusal::Starting { quorum: "ns/q".into(), max_ttl: Duration::from_secs(10).into() };
    assert_eq!(early(&|input| input.refusal = Some(starting())), Step::Prepare);
    let others = || Refusal::OthersLease { other: "ns/older".into() };
    assert!(
        matches!(early(&|input| input.refusal = Some(others())), Step::Rest(_)),
        "the Lease belongs to another lock"
    );
    assert!(
        matches!(early(&|input| input.pause = Some(no_candidate().into())), Step::Rest(_)),
        "a pause follows a refused label"
    );
    let mut suspended = gated.clone();
    suspended.spec.suspend = true;
    assert_eq!(decide(&input(&suspended)), Step::Prepare);
    gated.metadata.labels = Some([(LEASE_LABEL.to_owned(), "true".to_owned())].into());
    assert_eq!(decide(&input(&gated)), Step::Acquire(Contender::Identity("a".into())));
}

#[test]
fn a_lock_without_candidate_retries_when_time_brings_one() {
    let plain = lock(json!({}));
    let wake = |until| {
        let message = HeldMessage::NoCandidate { why: "it has just released the lock".into() };
        let contender = Err(WaitReason { message, retry_after: until });
        let Step::Rest(rest) = decide(&LockInput { contender, ..input(&plain) }) else { panic!() };
        rest.wake
    };
    let patience = Some(plain.spec.ttl.get() * 3);
    assert_eq!(wake(None), patience, "without a retry, it wakes when the lock is no longer ready");
    assert_eq!(wake(Some(Duration::from_secs(4))), Some(Duration::from_secs(4)));
}

#[test]
fn a_waiting_lock_has_its_position_unless_it_is_far_back() {
    let waited = json!({"status": {"transitions": 0, "conditions": [{"type": "Held", "status": "False", "reason": "Queued",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}, "spec": {"waitTimeout": "1m"}});
    let (plain, patient) = (lock(json!({})), lock(waited));
    let suspended = lock(json!({"spec": {"waitTimeout": "1m", "suspend": true}}));
    let placed = |place| LockInput { place, ..input(&plain) };
    let delayed = HeldMessage::DelayedBehind { holder: "b (x)".into(), position: 1 };
    let refused = |lock| {
        let refusal = Refusal::Lookup(LookupError::NoDefault);
        LockInput { refusal: Some(refusal), ..input(lock) }
    };
    for (input, reason, position) in [
        (refused(&plain), "NotAccepted", None),
        (placed(behind(3)), "Queued", Some(3)),
        (placed(Place::Queued { position: 1, message: delayed }), "LockDelay", Some(1)),
        (placed(Place::Queued { position: 11, message: HeldMessage::FarBack }), "Queued", None),
        (input(&patient), "WaitTimeout", None),
        (refused(&patient), "WaitTimeout", None),
        (refused(&suspended), "Suspended", None),
    ] {
        let step = decide(&input);
        assert_eq!(held_reason(&step), reason, "{input:?}");
        let Step::Rest(rest) = step else { panic!() };
        assert_eq!(rest.status.queue_position, position, "{input:?}");
        let condition = |type_: &str, status: &str| {
            rest.status.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
        };
        assert_eq!(condition("Finished", "True"), reason == "WaitTimeout", "only waitTimeout finishes a waiting claim");
        assert_eq!(condition("Accepted", "False"), input.refusal.is_some() && reason != "WaitTimeout");
        assert!(reason != "NotAccepted" || rest.wake.is_none(), "an event about the quorum or the lock wakes it");
    }
}

#[test]
fn the_time_suspended_is_no_wait() {
    let held = |reason: &str, at: &str| {
        json!({"spec": {"waitTimeout": "10s"}, "status": {"transitions": 0, "conditions": [{"type": "Held", "status": "False",
            "reason": reason, "message": "", "lastTransitionTime": at}]}})
    };
    let resumed = lock(held("Suspended", "2026-01-01T00:00:00Z"));
    let Step::Rest(rest) = decide(&LockInput { place: behind(2), ..input(&resumed) }) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(10)), "the whole waitTimeout is left");
    let condition = rest.status.conditions.iter().find(|condition| condition.type_ == "Held").unwrap();
    assert_eq!(condition.last_transition_time.0.as_millisecond(), WALL.0, "the wait begins now");
    assert_eq!(held_reason(&decide(&input(&lock(held("Queued", "2026-01-01T00:00:50Z"))))), "WaitTimeout");
    assert!(matches!(decide(&input(&lock(held("Queued", "2026-01-01T00:00:51Z")))), Step::Acquire(_)));
}

#[test]
fn a_claim_that_nobody_observed_in_time_gives_up() {
    let waiting = |created: &str, timeout: &str| {
        lock(json!({"metadata": {"creationTimestamp": created}, "spec": {"waitTimeout": timeout}}))
    };
    assert_eq!(held_reason(&decide(&input(&waiting("2025-12-31T23:00:00Z", "10s")))), "WaitTimeout", "no operator ran");
    for (created, timeout) in [("2025-12-31T23:00:00Z", "2h"), ("2026-01-01T00:00:59Z", "100ms")] {
        assert!(matches!(decide(&input(&waiting(created, timeout))), Step::Acquire(_)), "{timeout}");
    }
}

#[test]
fn the_wait_after_an_unconfirmed_end_begins_without_a_holder() {
    let unconfirmed = json!({"status": {"holder": {"identity": "me"}, "conditions": [{"type": "Held", "status": "False",
        "reason": "NoQuorum", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let status = Draft::of(&lock(unconfirmed), WALL)
        .ended(&End::Terminated, WALL)
        .not_held(&HeldMessage::Waiting { position: 1 }, Some(1))
        .finish();
    let condition = status.conditions.iter().find(|condition| condition.type_ == "Held").unwrap();
    assert_eq!(condition.last_transition_time.0.as_millisecond(), WALL.0);
}

#[test]
fn after_a_failed_attempt_the_next_waits_with_its_message() {
    let lock = lock(json!({}));
    let pause = WaitReason { message: HeldMessage::NoClock, retry_after: Some(Duration::from_millis(200)) };
    let step = decide(&LockInput { pause: Some(pause), ..input(&lock) });
    assert_eq!(held_reason(&step), "NoQuorum");
    let Step::Rest(rest) = step else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_millis(200)));
}

#[test]
fn a_finished_claim_never_contends_and_is_deleted_later() {
    let finished = |at: &str| {
        json!({"status": {"transitions": 1, "conditions": [{"type": "Finished", "status": "True",
        "reason": "Released", "message": "", "lastTransitionTime": at}]}, "spec": {"ttlAfterFinished": "30s"}})
    };
    let recent = lock(finished("2026-01-01T00:00:50Z"));
    let Step::Rest(rest) = decide(&input(&recent)) else { panic!() };
    assert_eq!(rest.wake, Some(Duration::from_secs(20)));
    assert_eq!(decide(&input(&lock(finished("2026-01-01T00:00:30Z")))), Step::Delete);
}

#[test]
fn a_deleted_lock_that_is_not_held_is_let_go() {
    let lock = lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    assert_eq!(decide(&input(&lock)), Step::RemoveFinalizer);
}

#[test]
fn a_request_is_removed_before_it_could_end_a_later_hold() {
    let mut lock = lock(json!({"metadata": {"annotations": {STEP_DOWN_ANNOTATION: "please"}}}));
    assert_eq!(decide(&input(&lock)), Step::Prepare);
    assert_eq!(requests(&lock), [STEP_DOWN_ANNOTATION]);
    lock.spec.suspend = true;
    assert_eq!(held_reason(&decide(&input(&lock))), "Suspended", "a policy can refuse to remove the request");
}

#[test]
fn a_refused_change_of_metadata_is_in_the_status() {
    let lock = lock(json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "6"}}}));
    let message = HeldMessage::NotWritten { failure: "policy p denied request".into() };
    let pause = Some(WaitReason { message, retry_after: Some(Duration::from_secs(1)) });
    assert_eq!(held_reason(&decide(&LockInput { pause: pause.clone(), ..input(&lock) })), "Pending");
    assert_eq!(held_reason(&decide(&LockInput { pause, place: behind(1), ..input(&lock) })), "Queued");
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let first = lock(json!({}));
    let Step::Rest(rest) = decide(&LockInput { place: behind(1), ..input(&first) }) else { panic!() };
    let mut second = first.clone();
    second.status = Some(rest.status);
    let later = LockInput { place: behind(1), api_now: UnixMillis(WALL.0 + 5_000), ..input(&second) };
    let Step::Rest(rest) = decide(&later) else { panic!() };
    assert_eq!(second.status, Some(rest.status));
}

#[test]
fn only_the_next_in_the_queue_is_prepared_before_its_turn() {
    let mut lock = lock(json!({}));
    lock.metadata.finalizers = None;
    let step = |position| decide(&LockInput { place: behind(position), ..input(&lock) });
    assert_eq!(step(1), Step::Prepare);
    assert_eq!(held_reason(&step(2)), "Queued");
}

#[test]
fn a_claim_that_queues_again_after_a_loss_waits_from_then_on() {
    let since = |time: &str| json!({"type": "Held", "status": "False", "reason": "NoCandidate", "message": "", "lastTransitionTime": time});
    let lost = |time: &str| {
        lock(json!({"spec": {"waitTimeout": "30s"}, "status": {"transitions": 1, "conditions": [since(time)]}}))
    };
    assert_eq!(held_reason(&decide(&input(&lost("2026-01-01T00:00:20Z")))), "WaitTimeout");
    let recently = lost("2026-01-01T00:00:50Z");
    assert!(matches!(decide(&input(&recently)), Step::Acquire(_)), "it was created a minute ago, and lost 10 s ago");
}

#[test]
fn an_election_without_a_candidate_wakes_after_three_ttl() {
    let waits = |at: &str| {
        let mut lock = lock(
            json!({"spec": {"ttl": "9s"}, "status": {"transitions": 0, "conditions": [{"type": "Held", "status": "False",
            "reason": "NoCandidate", "message": "", "lastTransitionTime": at}]}}),
        );
        lock.spec.claim = None;
        lock.spec.election = Some(Election::default());
        let contender = Err(HeldMessage::NoLeader { why: "no pod matches".into() }.into());
        let Step::Rest(rest) = decide(&LockInput { contender, ..input(&lock) }) else { panic!() };
        let ready = find_condition(&rest.status.conditions, LockCondition::Ready).unwrap();
        (rest.wake, ready.status.clone(), ready.message.clone())
    };
    let (wake, ready, _) = waits("2026-01-01T00:00:50Z");
    assert_eq!((wake, ready.as_str()), (Some(Duration::from_secs(17)), "True"));
    let (wake, ready, message) = waits("2026-01-01T00:00:33Z");
    assert_eq!((wake, ready.as_str()), (None, "False"));
    assert_eq!(message, "no pod matches. The operator grants the lock when a pod can lead");
}

#[test]
fn a_claim_without_a_holder_is_not_ready_after_three_ttl() {
    let ready = |at: &str| {
        let lock = lock(json!({"spec": {"ttl": "9s"}, "status": {"transitions": 0, "conditions": [{"type": "Held",
            "status": "False", "reason": "NoCandidate", "message": "", "lastTransitionTime": at}]}}));
        let contender = Err(HeldMessage::NoCandidate { why: "pod ns/a is gone".into() }.into());
        let Step::Rest(rest) = decide(&LockInput { contender, ..input(&lock) }) else { panic!() };
        let ready = find_condition(&rest.status.conditions, LockCondition::Ready).unwrap();
        (rest.wake, ready.status.clone(), ready.message.starts_with("pod ns/a is gone"))
    };
    assert_eq!(ready("2026-01-01T00:00:50Z"), (Some(Duration::from_secs(17)), "True".into(), false));
    assert_eq!(ready("2026-01-01T00:00:33Z"), (None, "False".into(), true));
}

#[test]
fn an_unreadable_lock_is_refused_also_when_finished() {
    let accepted = |lock: &DistributedLock, refusal: Option<Refusal>| {
        let Step::Rest(rest) = decide(&LockInput { refusal, ..input(lock) }) else { panic!() };
        let accepted = find_condition(&rest.status.conditions, LockCondition::Accepted).unwrap().clone();
        (accepted.status, accepted.reason, accepted.message.contains("why"))
    };
    let mut lock = lock(json!({}));
    lock.spec.unreadable = Some("why".into());
    let refused = ("False".to_owned(), "Unreadable".to_owned(), true);
    assert_eq!(accepted(&lock, Refusal::of_reading(&lock)), refused);
    lock.status =
        serde_json::from_value(json!({"transitions": 1, "conditions": [{"type": "Finished", "status": "True",
        "reason": "Unreadable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
        .unwrap();
    assert_eq!(accepted(&lock, None), refused);
}
