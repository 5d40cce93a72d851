use serde_json::{Value, json};

use super::*;
use crate::api::JOB_LOCK_ANNOTATION;
use crate::api::test_util::parsed;

fn job(annotations: Value, suspend: bool) -> Job {
    parsed(json!({
        "metadata": {"name": "reindex-28934", "namespace": "shop", "uid": "1a2b3c4d-0000", "annotations": annotations},
        "spec": {"suspend": suspend, "template": {"metadata": {}, "spec": {"containers": []}}}}))
}

fn annotated(more: &[(&str, &str)]) -> Job {
    let mut annotations = json!({JOB_LOCK_ANNOTATION: "reindex"});
    more.iter().for_each(|(name, value)| annotations[*name] = json!(value));
    job(annotations, true)
}

fn claim(condition: Value) -> DistributedLock {
    let status = json!({"transitions": 1, "conditions": [condition]});
    parsed(json!({"metadata": {"name": "reindex-28934-1a2b3c4d", "namespace": "shop"}, "status": status,
        "spec": {"key": "reindex", "claim": {"jobName": "reindex-28934", "jobUID": "1a2b3c4d-0000"}}}))
}

fn condition(name: &str, status: &str, reason: &str) -> Value {
    json!({"type": name, "status": status, "reason": reason, "message": "why it is", "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn event_of(step: Step) -> JobEvent {
    let Step::Publish(event) = step else { panic!("no Event: {step:?}") };
    event
}

#[test]
fn a_suspended_job_gets_the_claim_of_its_annotations() {
    let annotations = [
        (JOB_TTL_ANNOTATION, "20s"),
        (JOB_WAIT_TIMEOUT_ANNOTATION, "1m"),
        (JOB_MIN_HOLD_ANNOTATION, "1h30m"),
        (JOB_QUORUM_ANNOTATION, "locks/main"),
    ];
    let Step::Create(lock) = decide(&annotated(&annotations), None) else { panic!("no claim") };
    assert_eq!(lock.name_any(), "reindex-28934-1a2b3c4d");
    assert_eq!(
        serde_json::to_value(&lock.spec.claim).unwrap(),
        json!({"jobName": "reindex-28934", "jobUID": "1a2b3c4d-0000"})
    );
    let spec = &lock.spec;
    assert_eq!((spec.key.as_deref(), spec.ttl), (Some("reindex"), GoDuration::from_secs(20)));
    assert_eq!(
        (spec.wait_timeout, spec.min_hold),
        (Some(GoDuration::from_secs(60)), Some(GoDuration::from_secs(5_400)))
    );
    assert_eq!(spec.quorum_ref, Some(QuorumRef { name: "main".into(), namespace: Some("locks".into()) }));
    assert_eq!(lock.owner_references()[0].uid, "1a2b3c4d-0000");
    let Step::Create(lock) = decide(&annotated(&[(JOB_LOCK_ANNOTATION, "nightly/{job}")]), None) else {
        panic!("no claim")
    };
    assert_eq!(lock.spec.key.as_deref(), Some("nightly/reindex-28934"));
}

#[test]
fn finished_jobs_and_jobs_without_the_annotation_are_ignored() {
    assert_eq!(decide(&job(json!({}), true), None), Step::Nothing);
    assert_eq!(decide(&job(json!({JOB_LOCK_ANNOTATION: ""}), true), None), Step::Nothing, "a user creates its claim");
    let mut finished = annotated(&[]);
    finished.status = serde_json::from_value(json!({"conditions": [{"type": "Complete", "status": "True"}]})).unwrap();
    assert_eq!(decide(&finished, None), Step::Nothing);
}

#[test]
fn running_jobs_and_unreadable_annotations_are_reported() {
    let running = job(json!({JOB_LOCK_ANNOTATION: "reindex"}), false);
    assert!(event_of(decide(&running, None)).to_string().contains("suspend: true"));
    let invalid = event_of(decide(&annotated(&[(JOB_TTL_ANNOTATION, "ten")]), None));
    assert!(matches!(&invalid, JobEvent::Invalid { annotation: JOB_TTL_ANNOTATION, .. }), "{invalid}");
    // The policy that lets the operator delete the Job compares the whole value.
    for value in ["delete", "Delete "] {
        let invalid = event_of(decide(&annotated(&[(JOB_ON_WAIT_TIMEOUT_ANNOTATION, value)]), None));
        assert!(invalid.to_string().contains("neither Delete nor Suspend"), "{invalid}");
    }
}

#[test]
fn a_job_that_never_got_its_lock_is_deleted_only_on_request() {
    let timed_out = claim(condition("Finished", "True", "WaitTimeout"));
    assert!(matches!(event_of(decide(&annotated(&[]), Some(&timed_out))), JobEvent::WaitTimeout { .. }));
    let asks = annotated(&[(JOB_ON_WAIT_TIMEOUT_ANNOTATION, "Delete")]);
    assert_eq!(decide(&asks, Some(&timed_out)), Step::Delete);
    let broken = claim(condition("Finished", "True", "Broken"));
    assert!(matches!(event_of(decide(&asks, Some(&broken))), JobEvent::Ended { .. }));
}

#[test]
fn an_unserved_claim_is_reported_and_a_foreign_one_is_not_used() {
    let refused = claim(condition("Accepted", "False", "TTLTooLong"));
    assert!(event_of(decide(&annotated(&[]), Some(&refused))).to_string().contains("why it is"));
    assert_eq!(decide(&annotated(&[]), Some(&claim(condition("Accepted", "True", "Accepted")))), Step::Nothing);
    let mut other = refused;
    other.spec.claim.as_mut().unwrap().job_uid = Some("other".into());
    assert!(matches!(event_of(decide(&annotated(&[]), Some(&other))), JobEvent::NameTaken { .. }));
}
