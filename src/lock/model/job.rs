//! Pure: what a Job and its pods prove about the hold of a claim that names the Job.
//!
//! A Job is started after its claim is held, and suspended before the hold ends. The fencing token of the hold is on the pod template, so
//! each pod has the token of the hold under which it was created.
//!
//! The annotation `stopping` with this token proves that the operator suspended the Job for the end of this hold. Without it, another
//! client suspended the Job.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::end::Doubt;
use super::instance::Instance;
use super::queue::age;
use crate::api::jobs::has_condition;
pub use crate::api::jobs::{is_finished, is_suspended, requested_lock};
use crate::api::{DistributedLock, JOB_STOPPING_ANNOTATION, JOB_TOKEN_ANNOTATION};

/// The grace period of pods that set none.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// The value of `spec.managedBy` of Jobs that the Job controller of Kubernetes manages.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
/// Labels of Jobs that a queueing system manages.
const QUEUE_LABELS: [&str; 2] = ["kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name"];

/// The state of a Job under one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It does not exist, or is being deleted.
    Gone,
    /// It is suspended, and was not started under this hold.
    Waiting,
    /// It is not suspended.
    Running,
    /// The operator has suspended it for the end of this hold.
    Stopped,
    /// Another client has suspended it after it was started under this hold.
    SuspendedByOther,
    /// It is complete, or has failed.
    Finished {
        /// The operator observed the end of at least as many pods under this hold as the Job counts.
        complete: bool,
    },
}

impl JobState {
    /// Whether the Job starts no further pods, so that it need not be stopped.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Gone | Self::Finished { .. })
    }
}

/// The state of the pods of a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobPods {
    /// One of them runs.
    pub running: bool,
    /// One of those that run is being deleted. It is in doubt a minute after its grace period, if nothing reports its end.
    pub deleting: bool,
    /// The reason why it is unknown whether one of them runs.
    pub doubt: Option<Doubt>,
    /// Number of ended pods of this hold.
    pub ended: usize,
}

/// The input of the verdict on the hold of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvidence {
    /// The state of the Job.
    pub state: JobState,
    /// The Job controller has confirmed its suspension, and starts no further pods.
    pub is_at_rest: bool,
    /// The state of its pods.
    pub pods: JobPods,
    /// The grace period of its pods. [`Duration::MAX`] if the Job does not exist any more and they are being deleted.
    pub grace: Duration,
}

impl JobEvidence {
    /// The evidence of a Job under the hold with this token. A deleted Job is `None`.
    pub fn of(job: Option<&Job>, pods: JobPods, token: i64) -> Self {
        let grace = match job {
            Some(job) => job.spec.as_ref().map_or(DEFAULT_GRACE, grace),
            None if pods.deleting => Duration::MAX,
            None => DEFAULT_GRACE,
        };
        Self { state: state(job, token, pods.ended), is_at_rest: job.is_some_and(is_at_rest), pods, grace }
    }

    /// Whether no pod runs, as far as observed, and none will start.
    pub const fn runs_no_pod(&self) -> bool {
        let starts_none = match self.state {
            JobState::Gone | JobState::Finished { .. } => true,
            JobState::Stopped | JobState::SuspendedByOther => self.is_at_rest,
            JobState::Waiting | JobState::Running => false,
        };
        starts_none && !self.pods.running
    }
}

/// The reason why a claim cannot have the lock for its Job.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum UnfitJob {
    /// Job {job} does not exist
    NoJob { job: String },
    /// Job {job} is another one than spec.claim.jobUID names. Create a claim for this one
    OtherJob { job: String },
    /// Job {job} is being deleted
    Deleted { job: String },
    /// Job {job} has no annotation redlock-operator.io/lock, so no claim starts it. Set this annotation on the Job, with an
    /// empty value where you create the claim yourself
    NotAsked { job: String },
    /// Job {job} has finished
    Finished { job: String },
    /// Controller {by} manages Job {job} (spec.managedBy), so the operator does not start it
    Managed { job: String, by: String },
    /// A queueing system manages Job {job} (label {label}), so the operator does not start it. Remove the label or the
    /// lock, or run the command under redlock run
    Queued { job: String, label: String },
    /// {kind} {name} controls Job {job}, so the operator does not start it. Only Jobs of CronJobs and Jobs without an
    /// owner can be started by their lock
    Owned { job: String, kind: String, name: String },
    /// Job {job} is not suspended, so its pods run without the lock. The operator leaves it alone. Create the Job with
    /// spec.suspend: true
    NotSuspended { job: String },
    /// Job {job} is suspended, and the Job controller has not confirmed that yet
    NotConfirmed { job: String },
    /// DistributedLock {claim} is older and names the same Job {job}. A Job can have one lock: delete one of the two claims
    OtherClaim { job: String, claim: String },
    /// Pods of Job {job} still run. The lock can be granted when they have ended
    PodsRun { job: String },
}

