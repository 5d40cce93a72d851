//! The Job that holds a lock: it is started after the status names it, and suspended before the status lets it go.
//!
//! Order of writes, as for the leader label: status, then the Job. At the end: the Job, then the status without its holder, then the key. Each
//! write carries the resourceVersion of the Job that it was decided on, and a hold ends with a write to its Job. So a start that a frozen leader
//! decided on under an earlier hold never lands.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::store::Store;
use crate::api::conditions::HeldReason;
use crate::api::requests::{RequestError, request};
use crate::api::{DistributedLock, JOB_STOPPING_ANNOTATION, JOB_TOKEN_ANNOTATION, LockHolder};
use crate::lock::model::events::LockEvent;
use crate::lock::model::job::{is_at_rest, is_finished, is_suspended, stopping_token, template_token};
use crate::lock::model::status::full_name;
use crate::runtime::cache::Cache;
use crate::runtime::context::Context;

/// So many times a Job is read again that another client changes at the same moment.
const ATTEMPTS: usize = 5;
/// Before the next attempt to start a Job that the API server refused to start.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// What became of a Job that is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It is suspended, and bears the mark of the hold that ends.
    Suspended,
    /// There is nothing to stop: it has finished, or does not exist any more.
    Ended,
    /// The API server does not let the operator change it.
    Refused,
}

/// Which Jobs are to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Whatever it does.
    Any,
    /// Only one that is still suspended, so that a late start does not land.
    ///
    /// What a Job does after it has said that it needs the lock no more is its own affair.
    Unstarted,
}

/// The hold of a Job, as the status names it.
struct Held {
    lock: String,
    namespace: String,
    name: String,
    uid: String,
    token: i64,
}

impl Held {
    fn of(lock: &DistributedLock) -> Option<Self> {
        let status = lock.status.as_ref()?;
        let holder = status.holder.as_ref()?;
        Some(Self {
            lock: full_name(lock),
            namespace: lock.namespace().unwrap_or_default(),
            name: holder.job_name.clone()?,
            uid: holder.job_uid.clone()?,
            token: status.fencing_token?,
        })
    }

    fn is(&self, job: &Job) -> bool {
        job.uid().as_deref() == Some(self.uid.as_str())
    }
}

/// The Jobs as the watch shows them, and the way to change them.
pub(super) struct Jobs {
    client: Client,
    jobs: Option<Cache<Job>>,
}

impl Jobs {
    /// Of this operator, which may look after none.
    pub(super) fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), jobs: context.jobs.clone() }
    }

    /// Starts the Job under the hold that the status names, or suspends it if that hold is to end.
    ///
    /// Nothing is written if the cache shows that it is so already.
    pub(super) async fn ensure(&self, lock: &DistributedLock) -> Result<(), RequestError> {
        let Some(held) = Held::of(lock) else { return self.ensure_none(lock).await };
        let Some(job) = self.cached(&held.namespace, &held.name).filter(|job| held.is(job)) else { return Ok(()) };
        if lock.status.as_ref().is_some_and(|status| status.stopping.is_some()) {
            let is_stopped = is_suspended(&job) && stopping_token(&job) == Some(held.token);
            return if is_stopped { Ok(()) } else { suspend(&self.client, &held, Stop::Any).await.map(drop) };
        }
        let is_new = template_token(&job) != Some(held.token) && stopping_token(&job) != Some(held.token);
        // Without the Job controller's word the API server may refuse another template. The watch shows when it comes.
        if is_new && is_at_rest(&job) && !is_finished(&job) { start(&self.client, &held, &job).await } else { Ok(()) }
    }

    /// A Job that was started under a hold that has ended is suspended, if no write has done so. This is for a start whose outcome nobody knew.
    pub(super) async fn ensure_none(&self, lock: &DistributedLock) -> Result<(), RequestError> {
        let Some(claim) = lock.spec.claim.as_ref() else { return Ok(()) };
        let (Some(name), None) = (claim.job_name.as_deref(), holder(lock)) else { return Ok(()) };
        let namespace = lock.namespace().unwrap_or_default();
        let Some(job) = self.cached(&namespace, name) else { return Ok(()) };
        // After a release the Job works on without the lock, at its own word.
        let past = lock.status.as_ref().and_then(|status| status.history.first());
        let past = past.filter(|past| past.reason != HeldReason::Released.as_str());
        let last = past.and_then(|past| past.fencing_token);
        let is_ours = last.is_some() && template_token(&job) == last && stopping_token(&job) != last;
        if !is_ours || is_suspended(&job) || is_finished(&job) {
            return Ok(());
        }
        let (name, uid, token) = (name.to_owned(), job.uid().unwrap_or_default(), last.unwrap_or_default());
        let held = Held { lock: full_name(lock), namespace, name, uid, token };
        suspend(&self.client, &held, Stop::Any).await.map(drop)
    }

    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<Job>> {
        self.jobs.as_ref()?.named(namespace, name)
    }
}

