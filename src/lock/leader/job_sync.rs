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
use crate::runtime::context::Context;

/// Maximum number of reads of a Job that another client changes at the same moment.
const ATTEMPTS: usize = 5;

/// The outcome of a suspension of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It is suspended, and has the mark of the hold that ends.
    Suspended,
    /// It has finished, or it does not exist, or the holder is not a Job.
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

/// Starts the Job under the hold that the status names, or suspends it if that hold ends.
///
/// It writes nothing if the cached Job has this state.
pub(super) async fn ensure(context: &Context, lock: &DistributedLock) -> Result<(), Error> {
    let Some(held) = JobHold::of(lock) else { return ensure_none(context, lock).await };
    let job = cached(context, &held.namespace, &held.name).filter(|job| held.is(job));
    let Some(job) = job else { return Ok(()) };
    if lock.stopping().is_some() {
        return ensure_stopped(&context.client, &held, &job).await;
    }
    let is_new = template_token(&job) != Some(held.token) && stopping_token(&job) != Some(held.token);
    // The API server can refuse another template until the Job controller confirms the suspension. The watch reports that.
    if !is_new || !is_at_rest(&job) || is_finished(&job) {
        return Ok(());
    }
    let started = start(&context.client, &held, &job).await;
    started.map_err(|error| Error::of_write(error, |cause| Refusal::JobNotStarted { job: held.full_name(), cause }))
}

/// Suspends a Job that was started under an ended hold, if no write has done so.
///
/// This covers a start with an unknown outcome. A Job that released its lock continues without it.
pub(super) async fn ensure_none(context: &Context, lock: &DistributedLock) -> Result<(), Error> {
    let past = lock.past().filter(|past| lock.holder().is_none() && past.reason != HeldReason::Released.as_str());
    let name = lock.spec.claim.as_ref().and_then(|claim| claim.job_name.clone());
    let (Some(name), Some(token)) = (name, past.and_then(|past| past.fencing_token)) else { return Ok(()) };
    let namespace = lock.namespace().unwrap_or_default();
    let Some(job) = cached(context, &namespace, &name) else { return Ok(()) };
    let is_ours = template_token(&job) == Some(token) && stopping_token(&job) != Some(token);
    if is_ours && !is_suspended(&job) && !is_finished(&job) {
        let held = JobHold { lock: full_name(lock), namespace, name, uid: job.uid().unwrap_or_default(), token };
        suspend(&context.client, &held, Stop::Any).await?;
    }
    Ok(())
}