/// Whether the operator is allowed to start this Job. `name` is for messages.
pub fn check_startable(job: &Job, name: &str) -> Result<(), UnfitJob> {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.clone()).filter(|by| by != JOB_CONTROLLER);
    let queue = QUEUE_LABELS.into_iter().find(|label| job.labels().contains_key(*label));
    let is_foreign = |owner: &&OwnerReference| owner.controller == Some(true) && owner.kind != "CronJob";
    let owner = job.owner_references().iter().find(is_foreign).cloned();
    let job = name.to_owned();
    Err(match (manager, queue, owner) {
        (Some(by), ..) => UnfitJob::Managed { job, by },
        (None, Some(label), _) => UnfitJob::Queued { job, label: label.to_owned() },
        (None, None, Some(OwnerReference { kind, name, .. })) => UnfitJob::Owned { job, kind, name },
        (None, None, None) => return Ok(()),
    })
}

/// Whether the lock can be granted for this Job.
///
/// `uid` is the UID in the claim. `running` is true if a pod of the Job runs.
pub fn fit(job: Option<&Job>, name: &str, uid: Option<&str>, running: bool) -> Result<(), UnfitJob> {
    let job_name = || name.to_owned();
    let Some(job) = job else { return Err(UnfitJob::NoJob { job: job_name() }) };
    let is_wanted = match () {
        () if uid.is_some() && job.metadata.uid.as_deref() != uid => Err(UnfitJob::OtherJob { job: job_name() }),
        () if job.metadata.deletion_timestamp.is_some() => Err(UnfitJob::Deleted { job: job_name() }),
        () if is_finished(job) => Err(UnfitJob::Finished { job: job_name() }),
        () if requested_lock(job).is_none() => Err(UnfitJob::NotAsked { job: job_name() }),
        () => check_startable(job, name),
    };
    is_wanted?;
    match () {
        () if !is_suspended(job) => Err(UnfitJob::NotSuspended { job: job_name() }),
        () if !is_at_rest(job) => Err(UnfitJob::NotConfirmed { job: job_name() }),
        () if running => Err(UnfitJob::PodsRun { job: job_name() }),
        () => Ok(()),
    }
}

/// The oldest unfinished claim on the same Job that is older than `lock`.
pub fn older_claim<'a>(claims: &'a [Arc<DistributedLock>], lock: &DistributedLock) -> Option<&'a DistributedLock> {
    let same_job = |claim: &DistributedLock| {
        let uid = |lock: &DistributedLock| lock.spec.claim.as_ref().and_then(|claim| claim.job_uid.clone());
        uid(claim).is_none() || uid(lock).is_none() || uid(claim) == uid(lock)
    };
    let others = claims.iter().map(|claim| &**claim).filter(|claim| !claim.is_finished() && same_job(claim));
    others.filter(|claim| age(claim) < age(lock)).min_by_key(|claim| age(claim))
}

/// Combines the states of the pods of a Job, each with the token that it was created with.
///
/// A pod in doubt that belongs to another hold does not matter, because that hold has run out. A pod without a token was created when another
/// client started the Job without the lock. If it mattered, each hold of the Job would end before the Job starts.
pub fn pods(instances: impl IntoIterator<Item = (Option<i64>, Instance)>, token: i64) -> JobPods {
    let mut pods = JobPods::default();
    for (made_with, instance) in instances {
        match instance {
            Instance::Running => pods.running = true,
            Instance::Terminated => pods.ended += usize::from(made_with == Some(token)),
            // Takes the smallest of several reasons, so that the status does not depend on the order of the pods.
            Instance::Doubt(why) if made_with == Some(token) => {
                pods.doubt = Some(pods.doubt.map_or(why, |other| other.min(why)));
            }
            Instance::Doubt(_) => {}
        }
    }
    pods
}

/// Whether the Job controller has confirmed the suspension and reports no active pod.
///
/// Then the template of the Job can be changed.
pub fn is_at_rest(job: &Job) -> bool {
    let active = job.status.as_ref().and_then(|status| status.active).unwrap_or(0);
    is_suspended(job) && has_condition(job, "Suspended") && active == 0
}

/// The token on its pod template.
pub fn template_token(job: &Job) -> Option<i64> {
    let template = job.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get(JOB_TOKEN_ANNOTATION)?.parse().ok()
}

/// The token in the annotation `stopping`.
///
/// The operator suspended the Job to end the hold with this token.
pub fn stopping_token(job: &Job) -> Option<i64> {
    job.annotations().get(JOB_STOPPING_ANNOTATION)?.parse().ok()
}

fn state(job: Option<&Job>, token: i64, ended: usize) -> JobState {
    let Some(job) = job.filter(|job| job.metadata.deletion_timestamp.is_none()) else { return JobState::Gone };
    match () {
        () if is_finished(job) => JobState::Finished { complete: counted(job.status.as_ref()) <= ended },
        () if !is_suspended(job) => JobState::Running,
        () if stopping_token(job) == Some(token) => JobState::Stopped,
        () if template_token(job) == Some(token) => JobState::SuspendedByOther,
        () => JobState::Waiting,
    }
}

/// Number of ended pods in the status of the Job, under all of its holds.
///
/// The Job controller counts each pod once, even if the pod was deleted by force. It does not count the pods that it deletes for a suspension.
fn counted(status: Option<&JobStatus>) -> usize {
    let of = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
    status.map_or(0, |status| of(status.succeeded) + of(status.failed))
}

fn grace(spec: &JobSpec) -> Duration {
    let seconds = spec.template.spec.as_ref().and_then(|pod| pod.termination_grace_period_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(DEFAULT_GRACE, Duration::from_secs)
}

#[cfg(test)]
mod tests;
