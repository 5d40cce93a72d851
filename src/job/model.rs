//! Pure: the claim that a Job requests by its annotations, and the state of the Job after the end of that claim.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt};

use crate::api::conditions::{HeldReason, LockCondition};
use crate::api::{
    Claim, DistributedLock, DistributedLockSpec, GoDuration, JOB_MAX_HOLD_ANNOTATION, JOB_MIN_HOLD_ANNOTATION,
    JOB_ON_WAIT_TIMEOUT_ANNOTATION, JOB_QUORUM_ANNOTATION, JOB_TTL_ANNOTATION, JOB_WAIT_TIMEOUT_ANNOTATION, QuorumRef,
};
use crate::lock::model::job::{UnfitJob, check_startable, is_finished, is_suspended, requested_lock, template_token};
use crate::quorum::model::lookup::full_name;

/// The operator replaces this text in a key with the name of the Job.
const JOB_PLACEHOLDER: &str = "{job}";
/// Characters of a Job's UID in the name of its claim.
///
/// They distinguish it from the claim of an earlier Job with the same name, which can still exist.
const UID_IN_NAME: usize = 8;

/// The next step for a Job.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, until it or its claim changes.
    Nothing,
    /// Create its claim.
    Create(Box<DistributedLock>),
    /// Delete the Job, because it did not get its lock in time.
    Delete,
    /// Publish this Event.
    Publish(JobEvent),
}

