use serde_json::json;

use super::*;

const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

fn lock(spec: serde_json::Value, deleting: bool) -> DistributedLock {
    let mut metadata = json!({"name": "l", "namespace": "ns", "uid": "u"});
    if deleting {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
    }
    serde_json::from_value(json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": metadata, "spec": spec,
        "status": {"transitions": 1, "acquiredAt": "2026-01-01T00:00:00.000Z", "holder": {"identity": "a"}}
    }))
    .unwrap()
}

fn free_claim(extra: serde_json::Value) -> serde_json::Value {
    let mut spec = json!({"key": "k", "claim": {"identity": "a"}});
    for (name, value) in extra.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

fn election() -> serde_json::Value {
    json!({"election": {"selector": {"matchLabels": {"app": "a"}}}})
}

fn judge(lock: &DistributedLock, liveness: &Liveness) -> Verdict {
    let evidence = Evidence { liveness: liveness.clone(), namespace_ends: false, cordon: None, quorum_now: Some(NOW) };
    super::judge(lock, &evidence)
}

fn reason(verdict: &Verdict) -> Option<HeldReason> {
    match verdict {
        Verdict::Keep => None,
        Verdict::Release(reason, _) | Verdict::LetExpire(reason, _) => Some(*reason),
    }
}

#[test]
fn deleting_a_claim_with_a_free_identity_is_its_holders_word() {
    let verdict = judge(&lock(free_claim(json!({})), true), &Liveness::Unbound);
    assert!(matches!(verdict, Verdict::Release(HeldReason::Released, _)));
}

#[test]
fn a_claim_is_not_given_up_before_min_hold() {
    let early = judge(&lock(free_claim(json!({"minHold": "2m"})), true), &Liveness::Unbound);
    assert_eq!(early, Verdict::Keep);
    let late = judge(&lock(free_claim(json!({"minHold": "30s"})), true), &Liveness::Unbound);
    assert!(matches!(late, Verdict::Release(HeldReason::Released, _)));
}

#[test]
fn a_claim_whose_container_finished_at_once_is_kept_for_min_hold_and_an_election_is_not() {
    let bound = Liveness::Bound(Instance::Terminated);
    let pod_claim = |min_hold: &str| json!({"key": "k", "claim": {"podName": "a"}, "minHold": min_hold});
    assert_eq!(judge(&lock(pod_claim("2m"), false), &bound), Verdict::Keep);
    assert!(matches!(judge(&lock(pod_claim("30s"), false), &bound), Verdict::Release(..)));
    let mut election = lock(election(), false);
    election.spec.min_hold = Some(crate::api::GoDuration::from_secs(120));
    assert!(matches!(judge(&election, &bound), Verdict::Release(..)));
}

#[test]
fn deleting_an_election_does_not_cut_its_working_leader_short() {
    let verdict = judge(&lock(election(), true), &Liveness::Bound(Instance::Running));
    assert!(matches!(verdict, Verdict::LetExpire(HeldReason::Released, _)));
}

#[test]
fn a_terminated_container_frees_the_lock_whatever_else_is_going_on() {
    let bound = Liveness::Bound(Instance::Terminated);
    let mut ending = lock(election(), true);
    ending.spec.suspend = true;
    assert!(matches!(judge(&ending, &bound), Verdict::Release(HeldReason::HolderGone, _)));
}

#[test]
fn doubt_suspension_and_max_hold_let_the_hold_run_out() {
    let doubt = Liveness::Bound(Instance::Doubt("gone".into()));
    assert_eq!(reason(&judge(&lock(election(), false), &doubt)), Some(HeldReason::HolderGone));
    let suspended = judge(&lock(free_claim(json!({"suspend": true})), false), &Liveness::Unbound);
    assert!(matches!(suspended, Verdict::LetExpire(HeldReason::Suspended, _)));
    let overdue = judge(&lock(free_claim(json!({"maxHold": "1m"})), false), &Liveness::Unbound);
    assert!(matches!(overdue, Verdict::LetExpire(HeldReason::MaxHoldReached, _)));
    let in_time = judge(&lock(free_claim(json!({"maxHold": "61s"})), false), &Liveness::Unbound);
    assert_eq!(in_time, Verdict::Keep);
}

#[test]
fn a_claim_that_a_running_job_owns_outlives_its_deletion() {
    let verdict = judge(&lock(free_claim(json!({})), true), &Liveness::Owned(Instance::Running));
    assert_eq!(verdict, Verdict::Keep);
}

#[test]
fn a_break_lets_the_hold_run_out_and_only_a_forced_one_cuts_it_short() {
    let annotated = |name: &str| {
        let mut lock = lock(election(), false);
        lock.annotations_mut().insert(name.into(), "stuck since noon".into());
        judge(&lock, &Liveness::Bound(Instance::Running))
    };
    assert!(matches!(annotated(BREAK_ANNOTATION), Verdict::LetExpire(HeldReason::Broken, why) if why.contains("noon")));
    assert!(
        matches!(annotated(BREAK_FORCE_ANNOTATION), Verdict::Release(HeldReason::Broken, why) if why.contains("given up"))
    );
    assert_eq!(reason(&annotated(STEP_DOWN_ANNOTATION)), Some(HeldReason::SteppedDown));
}

#[test]
fn a_hold_that_is_ending_stays_ending_after_its_cause_is_gone() {
    let mut lock = lock(election(), false);
    lock.status.as_mut().unwrap().ending = Some(crate::api::Ending {
        since: crate::api::MilliTime::from_millis(NOW.0).unwrap(),
        reason: "Suspended".into(),
        until: None,
        message: None,
    });
    let verdict = judge(&lock, &Liveness::Bound(Instance::Running));
    assert_eq!(reason(&verdict), Some(HeldReason::Suspended));
}

fn ending(lock: &mut DistributedLock, reason: &str) {
    lock.status.as_mut().unwrap().ending = Some(crate::api::Ending {
        since: crate::api::MilliTime::from_millis(NOW.0).unwrap(),
        reason: reason.into(),
        until: None,
        message: None,
    });
}

fn owned(lock: &mut DistributedLock, api_version: &str, kind: &str) {
    lock.owner_references_mut().push(OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "owner".into(),
        uid: "owner-uid".into(),
        ..OwnerReference::default()
    });
}