fn cached(context: &Context, namespace: &str, name: &str) -> Option<Arc<Job>> {
    context.jobs.as_ref()?.named(namespace, name)
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

/// Suspends the Job of a hold that is no longer renewed.
///
/// The first phase without renewals publishes an Event if the API server refuses.
pub(super) async fn stop(store: &LockStore, lock: &DistributedLock, which: Stop) -> Result<Stopped, RequestError> {
    let stopped = try_to_stop(&store.context.client, lock, which).await?;
    if let (Some(held), Stopped::Refused(cause), None) = (JobHold::of(lock), &stopped, lock.ending()) {
        let (job, cause) = (held.full_name(), cause.clone());
        store.event(&Arc::new(lock.clone()), LockEvent::JobNotSuspended { job, cause });
    }
    Ok(stopped)
}

/// Suspends the Job of the hold that the status names.
pub(super) async fn try_to_stop(client: &Client, lock: &DistributedLock, which: Stop) -> Result<Stopped, RequestError> {
    if let Some(held) = JobHold::of(lock) { suspend(client, &held, which).await } else { Ok(Stopped::Ended) }
}

/// Suspends a Job with the mark of this hold, and logs a refusal.
///
/// The hold of a Job that cannot be suspended ends like one without a Job.
async fn suspend(client: &Client, held: &JobHold, which: Stop) -> Result<Stopped, RequestError> {
    match read_and_suspend(client, held, which).await {
        Err(error @ RequestError::Refused(_)) => {
            let (lock, job, cause) = (&held.lock, &held.name, error.refused().unwrap_or_default());
            tracing::warn!(lock, job, cause, "the API server does not let the operator suspend the Job of this lock");
            Ok(Stopped::Refused(cause.to_owned()))
        }
        Err(RequestError::Gone) => Ok(Stopped::Ended),
        stopped => stopped,
    }
}

/// Suspends the Job by the API server's state of it.
async fn read_and_suspend(client: &Client, held: &JobHold, which: Stop) -> Result<Stopped, RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    for _ in 0..ATTEMPTS {
        let job = request(jobs.get_opt(&held.name)).await?.filter(|job| held.is(job) && !is_finished(job));
        let job = job.filter(|job| which == Stop::Any || is_suspended(job));
        let Some(job) = job else { return Ok(Stopped::Ended) };
        if is_suspended(&job) && stopping_token(&job) == Some(held.token) {
            return Ok(Stopped::Suspended);
        }
        let annotations = json!({JOB_STOPPING_ANNOTATION: held.token.to_string()});
        let patched = patch(&jobs, &job, annotations, json!({"suspend": true})).await;
        match patched.and_then(|job| unless_undone(job, is_suspended)) {
            Err(RequestError::Conflict) => {}
            patched => {
                patched?;
                tracing::info!(lock = held.lock, job = held.name, "Job suspended, its hold ends");
                return Ok(Stopped::Suspended);
            }
        }
    }
    Err(RequestError::Conflict)
}

/// Starts the Job under this hold, with its token on the pod template.
async fn start(client: &Client, held: &JobHold, job: &Job) -> Result<(), RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    let mut job = job.clone();
    // API servers before Kubernetes 1.36 accept another template of a started Job only without its start time.
    if job.status.as_ref().is_some_and(|status| status.start_time.is_some()) {
        let body = json!({"metadata": {"resourceVersion": job.resource_version(), "uid": held.uid}, "status": {"startTime": null}});
        job = request(jobs.patch_status(&held.name, &PatchParams::default(), &Patch::Merge(body))).await?;
    }
    let template = json!({"metadata": {"annotations": {JOB_TOKEN_ANNOTATION: held.token.to_string()}}});
    // Replacement pods wait until the earlier pods have ended.
    let spec = json!({"suspend": false, "podReplacementPolicy": "Failed", "template": template});
    patch(&jobs, &job, json!({JOB_STOPPING_ANNOTATION: null}), spec).await?;
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
    fn held_by_job((code, answer): (u16, Value)) -> (Client, JobHold) {
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
        let (client, held) = held_by_job((200, json!({"metadata": {"name": "app"}, "spec": {"suspend": false}})));
        let stopped = ensure_stopped(&client, &held, &Job::default()).await;
        let Err(Error::Refused(refusal)) = stopped else { panic!("{stopped:?}") };
        assert!(refusal.to_string().contains("webhook or policy undid"), "{refusal}");
        let (client, held) = held_by_job((200, json!({"metadata": {"name": "app"}, "spec": {"suspend": true}})));
        assert!(ensure_stopped(&client, &held, &Job::default()).await.is_ok());
    }

    #[tokio::test]
    async fn a_refused_suspension_is_a_fault_with_the_job_and_the_policy() {
        let policy = "jobs.batch \"app\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: jobs are final";
        let (client, held) = held_by_job(fake_api::failure(403, "Forbidden", policy));
        let stopped = ensure_stopped(&client, &held, &Job::default()).await;
        let Err(Error::Refused(refusal)) = stopped else { panic!("{stopped:?}") };
        assert_eq!(*refusal, Refusal::JobNotSuspended { job: "ns/app".into(), cause: policy.into() });
        let marked = json!({"metadata": {"annotations": {JOB_STOPPING_ANNOTATION: "7"}}, "spec": {"suspend": true}});
        assert!(ensure_stopped(&client, &held, &serde_json::from_value(marked).unwrap()).await.is_ok());
    }
}
