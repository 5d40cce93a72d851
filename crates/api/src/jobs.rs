//! Pure: the lock that a Job requests, and the state of a Job.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::JOB_LOCK_ANNOTATION;

/// The lock that the annotation of this Job requests. An empty text stands for the claim that a user created for it.
///
/// Without the annotation no claim starts or suspends the Job. So a right to create claims gives no right on other Jobs.
#[must_use]
pub fn requested_lock(job: &Job) -> Option<&str> {
    job.annotations().get(JOB_LOCK_ANNOTATION).map(|key| key.trim())
}

/// Whether the Job is complete or has failed.
#[must_use]
pub fn is_finished(job: &Job) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

/// Whether the specification of the Job suspends it.
#[must_use]
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// Whether a condition of the Job is true.
#[must_use]
pub fn has_condition(job: &Job, wanted: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == wanted && condition.status == "True")
}
