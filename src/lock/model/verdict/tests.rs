use serde_json::{Value, json};

use super::*;
use crate::api::test_util::{self, condition, merged, parsed};
use crate::time::{Boottime, ClockOffset, UnixMicros};

mod job_verdict;

const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

fn lock(spec: Value, deleting: bool) -> DistributedLock {
    let held = merged(condition("Held", "True", "Held"), json!({"lastTransitionTime": "2026-01-01T00:00:02Z"}));
    let status = json!({"transitions": 1, "acquiredAt": "2026-01-01T00:00:00.000Z", "holder": {"identity": "a"},
        "conditions": [held]});
    let mut lock = test_util::lock(spec, status);
    lock.metadata.deletion_timestamp = deleting.then(|| parsed(json!("2026-01-01T00:00:50Z")));
    lock
}

fn free_claim(extra: Value) -> Value {
    merged(json!({"key": "k", "claim": {"identity": "a"}}), extra)
}

fn election() -> Value {
    json!({"election": {"selector": {"matchLabels": {"app": "a"}}}})
}

/// The time by an API server's clock without uncertainty.
fn held_for(lock: &DistributedLock) -> Option<HeldFor> {
    let now = Boottime::default();
    HeldFor::of(lock, Some(ClockOffset::of_reading(UnixMicros(NOW.0 * 1_000), Duration::ZERO, now, now)), now)
}

fn evidence(lock: &DistributedLock, liveness: Liveness) -> Evidence {
    Evidence { liveness, namespace_ends: false, cordoned_node: None, api_now: NOW, held_for: held_for(lock) }
}

fn judge(lock: &DistributedLock, liveness: &Liveness) -> Verdict {
    super::judge(lock, &evidence(lock, liveness.clone()))
}

fn annotated(mut lock: DistributedLock, name: &str, text: &str) -> DistributedLock {
    lock.annotations_mut().insert(name.into(), text.into());
    lock
}

fn reason(verdict: &Verdict) -> Option<HeldReason> {
    match verdict {
        Verdict::Keep | Verdict::Minimum(_) => None,
        Verdict::Stop(end) | Verdict::Release(end) | Verdict::LetExpire(end) => Some(end.reason()),
    }
}

fn released(verdict: Verdict) -> HeldReason {
    let Verdict::Release(end) = verdict else { panic!("not released: {verdict:?}") };
    end.reason()
}

fn run_out(verdict: Verdict) -> HeldReason {
    let Verdict::LetExpire(end) = verdict else { panic!("it does not run out: {verdict:?}") };
    end.reason()
}

#[test]
fn death_and_release_free_a_lock_and_other_causes_expire_it() {
    use HeldReason::{HolderGone, MaxHoldReached, Released, Suspended};
    use Liveness::{Bound, Owned, Unbound};
    let doubt = || Instance::Doubt(Doubt::Vanished);
    let keep = (true, None);
    let free = |reason| (true, Some(reason));
    let runs_out = |reason| (false, Some(reason));
    let claim = free_claim;
    let of_pod = |min_hold: &str| json!({"key": "k", "claim": {"podName": "a"}, "minHold": min_hold});
    let election_with = |extra: Value| merged(election(), extra);
    for (why, spec, deleting, liveness, expected) in [
        ("deleting a claim with a free identity is its word", claim(json!({})), true, Unbound, free(Released)),
        ("not before minHold", claim(json!({"minHold": "2m"})), true, Unbound, keep),
        ("after minHold", claim(json!({"minHold": "30s"})), true, Unbound, free(Released)),
        ("a container that finished at once", of_pod("2m"), false, Bound(Instance::Terminated), keep),
        ("a container that finished later", of_pod("30s"), false, Bound(Instance::Terminated), free(HolderGone)),
        (
            "minHold does not bind elections",
            election_with(json!({"minHold": "2m"})),
            false,
            Bound(Instance::Terminated),
            free(HolderGone),
        ),
        ("a leader that works", election(), true, Bound(Instance::Running), runs_out(Released)),
        (
            "known death is quicker than any other end",
            election_with(json!({"suspend": true})),
            true,
            Bound(Instance::Terminated),
            free(HolderGone),
        ),
        ("doubt", election(), false, Bound(doubt()), runs_out(HolderGone)),
        ("suspended", claim(json!({"suspend": true})), false, Unbound, runs_out(Suspended)),
        ("overdue", claim(json!({"maxHold": "1m"})), false, Unbound, runs_out(MaxHoldReached)),
        ("in time", claim(json!({"maxHold": "61s"})), false, Unbound, keep),
        ("its Job runs", claim(json!({})), true, Owned(Instance::Running), keep),
        (
            "suspended, and its Job runs",
            claim(json!({"suspend": true})),
            true,
            Owned(Instance::Running),
            runs_out(Suspended),
        ),
        ("its Job's pods vanished", claim(json!({})), true, Owned(doubt()), runs_out(Released)),
        ("its Job has ended", claim(json!({})), true, Owned(Instance::Terminated), free(Released)),
    ] {
        let verdict = judge(&lock(spec, deleting), &liveness);
        assert_eq!((!matches!(verdict, Verdict::LetExpire(_)), reason(&verdict)), expected, "{why}: {verdict:?}");
    }
}

