use super::*;

#[test]
fn the_head_of_the_queue_acquires_once_its_object_cannot_vanish() {
    let lock = lock(json!({}));
    assert_eq!(decide(&input(&lock)), Step::Acquire(contender()));
    let mut without_finalizer = lock.clone();
    without_finalizer.metadata.finalizers = None;
    assert_eq!(decide(&input(&without_finalizer)), Step::Prepare);
    let mut gated = lock.clone();
    gated.spec.election = Some(with_lease());
    assert_eq!(decide(&input(&gated)), Step::Prepare, "the label for the policy on Leases is missing");
    let view = || input(&gated);
    let no_candidate = || HeldMessage::NoCandidate { why: "none is ready".into() };
    let early = LockInput { contender: Err(no_candidate().into()), ..view() };
    assert_eq!(decide(&early), Step::Prepare, "the label does not wait for a candidate");
    let starting = Refusal::Starting { quorum: "ns/q".into(), max_ttl: Duration::from_secs(10).into() };
    assert_eq!(decide(&LockInput { refusal: Some(starting), ..view() }), Step::Prepare);
    // The Lease belongs to another lock.
    rested(&LockInput { refusal: Some(Refusal::OthersLease { other: "ns/older".into() }), ..view() });
    // A pause follows a refused label.
    rested(&LockInput { pause: Some(no_candidate().into()), ..view() });
    let mut suspended = gated.clone();
    suspended.spec.suspend = true;
    assert_eq!(decide(&input(&suspended)), Step::Prepare);
    gated.metadata.labels = Some([(LEASE_LABEL.to_owned(), "true".to_owned())].into());
    assert_eq!(decide(&input(&gated)), Step::Acquire(contender()));
}

#[test]
fn a_lock_without_candidate_retries_when_time_brings_one() {
    let plain = lock(json!({}));
    let wake = |until| {
        let message = HeldMessage::NoCandidate { why: "it has just released the lock".into() };
        let contender = Err(WaitReason { message, retry_after: until });
        rested(&LockInput { contender, ..input(&plain) }).wake
    };
    let patience = Some(plain.spec.ttl.get() * 3);
    assert_eq!(wake(None), patience, "without a retry, it wakes when the lock is no longer ready");
    assert_eq!(wake(Some(Duration::from_secs(4))), Some(Duration::from_secs(4)));
}

#[test]
fn a_waiting_lock_has_its_position_unless_it_is_far_back() {
    let waited = merged(not_held("Queued", "00:00:00"), json!({"spec": {"waitTimeout": "1m"}}));
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
        let rest = rested(&input);
        assert_eq!(condition(&rest, LockCondition::Held)[1], reason, "{input:?}");
        assert_eq!(rest.status.queue_position, position, "{input:?}");
        let has = |type_: &str, status: &str| {
            rest.status.conditions.iter().any(|condition| condition.type_ == type_ && condition.status == status)
        };
        assert_eq!(has("Finished", "True"), reason == "WaitTimeout", "only waitTimeout finishes a waiting claim");
        assert_eq!(has("Accepted", "False"), input.refusal.is_some() && reason != "WaitTimeout");
        assert!(reason != "NotAccepted" || rest.wake.is_none(), "an event about the quorum or the lock wakes it");
    }
}

#[test]
fn the_time_suspended_is_no_wait() {
    let resumed = lock(merged(not_held("Suspended", "00:00:00"), json!({"spec": {"waitTimeout": "10s"}})));
    let rest = rested(&LockInput { place: behind(2), ..input(&resumed) });
    assert_eq!(rest.wake, Some(Duration::from_secs(10)), "the whole waitTimeout is left");
    assert_eq!(held_since(&rest.status), WALL, "the wait begins now");
}

#[test]
fn a_claim_gives_up_after_its_wait_timeout() {
    let created = |at: &str| json!({"metadata": {"creationTimestamp": at}});
    for (state, timeout, gives_up) in [
        (not_held("Queued", "00:00:50"), "10s", true),
        (not_held("Queued", "00:00:51"), "10s", false),
        // A loss begins another wait, although the claim is a minute old.
        (not_held("NoCandidate", "00:00:20"), "30s", true),
        (not_held("NoCandidate", "00:00:50"), "30s", false),
        // No operator observed the claim before.
        (created("2025-12-31T23:00:00Z"), "10s", true),
        (created("2025-12-31T23:00:00Z"), "2h", false),
        (created("2026-01-01T00:00:59Z"), "100ms", false),
    ] {
        let name = format!("{state} {timeout}");
        let lock = lock(merged(state, json!({"spec": {"waitTimeout": timeout}})));
        if gives_up {
            assert_eq!(held_reason(&input(&lock)), "WaitTimeout", "{name}");
        } else {
            assert!(matches!(decide(&input(&lock)), Step::Acquire(_)), "{name}");
        }
    }
}