/// Tells people that the API server does not let the operator start the Job. The claim keeps the lock, and the operator tries again after what is
/// returned.
pub(super) fn told(
    store: &Store,
    lock: &Arc<DistributedLock>,
    started: Result<(), RequestError>,
) -> Result<Option<Duration>, RequestError> {
    match started {
        Ok(()) => Ok(None),
        Err(RequestError::Refused(error)) => {
            let why = match *error {
                kube::Error::Api(status) => status.message,
                error => error.to_string(),
            };
            store.event(lock, LockEvent::JobNotStarted { why });
            Ok(Some(AFTER_REFUSAL))
        }
        Err(error) => Err(error),
    }
}

fn holder(lock: &DistributedLock) -> Option<&LockHolder> {
    lock.status.as_ref()?.holder.as_ref()
}

/// Suspends the Job of the hold that the status names. `None`: the holder is no Job.
pub(super) async fn stop(
    client: &Client,
    lock: &DistributedLock,
    which: Stop,
) -> Result<Option<Stopped>, RequestError> {
    let Some(held) = Held::of(lock) else { return Ok(None) };
    suspend(client, &held, which).await.map(Some)
}

/// Reads the Job from the API server, not from a cache, and suspends it with the mark of this hold.
async fn suspend(client: &Client, held: &Held, which: Stop) -> Result<Stopped, RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    for _ in 0..ATTEMPTS {
        let job = match request(jobs.get_opt(&held.name)).await {
            Ok(Some(job)) if held.is(&job) && !is_finished(&job) => job,
            Ok(_) => return Ok(Stopped::Ended),
            Err(RequestError::Refused(error)) => return Ok(refused(held, &error)),
            Err(error) => return Err(error),
        };
        if which == Stop::Unstarted && !is_suspended(&job) {
            return Ok(Stopped::Ended);
        }
        if is_suspended(&job) && stopping_token(&job) == Some(held.token) {
            return Ok(Stopped::Suspended);
        }
        let annotations = json!({JOB_STOPPING_ANNOTATION: held.token.to_string()});
        match patch(&jobs, &job, annotations, json!({"suspend": true})).await {
            Ok(_) => {
                tracing::info!(lock = held.lock, job = held.name, "Job suspended, its hold ends");
                return Ok(Stopped::Suspended);
            }
            Err(RequestError::Conflict) => {}
            Err(RequestError::Gone) => return Ok(Stopped::Ended),
            Err(RequestError::Refused(error)) => return Ok(refused(held, &error)),
            Err(error) => return Err(error),
        }
    }
    Err(RequestError::Conflict)
}

/// The hold of a Job that cannot be changed ends as one without a Job does.
fn refused(held: &Held, error: &kube::Error) -> Stopped {
    tracing::warn!(lock = held.lock, job = held.name, %error, "the API server does not let the operator suspend the Job of this lock");
    Stopped::Refused
}

/// Starts the Job under this hold, with its token on the pod template.
async fn start(client: &Client, held: &Held, job: &Job) -> Result<(), RequestError> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &held.namespace);
    let mut version = job.metadata.clone();
    // Before Kubernetes 1.36 the template of a Job that has run may only be changed when its start time is taken off.
    if job.status.as_ref().is_some_and(|status| status.start_time.is_some()) {
        let body = json!({"metadata": {"resourceVersion": job.resource_version(), "uid": held.uid}, "status": {"startTime": null}});
        let params = PatchParams::default();
        version = request(jobs.patch_status(&held.name, &params, &Patch::Merge(body))).await?.metadata;
    }
    let template = json!({"metadata": {"annotations": {JOB_TOKEN_ANNOTATION: held.token.to_string()}}});
    // Pods that replace others wait until those have ended.
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
