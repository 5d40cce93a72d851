//! The hold of a Job, which is stopped before its hold ends. Only proven death ends a hold immediately.

use std::time::Duration;

use super::*;
use crate::lock::model::job::{JobEvidence, JobPods, JobState};

const RUNNING: JobState = JobState::Running;
const GONE: JobState = JobState::Gone;

fn evidence(state: JobState, running: bool, doubt: Option<Doubt>) -> JobEvidence {
    let pods = JobPods { running, doubt, ..JobPods::default() };
    JobEvidence { state, is_at_rest: true, pods, grace: Duration::from_secs(20) }
}

fn job(state: JobState, running: bool, doubt: Option<Doubt>) -> Liveness {
    Liveness::Job(evidence(state, running, doubt))
}

fn claim(extra: Value, status: Value) -> DistributedLock {
    let lock = lock(json!({"key": "k", "claim": {"jobName": "j"}}), false);
    parsed(merged(json!(lock), json!({"spec": extra, "status": status})))
}

fn held() -> DistributedLock {
    claim(json!({}), json!({}))
}

/// A hold stopped `seconds` ago. Its ttl is 10s, and the grace period of its pods 20s.
fn stopping(seconds: u32) -> DistributedLock {
    let since = format!("2026-01-01T00:00:{:02}.000Z", 60 - seconds);
    claim(json!({}), json!({"stopping": {"since": since, "reason": "MaxHoldReached", "message": "too long"}}))
}

#[test]
fn a_job_keeps_its_lock_while_it_can_have_pods() {
    for (state, running) in [(RUNNING, false), (RUNNING, true), (JobState::Waiting, false), (GONE, true)] {
        assert_eq!(judge(&held(), &job(state, running, None)), Verdict::Keep, "{state:?}");
    }
    assert_eq!(judge(&held(), &job(JobState::Finished { complete: false }, true, None)), Verdict::Keep);
}

#[test]
fn a_finished_job_frees_its_lock_when_all_its_pods_have_ended() {
    let judged = |complete| judge(&held(), &job(JobState::Finished { complete }, false, None));
    assert_eq!(released(judged(true)), HeldReason::Released);
    assert_eq!(run_out(judged(false)), HeldReason::Released);
    assert_eq!(run_out(judge(&held(), &job(GONE, false, None))), HeldReason::HolderGone);
    let in_doubt = job(JobState::Finished { complete: true }, false, Some(Doubt::NodeSilent));
    assert_eq!(run_out(judge(&held(), &in_doubt)), HeldReason::HolderGone);
}

fn stopped(verdict: Verdict) -> HeldReason {
    let Verdict::Stop(end) = verdict else { panic!("not stopped: {verdict:?}") };
    end.reason()
}

#[test]
fn a_job_is_stopped_before_its_hold_runs_out() {
    let judged = |lock: &DistributedLock, liveness| stopped(judge(lock, &liveness));
    assert_eq!(judged(&held(), job(RUNNING, true, Some(Doubt::NodeSilent))), HeldReason::HolderGone);
    assert_eq!(judged(&held(), job(JobState::SuspendedByOther, true, None)), HeldReason::Released);
    let halted = job(JobState::Stopped, true, None);
    assert_eq!(judged(&held(), halted), HeldReason::HolderGone, "the status write after the suspension is missing");
    // The cause stays the same if the status write after the suspension is missing.
    for state in [RUNNING, JobState::Stopped] {
        let with = |extra: Value| judged(&claim(extra, json!({})), job(state, true, None));
        assert_eq!(with(json!({"maxHold": "30s"})), HeldReason::MaxHoldReached, "{state:?}");
        assert_eq!(with(json!({"suspend": true})), HeldReason::Suspended, "{state:?}");
        let broken = annotated(held(), BREAK_ANNOTATION, "ada: stuck");
        assert_eq!(judged(&broken, job(state, true, None)), HeldReason::Broken);
    }
}

