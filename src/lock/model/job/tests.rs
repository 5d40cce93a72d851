use serde_json::{Value, json};

use super::*;
use crate::api::JOB_LOCK_ANNOTATION;
use crate::api::test_util::{claim, condition, parsed};

/// A Job that holds the lock with token 7. `status` has its true conditions.
fn job(suspend: bool, template: Option<&str>, stopping: Option<&str>, conditions: &[&str]) -> Job {
    let mut metadata = json!({JOB_LOCK_ANNOTATION: ""});
    if let Some(token) = stopping {
        metadata[JOB_STOPPING_ANNOTATION] = json!(token);
    }
    let conditions: Vec<_> = conditions.iter().map(|name| json!({"type": name, "status": "True"})).collect();
    parsed(json!({
        "metadata": {"name": "j", "uid": "u", "annotations": metadata},
        "spec": {"suspend": suspend, "template": {"metadata": {"annotations": template.map(|token| json!({JOB_TOKEN_ANNOTATION: token}))},
            "spec": {"containers": [], "terminationGracePeriodSeconds": 5}}},
        "status": {"conditions": conditions, "succeeded": 1, "failed": 1}
    }))
}

fn with(job: Job, extra: Value) -> Job {
    let mut value = serde_json::to_value(job).unwrap();
    for (part, fields) in extra.as_object().unwrap() {
        for (name, field) in fields.as_object().unwrap() {
            value[part][name] = field.clone();
        }
    }
    parsed(value)
}

fn state_of(job: &Job, ended: usize) -> JobState {
    JobEvidence::of(Some(job), JobPods { ended, ..JobPods::default() }, 7).state
}

#[test]
fn marks_on_a_job_name_the_client_that_suspended_it() {
    let (at_rest, none): (&[&str], &[&str]) = (&["Suspended"], &[]);
    assert_eq!(state_of(&job(true, None, None, at_rest), 0), JobState::Waiting);
    let earlier = job(true, Some("6"), Some("6"), at_rest);
    assert_eq!(state_of(&earlier, 0), JobState::Waiting, "its tokens are those of an earlier hold");
    assert_eq!(state_of(&job(false, Some("7"), None, none), 0), JobState::Running);
    let stopped = |conditions| {
        let JobEvidence { state, is_at_rest, .. } =
            JobEvidence::of(Some(&job(true, Some("7"), Some("7"), conditions)), JobPods::default(), 7);
        (state, is_at_rest)
    };
    assert_eq!(stopped(none), (JobState::Stopped, false));
    assert_eq!(stopped(at_rest), (JobState::Stopped, true));
    // It was stopped before its start. No late start can land, so the hold can end.
    assert_eq!(state_of(&job(true, None, Some("7"), at_rest), 0), JobState::Stopped);
    assert_eq!(state_of(&job(true, Some("7"), None, none), 0), JobState::SuspendedByOther);
}

#[test]
fn a_finished_job_is_complete_when_all_counted_pods_have_ended() {
    for condition in ["Complete", "Failed"] {
        let finished = job(false, Some("7"), None, &[condition]);
        assert_eq!(state_of(&finished, 2), JobState::Finished { complete: true });
        assert_eq!(state_of(&finished, 1), JobState::Finished { complete: false }, "one counted pod was not observed");
    }
    let deleted =
        with(job(false, Some("7"), None, &[]), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(state_of(&deleted, 9), JobState::Gone);
    assert_eq!(JobEvidence::of(None, JobPods::default(), 7).state, JobState::Gone);
}

#[test]
fn pods_of_an_earlier_hold_are_ignored_unless_they_run() {
    let doubt = || Instance::Doubt(Doubt::NodeSilent);
    let counted = |pods: Vec<(Option<i64>, Instance)>| super::pods(pods, 7);
    assert_eq!(counted(vec![(Some(6), doubt())]), JobPods::default());
    assert_eq!(counted(vec![(Some(7), doubt())]).doubt, Some(Doubt::NodeSilent));
    assert_eq!(counted(vec![(None, doubt())]), JobPods::default(), "the pod was created without a lock");
    assert!(counted(vec![(Some(6), Instance::Running)]).running);
    let ended = vec![(Some(6), Instance::Terminated), (Some(7), Instance::Terminated), (None, Instance::Terminated)];
    assert_eq!(counted(ended).ended, 1);
}

#[test]
fn a_job_at_rest_without_a_running_pod_runs_none() {
    let runs_none = |state, is_at_rest, running| {
        let pods = JobPods { running, ..JobPods::default() };
        JobEvidence { state, is_at_rest, pods, grace: Duration::ZERO }.runs_no_pod()
    };
    assert!(runs_none(JobState::Gone, false, false) && runs_none(JobState::Stopped, true, false));
    assert!(!runs_none(JobState::Gone, false, true) && !runs_none(JobState::Stopped, true, true));
    assert!(!runs_none(JobState::Stopped, false, false), "the Job controller can still start a pod");
    assert!(!runs_none(JobState::Running, false, false) && !runs_none(JobState::Waiting, true, false));
}

#[test]
fn only_a_resting_job_without_another_controller_is_started() {
    let rests = || job(true, None, None, &["Suspended"]);
    let check = |job: &Job| fit(Some(job), "ns/j", Some("u"), false);
    let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    for (job, cause) in [
        (job(false, None, None, &[]), "suspend: true"),
        (job(true, None, None, &[]), "not confirmed"),
        (with(rests(), json!({"metadata": {"annotations": {}}})), "no annotation redlock-operator.io/lock"),
        (with(rests(), json!({"status": {"active": 1}})), "not confirmed"),
        (job(true, None, None, &["Suspended", "Failed"]), "has finished"),
        (with(rests(), json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})), "managedBy"),
        (with(rests(), json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})), "queue-name"),
        (with(rests(), json!({"metadata": {"ownerReferences": owner("JobSet")}})), "JobSet o"),
    ] {
        let refusal = check(&job).unwrap_err().to_string();
        assert!(refusal.contains(cause), "{cause}: {refusal}");
    }
    let managed = with(rests(), json!({"spec": {"managedBy": JOB_CONTROLLER}}));
    let owned = with(rests(), json!({"metadata": {"ownerReferences": owner("CronJob")}}));
    for job in [rests(), managed, owned] {
        assert_eq!(check(&job), Ok(()), "{job:?}");
    }
    assert!(matches!(fit(Some(&rests()), "ns/j", Some("v"), false), Err(UnfitJob::OtherJob { .. })));
    assert!(matches!(fit(Some(&rests()), "ns/j", None, true), Err(UnfitJob::PodsRun { .. })));
    assert!(matches!(fit(None, "ns/j", None, false), Err(UnfitJob::NoJob { .. })));
}

#[test]
fn the_younger_of_two_claims_on_one_job_is_refused() {
    let claim = |name: &str, second: u8, status: Value| {
        let of_job = json!({"claim": {"jobName": "j", "jobUID": "u"}});
        Arc::new(claim(name, second, json!({"spec": of_job, "status": status})))
    };
    let (old, young, waiting) = (0, 1, json!({"transitions": 0}));
    let claims = [claim("b", old, waiting.clone()), claim("a", young, waiting)];
    assert_eq!(older_claim(&claims, &claims[1]).unwrap().metadata.name.as_deref(), Some("b"));
    assert_eq!(older_claim(&claims, &claims[0]), None);
    let finished = json!({"transitions": 1, "conditions": [condition("Finished", "True", "Released")]});
    let claims = [claim("b", old, finished), claims[1].clone()];
    assert_eq!(older_claim(&claims, &claims[1]), None, "the Job can have another lock after the first one");
}