#[test]
fn deleting_the_owner_of_a_claim_that_is_ending_does_not_make_its_end_quicker() {
    for liveness in [Liveness::Unbound, Liveness::Owned(Instance::Running), Liveness::Owned(Instance::Terminated)] {
        let mut claim = lock(free_claim(json!({"minHold": "2m"})), true);
        ending(&mut claim, "MaxHoldReached");
        assert_eq!(reason(&judge(&claim, &liveness)), Some(HeldReason::MaxHoldReached));
        assert!(matches!(judge(&claim, &liveness), Verdict::LetExpire(..)), "{liveness:?}");
    }
}

#[test]
fn a_claim_whose_jobs_pods_vanished_runs_out() {
    let claim = lock(free_claim(json!({})), true);
    let doubt = Liveness::Owned(Instance::Doubt("its pod vanished".into()));
    assert!(matches!(judge(&claim, &doubt), Verdict::LetExpire(HeldReason::Released, _)));
    let ended = Liveness::Owned(Instance::Terminated);
    assert!(matches!(judge(&claim, &ended), Verdict::Release(HeldReason::Released, _)));
}

#[test]
fn pods_prove_the_end_of_their_owner_only_when_each_was_seen_to_end() {
    let doubt = || Instance::Doubt("why".into());
    for complete in [false, true] {
        assert_eq!(all_of(vec![Instance::Terminated, Instance::Running, doubt()], complete), Instance::Running);
        assert_eq!(all_of(vec![Instance::Terminated, doubt()], complete), doubt());
        assert!(matches!(all_of(vec![], complete), Instance::Doubt(_)));
    }
    assert_eq!(all_of(vec![Instance::Terminated], true), Instance::Terminated);
    let of_a_job = all_of(vec![Instance::Terminated], false);
    assert!(matches!(of_a_job, Instance::Doubt(_)), "a pod that was forced off a node before nobody may know of");
}

#[test]
fn a_forced_break_ends_what_a_running_owner_keeps() {
    let mut claim = lock(free_claim(json!({})), true);
    claim.annotations_mut().insert(BREAK_FORCE_ANNOTATION.into(), "stuck".into());
    let running = Liveness::Owned(Instance::Running);
    assert!(matches!(judge(&claim, &running), Verdict::Release(HeldReason::Broken, _)));
    claim.annotations_mut().clear();
    claim.spec.suspend = true;
    assert_eq!(reason(&judge(&claim, &running)), Some(HeldReason::Suspended));
}