#[test]
fn a_stopped_job_keeps_its_lock_for_grace_period_and_ttl() {
    let stopped = |running| job(JobState::Stopped, running, None);
    assert_eq!(judge(&stopping(29), &stopped(true)), Verdict::Keep);
    assert_eq!(run_out(judge(&stopping(30), &stopped(true))), HeldReason::MaxHoldReached);
    assert_eq!(run_out(judge(&stopping(1), &stopped(false))), HeldReason::MaxHoldReached);
    let unconfirmed = Liveness::Job(JobEvidence { is_at_rest: false, ..evidence(JobState::Stopped, false, None) });
    assert_eq!(judge(&stopping(1), &unconfirmed), Verdict::Keep, "the Job controller can still start a pod");
    // The doubt for which the Job was stopped does not delay its end.
    let in_doubt = job(JobState::Stopped, false, Some(Doubt::NodeSilent));
    assert!(matches!(judge(&stopping(1), &in_doubt), Verdict::LetExpire(_)));
}

/// The object of a deleted Job is gone before its pods, which can have any grace period.
#[test]
fn a_deleted_job_keeps_its_lock_until_its_pods_end() {
    let gone = |running, deleting| {
        Liveness::Job(JobEvidence::of(None, JobPods { running, deleting, ..JobPods::default() }, 7))
    };
    assert_eq!(judge(&stopping(59), &gone(true, true)), Verdict::Keep);
    assert_eq!(judge(&stopping(39), &gone(true, false)), Verdict::Keep);
    assert!(matches!(judge(&stopping(40), &gone(true, false)), Verdict::LetExpire(_)), "an orphan without end");
    assert!(matches!(judge(&stopping(59), &gone(false, false)), Verdict::LetExpire(_)));
}

#[test]
fn min_hold_and_the_holders_release_apply_to_jobs() {
    let finished = job(JobState::Finished { complete: true }, false, None);
    assert!(matches!(judge(&claim(json!({"minHold": "2m"}), json!({})), &finished), Verdict::Minimum(_)));
    let asked = annotated(claim(json!({}), json!({"fencingToken": 7})), RELEASE_ANNOTATION, "7");
    assert_eq!(released(judge(&asked, &job(RUNNING, true, None))), HeldReason::Released);
}

#[test]
fn min_hold_keeps_the_lock_and_stops_a_job_in_doubt() {
    let minimum = json!({"minHold": "2m"});
    let in_doubt = job(RUNNING, true, Some(Doubt::NodeSilent));
    assert_eq!(stopped(judge(&claim(minimum.clone(), json!({})), &in_doubt)), HeldReason::HolderGone);
    let stopping =
        json!({"stopping": {"since": "2026-01-01T00:00:20.000Z", "reason": "HolderGone", "message": "doubt"}});
    let at_rest = job(JobState::Stopped, false, Some(Doubt::NodeSilent));
    let early = judge(&claim(minimum, stopping.clone()), &at_rest);
    assert!(matches!(early, Verdict::Minimum(_)), "minHold has not passed");
    let over = judge(&claim(json!({"minHold": "30s"}), stopping), &at_rest);
    assert_eq!(run_out(over), HeldReason::HolderGone);
}

#[test]
fn a_job_runs_again_after_a_loss_but_not_after_a_deliberate_end() {
    assert!(is_to_run_again(&held(), HeldReason::Expired) && is_to_run_again(&held(), HeldReason::HolderGone));
    assert!(!is_to_run_again(&held(), HeldReason::Broken) && !is_to_run_again(&held(), HeldReason::MaxHoldReached));
    // The request came while the Job was being stopped for another reason.
    let broken = annotated(held(), BREAK_ANNOTATION, "ada: stuck");
    assert!(!is_to_run_again(&broken, HeldReason::HolderGone));
    assert!(
        !is_to_run_again(&stopping(1), HeldReason::Expired),
        "maxHold had begun to end the hold before it was lost"
    );
}