#[test]
fn only_a_forced_break_ends_a_hold_at_once() {
    let reason = || "stuck since noon".to_owned();
    for (request, verdict) in [
        (BREAK_ANNOTATION, Verdict::LetExpire(End::Broken { reason: reason() })),
        (BREAK_FORCE_ANNOTATION, Verdict::Release(End::BrokenByForce { reason: reason() })),
        (STEP_DOWN_ANNOTATION, Verdict::LetExpire(End::SteppedDown { reason: reason() })),
    ] {
        let lock = annotated(lock(election(), false), request, &reason());
        assert_eq!(judge(&lock, &Liveness::Bound(Instance::Running)), verdict);
    }
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
fn deleting_the_owner_does_not_hasten_an_end() {
    let mut suspended = lock(election(), false);
    ending(&mut suspended, "Suspended");
    let verdict = judge(&suspended, &Liveness::Bound(Instance::Running));
    assert_eq!(reason(&verdict), Some(HeldReason::Suspended), "the end continues without its cause");
    for liveness in [Liveness::Unbound, Liveness::Owned(Instance::Running), Liveness::Owned(Instance::Terminated)] {
        let mut claim = lock(free_claim(json!({"minHold": "2m"})), true);
        ending(&mut claim, "MaxHoldReached");
        assert_eq!(run_out(judge(&claim, &liveness)), HeldReason::MaxHoldReached, "{liveness:?}");
    }
}

#[test]
fn an_owner_has_ended_when_each_of_its_pods_has() {
    let doubt = || Instance::Doubt(Doubt::Vanished);
    for complete in [false, true] {
        assert_eq!(all_of(vec![Instance::Terminated, Instance::Running, doubt()], complete), Instance::Running);
        assert_eq!(all_of(vec![Instance::Terminated, doubt()], complete), doubt());
        assert!(matches!(all_of(vec![], complete), Instance::Doubt(_)));
    }
    assert_eq!(all_of(vec![Instance::Terminated], true), Instance::Terminated);
    let of_a_job = all_of(vec![Instance::Terminated], false);
    assert!(matches!(of_a_job, Instance::Doubt(_)), "the cache possibly lacks a pod that was deleted by force");
}

#[test]
fn a_claim_deleted_with_namespace_or_foreign_owner_runs_out() {
    let claim = lock(free_claim(json!({"minHold": "2m"})), true);
    let evidence = Evidence { namespace_ends: true, ..evidence(&claim, Liveness::Unbound) };
    assert_eq!(run_out(super::judge(&claim, &evidence)), HeldReason::Released);
    let mut workflow = lock(free_claim(json!({})), true);
    owned(&mut workflow, "argoproj.io/v1alpha1", "Workflow");
    assert_eq!(run_out(judge(&workflow, &Liveness::Unbound)), HeldReason::Released);
    let mut pods = lock(free_claim(json!({})), true);
    owned(&mut pods, "v1", "Pod");
    assert!(matches!(judge(&pods, &Liveness::Owned(Instance::Terminated)), Verdict::Release(_)));
}

#[test]
fn a_release_is_valid_only_with_the_token_of_the_hold() {
    let with_release = |token: &str, min_hold: &str| {
        let mut claim = lock(free_claim(json!({"minHold": min_hold})), false);
        claim.status.as_mut().unwrap().fencing_token = Some(7);
        annotated(claim, RELEASE_ANNOTATION, token)
    };
    assert_eq!(released(judge(&with_release("7", "0s"), &Liveness::Unbound)), HeldReason::Released);
    assert_eq!(judge(&with_release("6", "0s"), &Liveness::Unbound), Verdict::Keep);
    let early = judge(&with_release("7", "2m"), &Liveness::Unbound);
    assert!(matches!(early, Verdict::Minimum(_)), "the release waits for minHold");
    let mut late = with_release("7", "0s");
    ending(&mut late, "Suspended");
    assert_eq!(released(judge(&late, &Liveness::Unbound)), HeldReason::Released);
}

#[test]
fn only_a_forced_break_ends_what_a_minimum_or_an_owner_keeps() {
    let claim = lock(free_claim(json!({"minHold": "2m", "suspend": true})), false);
    assert!(matches!(judge(&claim, &Liveness::Bound(Instance::Doubt(Doubt::Vanished))), Verdict::Minimum(_)));
    let claim = annotated(claim, BREAK_ANNOTATION, "now");
    assert!(matches!(judge(&claim, &Liveness::Unbound), Verdict::Minimum(_)));
    assert!(judge(&claim, &Liveness::Unbound).is_renewed());
    let owned = (lock(free_claim(json!({})), true), Liveness::Owned(Instance::Running));
    for (claim, liveness) in [(claim, Liveness::Unbound), owned] {
        let broken = annotated(claim, BREAK_FORCE_ANNOTATION, "now");
        assert_eq!(released(judge(&broken, &liveness)), HeldReason::Broken, "{liveness:?}");
    }
}

#[test]
fn a_hold_of_an_unreadable_lock_runs_out_despite_its_holder() {
    for deleting in [false, true] {
        let mut lock = annotated(lock(free_claim(json!({"minHold": "1h"})), deleting), RELEASE_ANNOTATION, "7");
        lock.spec.unreadable = Some("ttlAfterFinished: too long".into());
        let end = End::Unreadable { error: "ttlAfterFinished: too long".into() };
        assert_eq!(judge(&lock, &Liveness::Unbound), Verdict::LetExpire(end));
    }
}

#[test]
fn no_health_is_required_before_min_hold_and_after_a_release() {
    let held = |min_hold: &str| {
        let mut lock = lock(free_claim(json!({"minHold": min_hold})), false);
        lock.status.as_mut().unwrap().fencing_token = Some(7);
        lock
    };
    let is_expected = |lock: &DistributedLock| must_be_healthy(lock, held_for(lock));
    assert!(!is_expected(&held("2m")) && is_expected(&held("1m")));
    assert!(!is_expected(&annotated(held("1m"), RELEASE_ANNOTATION, "7")));
}

#[test]
fn a_leader_steps_down_once_for_each_cordon_of_its_node() {
    // The time of transition of the condition decides, which is two seconds after acquiredAt.
    let (acquired, lock) = (1_767_225_602_000, lock(election(), false));
    assert!(was_held_before(&lock, UnixMillis(acquired + 1_000)));
    assert!(
        !was_held_before(&lock, UnixMillis(acquired - 1_000)),
        "it was elected there although the node was cordoned"
    );
    let running = evidence(&lock, Liveness::Bound(Instance::Running));
    let evidence = Evidence { cordoned_node: Some("n1".to_owned()), ..running };
    assert_eq!(super::judge(&lock, &evidence), Verdict::LetExpire(End::Cordoned { node: "n1".into() }));
}

#[test]
fn min_hold_names_the_end_that_it_delays() {
    let deleted = lock(free_claim(json!({"minHold": "2m"})), true);
    assert_eq!(judge(&deleted, &Liveness::Unbound), Verdict::Minimum(End::Deleted));
    let works = lock(free_claim(json!({"minHold": "2m"})), false);
    assert_eq!(judge(&works, &Liveness::Unbound), Verdict::Keep);
}

#[test]
fn a_lease_without_a_published_validity_ends_its_hold() {
    let until = |at: &str, lease: Value| {
        let mut lock = lock(merged(election(), json!({"election": {"lease": lease}})), false);
        lock.status.as_mut().unwrap().valid_until = parsed(json!(at));
        reason(&judge(&lock, &Liveness::Bound(Instance::Running)))
    };
    let lease = json!({"name": "controller"});
    assert_eq!(until("2026-01-01T00:01:00.001Z", lease.clone()), None);
    assert_eq!(until("2026-01-01T00:01:00.000Z", lease), Some(HeldReason::Expired));
    assert_eq!(until("2026-01-01T00:00:30.000Z", json!(null)), None, "other holders work without the API server");
}
