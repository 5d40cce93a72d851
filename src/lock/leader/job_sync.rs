//! Starts the Job that holds a lock after the status names it, and suspends it before the hold ends.
//!
//! The order of writes is that of the leader label. At the start it is the status, then the Job. At the end it is the Job, then the status
//! without its holder, then the key.
//!
//! Each write carries the resourceVersion of the Job that it was decided on, and a hold ends with a write to its Job. A start that a frozen
//! leader decided on under an earlier hold therefore never lands.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::lock_store::LockStore;
use super::progress::Error;
use crate::api::conditions::HeldReason;
use crate::api::requests::{RequestError, request, unless_undone};
use crate::api::{DistributedLock, JOB_STOPPING_ANNOTATION, JOB_TOKEN_ANNOTATION};
use crate::lock::model::events::LockEvent;
use crate::lock::model::job::{is_at_rest, is_finished, is_suspended, stopping_token, template_token};
use crate::lock::model::refusal::Refusal;
use crate::lock::model::status::full_name;
use crate::runtime::cache::Cache;
use crate::runtime::context::Context;

/// Maximum number of reads of a Job that another client changes at the same moment.
const ATTEMPTS: usize = 5;

/// The outcome of a suspension of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It is suspended, and has the mark of the hold that ends.
    Suspended,
    /// It has finished, or it does not exist.
    Ended,
    /// The API server does not let the operator change it, for this cause.
    Refused(String),
}

/// The Jobs that a suspension applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Any Job.
    Any,
    /// Only a Job that is still suspended, so that a late start does not land.
    ///
    /// A Job that released its lock continues without it.
    Unstarted,
}

/// The Job that holds a lock, as the status names it.
struct JobHold {
    lock: String,
    namespace: String,
    name: String,
    uid: String,
    token: i64,
}

impl JobHold {
    fn of(lock: &DistributedLock) -> Option<Self> {
        let holder = lock.holder()?;
        Some(Self {
            lock: full_name(lock),
            namespace: lock.namespace().unwrap_or_default(),
            name: holder.job_name.clone()?,
            uid: holder.job_uid.clone()?,
            token: lock.fencing_token()?,
        })
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn is(&self, job: &Job) -> bool {
        job.uid().as_deref() == Some(self.uid.as_str())
    }
}

/// The cached Jobs, and a client to change them.
pub(super) struct JobSync {
    client: Client,
    jobs: Option<Cache<Job>>,
}

impl JobSync {
    /// There is no cache where the operator does not manage Jobs.
    pub(super) fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), jobs: context.jobs.clone() }
    }

    /// Starts the Job under the hold that the status names, or suspends it if that hold ends.
    ///
    /// It writes nothing if the cached Job has this state.
    pub(super) async fn ensure(&self, lock: &DistributedLock) -> Result<(), Error> {
        let Some(held) = JobHold::of(lock) else { return self.ensure_none(lock).await };
        let Some(job) = self.cached(&held.namespace, &held.name).filter(|job| held.is(job)) else { return Ok(()) };
        if lock.stopping().is_some() {
            return ensure_stopped(&self.client, &held, &job).await;
        }
        let is_new = template_token(&job) != Some(held.token) && stopping_token(&job) != Some(held.token);
        // The API server can refuse another template until the Job controller confirms the suspension. The watch reports that.
        if !is_new || !is_at_rest(&job) || is_finished(&job) {
            return Ok(());
        }
        let started = start(&self.client, &held, &job).await;
        started.map_err(|error| Error::of_write(error, |cause| Refusal::JobNotStarted { job: held.full_name(), cause }))
    }

    /// Suspends a Job that was started under an ended hold, if no write has done so.
    ///
    /// This covers a start with an unknown outcome.
    pub(super) async fn ensure_none(&self, lock: &DistributedLock) -> Result<(), Error> {
        let Some(claim) = lock.spec.claim.as_ref() else { return Ok(()) };
        let (Some(name), None) = (claim.job_name.as_deref(), lock.holder()) else { return Ok(()) };
        let namespace = lock.namespace().unwrap_or_default();
        let Some(job) = self.cached(&namespace, name) else { return Ok(()) };
        // A Job that released its lock continues without it.
        let past = lock.past().filter(|past| past.reason != HeldReason::Released.as_str());
        let last = past.and_then(|past| past.fencing_token);
        let is_ours = last.is_some() && template_token(&job) == last && stopping_token(&job) != last;
        if !is_ours || is_suspended(&job) || is_finished(&job) {
            return Ok(());
        }
        let (name, uid, token) = (name.to_owned(), job.uid().unwrap_or_default(), last.unwrap_or_default());
        let held = JobHold { lock: full_name(lock), namespace, name, uid, token };
        Ok(suspend(&self.client, &held, Stop::Any).await.map(drop)?)
    }

    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.as_ref()?.named(namespace, name)
    }
}

