//! Pure: Jobs that request a lock, and whether an operator has made a claim for each.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::checks::{Finding, NAMED, State, finding};
use crate::cluster::objects::LockObject;
use crate::output::format::{and, between, count};
use redlock_api::MilliTime;
use redlock_api::jobs::{is_finished, is_suspended, requested_lock};

/// The longest time in which an operator creates the claim of a Job, in milliseconds.
const LONGEST_CLAIM_DELAY: i64 = 30_000;

/// Checks the Jobs that request a lock. `None`: no unfinished Job requests one.
pub(super) fn jobs(jobs: &[Job], locks: &[LockObject], now: MilliTime) -> Option<Finding> {
    let requests_lock = |job: &&Job| requested_lock(job).is_some_and(|key| !key.is_empty()) && !is_finished(job);
    let requesting: Vec<_> = jobs.iter().filter(requests_lock).collect();
    if requesting.is_empty() {
        return None;
    }
    let has_claim = |job: &Job| {
        locks.iter().any(|lock| lock.spec.claim.as_ref().is_some_and(|claim| claim.job_uid == job.metadata.uid))
    };
    let is_old = |job: &Job| {
        let created = job.creation_timestamp().map(|time| MilliTime::from(time.0));
        created.is_some_and(|created| between(created, now) > LONGEST_CLAIM_DELAY)
    };
    let unclaimed: Vec<_> = requesting.iter().filter(|job| is_old(job) && !has_claim(job)).copied().collect();
    let text = format!("{} with a lock.", count(requesting.len(), "Job"));
    let Some(first) = unclaimed.first() else { return Some(finding("Jobs", State::Fine, text, None)) };
    let full_name = |job: &&Job| format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
    let names: Vec<_> = unclaimed.iter().take(NAMED).map(full_name).collect();
    let cause = match is_suspended(first) {
        true => "Set the chart's value jobs.enabled",
        false => "Create the Job with spec.suspend: true, because its pods run without the lock",
    };
    let mend = format!(
        "{cause}. Read the Events of the Job: kubectl -n {} describe job {}",
        first.namespace().unwrap_or_default(),
        first.name_any()
    );
    let text = format!("{text} No operator has made a claim for {} of them: {}.", unclaimed.len(), and(&names));
    Some(finding("Jobs", State::Warning, text, Some(&mend)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use redlock_api::JOB_LOCK_ANNOTATION;
    use redlock_api::test_util::parsed;

    fn job(name: &str, annotations: Value) -> Job {
        parsed(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"suspend": true, "template": {}}
        }))
    }

    #[test]
    fn a_suspended_job_without_an_operator_is_named_with_a_remedy() {
        let at = |time: &str| parsed::<MilliTime>(json!(time));
        let (now, soon) = (at("2026-01-01T00:01:00.000Z"), at("2026-01-01T00:00:10.000Z"));
        let asks = json!({JOB_LOCK_ANNOTATION: "k"});
        let all = [job("a", asks.clone()), job("b", asks), job("other", json!({JOB_LOCK_ANNOTATION: ""}))];
        let claim: LockObject = parsed(json!({"metadata": {"name": "a-a", "namespace": "shop"},
            "spec": {"claim": {"jobName": "a", "jobUID": "a"}}}));
        let found = jobs(&all, &[claim], now).unwrap();
        assert_eq!(found.state, State::Warning);
        assert_eq!(found.text, "2 Jobs with a lock. No operator has made a claim for 1 of them: shop/b.");
        assert!(found.mend.unwrap().contains("jobs.enabled"));
        let mut free = job("c", json!({JOB_LOCK_ANNOTATION: "k"}));
        free.spec.as_mut().unwrap().suspend = None;
        let found = jobs(&[free], &[], now).unwrap();
        assert_eq!(found.state, State::Warning, "its pods run without the lock");
        assert!(found.mend.unwrap().contains("spec.suspend: true"));
        assert_eq!(jobs(&all, &[], soon).unwrap().state, State::Fine, "the operator has a moment");
        assert_eq!(jobs(&all[2..], &[], now), None);
    }
}