#[test]
fn a_claim_that_goes_with_its_namespace_or_a_foreign_owner_runs_out() {
    let claim = lock(free_claim(json!({"minHold": "2m"})), true);
    let evidence = Evidence { liveness: Liveness::Unbound, namespace_ends: true, cordon: None, quorum_now: Some(NOW) };
    assert!(matches!(super::judge(&claim, &evidence), Verdict::LetExpire(HeldReason::Released, _)));
    let mut workflow = lock(free_claim(json!({})), true);
    owned(&mut workflow, "argoproj.io/v1alpha1", "Workflow");
    assert!(matches!(judge(&workflow, &Liveness::Unbound), Verdict::LetExpire(HeldReason::Released, _)));
    let mut pods = lock(free_claim(json!({})), true);
    owned(&mut pods, "v1", "Pod");
    assert!(matches!(judge(&pods, &Liveness::Owned(Instance::Terminated)), Verdict::Release(..)));
}

#[test]
fn the_holders_word_counts_with_the_token_of_the_hold_only() {
    let with_word = |word: &str, min_hold: &str| {
        let mut claim = lock(free_claim(json!({"minHold": min_hold})), false);
        claim.status.as_mut().unwrap().fencing_token = Some(7);
        claim.annotations_mut().insert(RELEASE_ANNOTATION.into(), word.into());
        claim
    };
    assert!(matches!(judge(&with_word("7", "0s"), &Liveness::Unbound), Verdict::Release(HeldReason::Released, _)));
    assert_eq!(judge(&with_word("6", "0s"), &Liveness::Unbound), Verdict::Keep);
    assert_eq!(judge(&with_word("7", "2m"), &Liveness::Unbound), Verdict::Keep, "remembered until minHold");
    let mut late = with_word("7", "0s");
    ending(&mut late, "Suspended");
    assert!(matches!(judge(&late, &Liveness::Unbound), Verdict::Release(HeldReason::Released, _)));
}

#[test]
fn only_a_forced_break_ends_a_claim_before_its_minimum() {
    let mut claim = lock(free_claim(json!({"minHold": "2m", "suspend": true})), false);
    assert_eq!(judge(&claim, &Liveness::Bound(Instance::Doubt("gone".into()))), Verdict::Keep);
    claim.annotations_mut().insert(BREAK_ANNOTATION.into(), "now".into());
    assert_eq!(judge(&claim, &Liveness::Unbound), Verdict::Keep);
    claim.annotations_mut().insert(BREAK_FORCE_ANNOTATION.into(), "now".into());
    assert!(matches!(judge(&claim, &Liveness::Unbound), Verdict::Release(HeldReason::Broken, _)));
}

#[test]
fn before_min_hold_and_after_a_release_nothing_is_expected_of_a_holder() {
    let held = |min_hold: &str| {
        let mut lock = lock(free_claim(json!({"minHold": min_hold})), false);
        lock.status.as_mut().unwrap().fencing_token = Some(7);
        lock
    };
    assert!(!is_expected_to_be_well(&held("2m"), Some(NOW)) && is_expected_to_be_well(&held("1m"), Some(NOW)));
    let mut released = held("1m");
    released.annotations_mut().insert(RELEASE_ANNOTATION.into(), "7".into());
    assert!(!is_expected_to_be_well(&released, Some(NOW)));
}

#[test]
fn a_leader_steps_down_once_for_each_cordon_of_its_node() {
    let acquired = 1_767_225_600_000; // In the status of `lock`.
    let judged = |at: Option<i64>| {
        let cordon = at.map(|at| Cordon { node: "n1".into(), at: UnixMillis(at) });
        let liveness = Liveness::Bound(Instance::Running);
        let evidence = Evidence { liveness, namespace_ends: false, cordon, quorum_now: Some(NOW) };
        super::judge(&lock(election(), false), &evidence)
    };
    let Verdict::LetExpire(HeldReason::SteppedDown, why) = judged(Some(acquired + 1_000)) else { panic!() };
    assert_eq!(why, "Node n1 of the holder was cordoned");
    assert_eq!(judged(Some(acquired - 1_000)), Verdict::Keep, "it was elected there although the node was cordoned");
    assert_eq!(judged(None), Verdict::Keep);
}