/// Suspends the Job of a hold that is still renewed, unless the cached Job is suspended.
async fn ensure_stopped(client: &Client, held: &JobHold, job: &Job) -> Result<(), Error> {
    if is_suspended(job) && stopping_token(job) == Some(held.token) {
        return Ok(());
    }
    match suspend(client, held, Stop::Any).await? {
        Stopped::Suspended | Stopped::Ended => Ok(()),
        Stopped::Refused(cause) => {
            Err(Error::of_refusal(&cause, |cause| Refusal::JobNotSuspended { job: held.full_name(), cause }))
        }
    }
}

/// Suspends the Job of a hold that is no longer renewed. Returns `None` if the holder is not a Job.
///
/// The first phase without renewals publishes an Event if the API server refuses.
pub(super) async fn stop(
    store: &LockStore,
    lock: &DistributedLock,
    which: Stop,
) -> Result<Option<Stopped>, RequestError> {
    let stopped = try_to_stop(store.client(), lock, which).await?;
    let is_first = lock.ending().is_none();
    if let (Some(held), Some(Stopped::Refused(cause)), true) = (JobHold::of(lock), &stopped, is_first) {
        let (job, cause) = (held.full_name(), cause.clone());
        store.event(&Arc::new(lock.clone()), LockEvent::JobNotSuspended { job, cause });
    }
    Ok(stopped)
}

/// Suspends the Job of the hold that the status names. Returns `None` if the holder is not a Job.
pub(super) async fn try_to_stop(
    client: &Client,
    lock: &DistributedLock,
    which: Stop,
) -> Result<Option<Stopped>, RequestError> {
    match JobHold::of(lock) {
        Some(held) => suspend(client, &held, which).await.map(Some),
        None => Ok(None),
    }
}

/// Reads the Job from the API server, and suspends it with the mark of this hold.
async fn suspend(client: &Client, held: &JobHold, which: Stop) -> Result<Stopped, RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    for _ in 0..ATTEMPTS {
        let job = match request(jobs.get_opt(&held.name)).await {
            Ok(Some(job)) if held.is(&job) && !is_finished(&job) => job,
            Ok(_) => return Ok(Stopped::Ended),
            Err(error @ RequestError::Refused(_)) => return Ok(refused(held, &error)),
            Err(error) => return Err(error),
        };
        if which == Stop::Unstarted && !is_suspended(&job) {
            return Ok(Stopped::Ended);
        }
        if is_suspended(&job) && stopping_token(&job) == Some(held.token) {
            return Ok(Stopped::Suspended);
        }
        let annotations = json!({JOB_STOPPING_ANNOTATION: held.token.to_string()});
        let patched = patch(&jobs, &job, annotations, json!({"suspend": true})).await;
        match patched.and_then(|job| unless_undone(job, is_suspended)) {
            Ok(_) => {
                tracing::info!(lock = held.lock, job = held.name, "Job suspended, its hold ends");
                return Ok(Stopped::Suspended);
            }
            Err(RequestError::Conflict) => {}
            Err(RequestError::Gone) => return Ok(Stopped::Ended),
            Err(error @ RequestError::Refused(_)) => return Ok(refused(held, &error)),
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::Conflict)
}