messages! {
    /// Events of a Job.
    #[derive(displaydoc::Display)]
    pub enum JobEvent: means -> (&'static str, EventType);

    /// {why}
    ///
    /// When: A Job has the annotation `lock`, and the operator cannot start it.
    ///
    /// To do: do what the message says, and create the Job again.
    NotStarted { why: String } => ("LockNotStarted", EventType::Warning),
    /// Annotation {annotation}: {why}
    ///
    /// When: An annotation of a Job cannot be read.
    ///
    /// To do: correct the annotation.
    Invalid { annotation: &'static str, why: String } => ("LockAnnotationInvalid", EventType::Warning),
    /// The API server refused claim {claim} of the Job: {why}
    ///
    /// When: The claim that the annotations ask for is not valid, or cannot be created in this namespace.
    ///
    /// To do: correct what the message says.
    ClaimRefused { claim: String, why: String } => ("LockClaimRefused", EventType::Warning),
    /// DistributedLock {claim} is not of this Job. Delete it, and the operator creates the claim of the Job
    ///
    /// When: The name of the claim is taken.
    ///
    /// To do: do what the message says.
    NameTaken { claim: String } => ("LockClaimRefused", EventType::Warning),
    /// DistributedLock {claim} of the Job is not accepted: {why}
    ///
    /// When: The operator cannot serve the claim of the Job.
    ///
    /// To do: correct what the message says.
    NotAccepted { claim: String, why: String } => ("LockNotAccepted", EventType::Warning),
    /// The Job did not get lock {claim} within its wait-timeout, and stays suspended. Delete the claim, and the Job waits
    /// again
    ///
    /// When: The wait of a Job has ended, and its annotation `on-wait-timeout` is not `Delete`.
    ///
    /// To do: delete the Job or its claim. A suspended Job keeps a CronJob with `concurrencyPolicy: Forbid` from its next Job.
    WaitTimeout { claim: String } => ("LockWaitTimeout", EventType::Warning),
    /// The Job did not get lock {claim} within its wait-timeout, and the operator deletes it
    ///
    /// When: The wait of a Job has ended, and its annotation `on-wait-timeout` is `Delete`.
    ///
    /// To do: nothing.
    Deleted { claim: String } => ("LockWaitTimeout", EventType::Normal),
    /// The hold of DistributedLock {claim} has ended: {why}. The Job stays suspended. Delete the claim, and the Job waits for
    /// the lock again
    ///
    /// When: A user or `max-hold` has ended the hold of a Job that has not finished.
    ///
    /// To do: delete the Job or its claim.
    Ended { claim: String, why: String } => ("LockEnded", EventType::Warning),
}

/// Decides the next step. `claim` is the lock with the name of the Job's claim, if it exists.
pub fn decide(job: &Job, claim: Option<&DistributedLock>) -> Step {
    let asks = requested_lock(job).is_some_and(|key| !key.is_empty());
    if !asks || job.metadata.deletion_timestamp.is_some() || is_finished(job) {
        return Step::Nothing;
    }
    claim.map_or_else(|| without_claim(job), |claim| with_claim(job, claim))
}

fn without_claim(job: &Job) -> Step {
    let name = full_name(job);
    let not_started = |unfit: UnfitJob| Step::Publish(JobEvent::NotStarted { why: unfit.to_string() });
    match check_startable(job, &name) {
        Err(unfit) => not_started(unfit),
        Ok(()) if is_suspended(job) => match claim_of(job) {
            Ok(claim) => Step::Create(Box::new(claim)),
            Err(event) => Step::Publish(event),
        },
        // A Job that started under its lock continues after the release.
        Ok(()) if template_token(job).is_some() => Step::Nothing,
        Ok(()) => not_started(UnfitJob::NotSuspended { job: name }),
    }
}

fn with_claim(job: &Job, lock: &DistributedLock) -> Step {
    let name = lock.name_any();
    if lock.spec.claim.as_ref().is_none_or(|claim| claim.job_uid != job.metadata.uid) {
        return Step::Publish(JobEvent::NameTaken { claim: name });
    }
    if let Some(finished) = lock.condition(LockCondition::Finished).filter(|it| it.status == "True") {
        let timed_out = finished.reason == HeldReason::WaitTimeout.as_str();
        let is_to_be_deleted = job.annotations().get(JOB_ON_WAIT_TIMEOUT_ANNOTATION).is_some_and(|on| on == "Delete");
        return match () {
            () if !is_suspended(job) || lock.metadata.deletion_timestamp.is_some() => Step::Nothing,
            () if timed_out && is_to_be_deleted => Step::Delete,
            () if timed_out => Step::Publish(JobEvent::WaitTimeout { claim: name }),
            () => Step::Publish(JobEvent::Ended { claim: name, why: finished.message.clone() }),
        };
    }
    let refused = lock.condition(LockCondition::Accepted).filter(|it| it.status == "False");
    match refused.filter(|_| !lock.is_held()) {
        Some(refused) => Step::Publish(JobEvent::NotAccepted { claim: name, why: refused.message.clone() }),
        None => Step::Nothing,
    }
}

/// The name of the claim of a Job.
pub fn claim_name(job: &Job) -> String {
    let uid: String = job.uid().unwrap_or_default().chars().take(UID_IN_NAME).collect();
    format!("{}-{uid}", job.name_any())
}

/// The claim for a Job, from its annotations.
///
/// The API server checks the key, the durations and the bounds.
fn claim_of(job: &Job) -> Result<DistributedLock, JobEvent> {
    let text = |annotation: &'static str| job.annotations().get(annotation).map(|text| text.trim());
    let duration = |annotation: &'static str| {
        let parsed = text(annotation).map(str::parse::<GoDuration>).transpose();
        parsed.map_err(|error| JobEvent::Invalid { annotation, why: error.to_string() })
    };
    // The policy compares the whole value.
    let on_timeout = job.annotations().get(JOB_ON_WAIT_TIMEOUT_ANNOTATION);
    if let Some(value) = on_timeout.filter(|value| !["Delete", "Suspend"].contains(&value.as_str())) {
        let why = format!("{value:?} is neither Delete nor Suspend");
        return Err(JobEvent::Invalid { annotation: JOB_ON_WAIT_TIMEOUT_ANNOTATION, why });
    }
    let key = requested_lock(job).unwrap_or_default().replace(JOB_PLACEHOLDER, &job.name_any());
    let claim = Claim { job_name: Some(job.name_any()), job_uid: job.uid(), ..Claim::default() };
    let spec = DistributedLockSpec {
        key: Some(key),
        quorum_ref: text(JOB_QUORUM_ANNOTATION).map(QuorumRef::from),
        ttl: duration(JOB_TTL_ANNOTATION)?.unwrap_or(DistributedLockSpec::default().ttl),
        wait_timeout: duration(JOB_WAIT_TIMEOUT_ANNOTATION)?,
        min_hold: duration(JOB_MIN_HOLD_ANNOTATION)?,
        max_hold: duration(JOB_MAX_HOLD_ANNOTATION)?,
        claim: Some(claim),
        ..DistributedLockSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(claim_name(job)),
        namespace: job.namespace(),
        owner_references: job.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(DistributedLock { metadata, spec, status: None })
}

#[cfg(test)]
mod tests;