#[test]
fn the_wait_after_an_unconfirmed_end_begins_without_a_holder() {
    let holder = json!({"status": {"holder": {"identity": "me"}}});
    let status = Draft::of(&lock(merged(not_held("NoQuorum", "00:00:00"), holder)), WALL)
        .ended(&End::Terminated, WALL)
        .not_held(&HeldMessage::Waiting { position: 1 }, Some(1))
        .finish();
    assert_eq!(held_since(&status), WALL);
}

#[test]
fn a_pause_after_a_failure_is_in_the_status() {
    let stale = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: "6"}}});
    let refused = || HeldMessage::NotWritten { failure: "policy p denied request".into() };
    let retry = Some(Duration::from_millis(200));
    for (extra, message, place, reason, wake) in [
        (json!({}), HeldMessage::NoClock, Place::First, "NoQuorum", retry),
        (stale.clone(), refused(), Place::First, "Pending", retry),
        (stale, refused(), behind(1), "Queued", None),
    ] {
        let lock = lock(extra);
        let pause = Some(WaitReason { message, retry_after: retry });
        let rest = rested(&LockInput { pause, place, ..input(&lock) });
        assert_eq!((condition(&rest, LockCondition::Held)[1], rest.wake), (reason, wake));
    }
}

#[test]
fn a_finished_claim_never_contends_and_is_deleted_later() {
    let finished = |at: &str| {
        json!({"status": {"transitions": 1, "conditions": [{"type": "Finished", "status": "True",
        "reason": "Released", "message": "", "lastTransitionTime": at}]}, "spec": {"ttlAfterFinished": "30s"}})
    };
    let recent = lock(finished("2026-01-01T00:00:50Z"));
    assert_eq!(rested(&input(&recent)).wake, Some(Duration::from_secs(20)));
    assert_eq!(decide(&input(&lock(finished("2026-01-01T00:00:30Z")))), Step::Delete);
}

#[test]
fn the_finalizer_of_a_deleted_lock_without_a_hold_is_removed() {
    let deleted = lock(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:59Z"}}));
    assert_eq!(decide(&input(&deleted)), Step::RemoveFinalizer);
}

#[test]
fn a_request_is_removed_before_it_could_end_a_later_hold() {
    let mut lock = lock(json!({"metadata": {"annotations": {STEP_DOWN_ANNOTATION: "please"}}}));
    assert_eq!(decide(&input(&lock)), Step::Prepare);
    assert_eq!(requests(&lock), [STEP_DOWN_ANNOTATION]);
    lock.spec.suspend = true;
    assert_eq!(held_reason(&input(&lock)), "Suspended", "a policy can refuse to remove the request");
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let first = lock(json!({}));
    let mut second = first.clone();
    second.status = Some(rested(&LockInput { place: behind(1), ..input(&first) }).status);
    let later = LockInput { place: behind(1), api_now: UnixMillis(WALL.0 + 5_000), ..input(&second) };
    assert_eq!(second.status, Some(rested(&later).status));
}

#[test]
fn only_the_next_in_the_queue_is_prepared_before_its_turn() {
    let mut lock = lock(json!({}));
    lock.metadata.finalizers = None;
    let at = |position| LockInput { place: behind(position), ..input(&lock) };
    assert_eq!(decide(&at(1)), Step::Prepare);
    assert_eq!(held_reason(&at(2)), "Queued");
}

#[test]
fn a_lock_without_a_candidate_is_not_ready_after_three_ttl() {
    let of_pods = HeldMessage::NoLeader { why: "no pod matches".into() };
    let of_claim = HeldMessage::NoCandidate { why: "pod ns/a is gone".into() };
    for (election, message, text) in [
        (Some(Election::default()), of_pods, "no pod matches. The operator grants the lock when a pod can lead"),
        (None, of_claim, "pod ns/a is gone. The operator grants the lock when a pod or Job can hold it"),
    ] {
        let early = (Some(Duration::from_secs(17)), "True", "");
        for (since, expected) in [("00:00:50", early), ("00:00:33", (None, "False", text))] {
            let mut lock = lock(merged(not_held("NoCandidate", since), json!({"spec": {"ttl": "9s"}})));
            if election.is_some() {
                (lock.spec.claim, lock.spec.election) = (None, election.clone());
            }
            let rest = rested(&LockInput { contender: Err(message.clone().into()), ..input(&lock) });
            let [ready, _, shown] = condition(&rest, LockCondition::Ready);
            assert_eq!((rest.wake, ready, shown), expected, "{text}");
        }
    }
}

#[test]
fn an_unreadable_lock_is_refused_also_when_finished() {
    let accepted = |lock: &DistributedLock, refusal: Option<Refusal>| {
        let rest = rested(&LockInput { refusal, ..input(lock) });
        let [status, reason, message] = condition(&rest, LockCondition::Accepted);
        (status.to_owned(), reason.to_owned(), message.contains("why"))
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