/// Logs a refusal. The hold of a Job that cannot be suspended ends like one without a Job.
fn refused(held: &JobHold, error: &RequestError) -> Stopped {
    let cause = error.refused().unwrap_or_default().to_owned();
    tracing::warn!(
        lock = held.lock,
        job = held.name,
        cause,
        "the API server does not let the operator suspend the Job of this lock"
    );
    Stopped::Refused(cause)
}

/// Starts the Job under this hold, with its token on the pod template.
async fn start(client: &Client, held: &JobHold, job: &Job) -> Result<(), RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    let mut version = job.metadata.clone();
    // API servers before Kubernetes 1.36 accept another template of a started Job only without its start time.
    if job.status.as_ref().is_some_and(|status| status.start_time.is_some()) {
        let body = json!({"metadata": {"resourceVersion": job.resource_version(), "uid": held.uid}, "status": {"startTime": null}});
        let params = PatchParams::default();
        version = request(jobs.patch_status(&held.name, &params, &Patch::Merge(body))).await?.metadata;
    }
    let template = json!({"metadata": {"annotations": {JOB_TOKEN_ANNOTATION: held.token.to_string()}}});
    // Replacement pods wait until the earlier pods have ended.
    let spec = json!({"suspend": false, "podReplacementPolicy": "Failed", "template": template});
    let base = Job { metadata: version, ..Job::default() };
    patch(&jobs, &base, json!({JOB_STOPPING_ANNOTATION: null}), spec).await?;
    tracing::info!(lock = held.lock, job = held.name, token = held.token, "Job started under its lock");
    Ok(())
}

/// Patches exactly this version of the Job.
async fn patch(jobs: &Api<Job>, job: &Job, annotations: Value, spec: Value) -> Result<Job, RequestError> {
    let metadata = json!({"resourceVersion": job.resource_version(), "uid": job.uid(), "annotations": annotations});
    let body = json!({"metadata": metadata, "spec": spec});
    request(jobs.patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(body))).await
}

#[cfg(test)]
mod tests {
    use hyper::http::Method;

    use super::*;
    use crate::runtime::fake_api;

    /// A hold of Job ns/app, and an API server that answers each patch like this.
    fn held_by_job(code: u16, answer: Value) -> (Client, JobHold) {
        let job = json!({"metadata": {"name": "app", "namespace": "ns", "uid": "u"}});
        let client = fake_api::client(move |request| match *request.method() {
            Method::PATCH => (code, answer.clone()),
            _ => (200, job.clone()),
        });
        let [lock, namespace, name, uid] = ["ns/app", "ns", "app", "u"].map(str::to_owned);
        (client, JobHold { lock, namespace, name, uid, token: 7 })
    }

    #[tokio::test]
    async fn a_suspension_that_a_webhook_undoes_is_a_fault() {
        let (client, held) = held_by_job(200, json!({"metadata": {"name": "app"}, "spec": {"suspend": false}}));
        let stopped = ensure_stopped(&client, &held, &Job::default()).await;
        let Err(Error::Refused(refusal)) = stopped else { panic!("{stopped:?}") };
        assert!(refusal.to_string().contains("webhook or policy undid"), "{refusal}");
        let (client, held) = held_by_job(200, json!({"metadata": {"name": "app"}, "spec": {"suspend": true}}));
        assert!(ensure_stopped(&client, &held, &Job::default()).await.is_ok());
    }

    #[tokio::test]
    async fn a_refused_suspension_is_a_fault_with_the_job_and_the_policy() {
        let policy = "jobs.batch \"app\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: jobs are final";
        let refused =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": policy, "code": 403});
        let (client, held) = held_by_job(403, refused);
        let stopped = ensure_stopped(&client, &held, &Job::default()).await;
        let Err(Error::Refused(refusal)) = stopped else { panic!("{stopped:?}") };
        assert_eq!(*refusal, Refusal::JobNotSuspended { job: "ns/app".into(), cause: policy.into() });
        let marked = json!({"metadata": {"annotations": {JOB_STOPPING_ANNOTATION: "7"}}, "spec": {"suspend": true}});
        assert!(ensure_stopped(&client, &held, &serde_json::from_value(marked).unwrap()).await.is_ok());
    }
}
