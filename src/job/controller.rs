//! Creates the claims that Jobs request, and publishes Events about them on the Job. Runs on the leader only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Config, Controller};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;

use super::model::{JobEvent, Step, claim_name, decide};
use crate::api::DistributedLock;
use crate::api::requests::{self, RequestError, as_operator, request};
use crate::runtime::cache::{Cache, Change};
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::runtime::panics::caught;

/// Maximum number of Jobs that are handled at the same time.
const AT_ONCE: u16 = 8;
/// Pause after an error or a panic.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after the API server refused a claim, or if its name is taken. It is long, because a user has to change something.
const REFUSED: Duration = Duration::from_secs(30);

struct JobController {
    context: Context,
    term: Term,
    /// The last Event of each Job, by UID.
    last_events: Mutex<HashMap<String, JobEvent>>,
}

/// Runs until the term ends. Without a cache of Jobs it returns immediately.
pub async fn run(context: Context, term: Term) {
    let Some(jobs) = context.jobs.clone() else { return };
    let clock = context.clock.clone();
    let controller = Arc::new(JobController { context, term: term.clone(), last_events: Mutex::default() });
    let runtime = Controller::for_shared_stream(stream::pending(), jobs.store())
        .with_config(Config::default().concurrency(AT_ONCE))
        .reconcile_on(triggers(&controller, &jobs))
        .run(handle, |_job, _error, _controller| Action::requeue(RETRY), controller.clone());
    term.bound(&*clock, runtime.for_each(|_outcome| future::ready(()))).await;
}

/// The Jobs that changed, and the Jobs whose claim changed.
fn triggers(controller: &Arc<JobController>, jobs: &Cache<Job>) -> impl Stream<Item = ObjectRef<Job>> + Send + 'static {
    let claims = controller.context.locks.changes();
    let of_claims = claims.filter_map(|change| future::ready(job_of(change.object())));
    let controller = controller.clone();
    let of_jobs = jobs.changes().filter_map(move |change| {
        future::ready(match change {
            Change::Applied(job) => Some(ObjectRef::from_obj(&*job)),
            Change::Deleted(job) | Change::Vanished(job) => {
                controller.last_events.lock().remove(&job.uid().unwrap_or_default());
                None
            }
        })
    });
    stream::select(of_jobs.boxed(), of_claims.boxed())
}

/// The Job that a claim names.
fn job_of(lock: &DistributedLock) -> Option<ObjectRef<Job>> {
    let name = lock.spec.claim.as_ref()?.job_name.as_deref()?;
    Some(ObjectRef::new(name).within(&lock.namespace().unwrap_or_default()))
}

/// A panic while one Job is handled harms only that Job.
async fn handle(job: Arc<Job>, controller: Arc<JobController>) -> Result<Action, RequestError> {
    let handled = controller.term.bound(&*controller.context.clock, caught(reconcile(&controller, &job))).await;
    handled.map_or(Ok(Action::await_change()), |caught| caught.unwrap_or(Ok(Action::requeue(RETRY))))
}

async fn reconcile(controller: &JobController, job: &Arc<Job>) -> Result<Action, RequestError> {
    let namespace = job.namespace().unwrap_or_default();
    let claim = controller.context.locks.named(&namespace, &claim_name(job));
    match decide(job, claim.as_deref()) {
        Step::Create(claim) => create(controller, job, &claim).await,
        Step::Publish(event) => Ok(controller.publish(job, event).await),
        // If a user just started the Job manually, its version differs and it stays. The watch then triggers a new decision.
        Step::Delete => {
            if !requests::delete_version(&controller.context.client, &**job).await? {
                return Ok(Action::await_change());
            }
            let action = controller.publish(job, JobEvent::Deleted { claim: claim_name(job) }).await;
            // The watch can deliver the deletion before this Event is recorded.
            controller.last_events.lock().remove(&job.uid().unwrap_or_default());
            Ok(action)
        }
        Step::Nothing => Ok(Action::await_change()),
    }
}

/// The time at which a Job with this Event is handled again.
///
/// The lock that has the name of its claim possibly names no Job, so its deletion triggers nothing. The change after which the API server
/// accepts a refused claim triggers nothing either.
fn action_after(event: &JobEvent) -> Action {
    match event {
        JobEvent::NameTaken { .. } | JobEvent::ClaimRefused { .. } => Action::requeue(REFUSED),
        _ => Action::await_change(),
    }
}

async fn create(controller: &JobController, job: &Arc<Job>, claim: &DistributedLock) -> Result<Action, RequestError> {
    let api = Api::namespaced(controller.context.client.clone(), &job.namespace().unwrap_or_default());
    match request(api.create(&as_operator(), claim)).await {
        Ok(_) => Ok(Action::await_change()),
        // An earlier leader created the claim, and the watch delivers it. Or a ResourceQuota changed at the same moment, and there is no claim.
        Err(RequestError::Conflict) => Ok(Action::requeue(RETRY)),
        Err(error) => match error.refused().map(str::to_owned) {
            Some(why) => Ok(controller.publish(job, JobEvent::ClaimRefused { claim: claim.name_any(), why }).await),
            None => Err(error),
        },
    }
}

impl JobController {
    /// Publishes an Event about the Job, unless it equals the last Event of this leader.
    ///
    /// Returns when the Job is handled again.
    async fn publish(&self, job: &Arc<Job>, event: JobEvent) -> Action {
        let before = self.last_events.lock().insert(job.uid().unwrap_or_default(), event.clone());
        if before.as_ref() != Some(&event) {
            tracing::info!(job = %ObjectRef::from_obj(&**job), event = event.means().0, %event, "published an Event");
            self.context.event(&**job, event.means(), event.to_string(), None).await;
        }
        action_after(&event)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::JOB_LOCK_ANNOTATION;
    use crate::runtime::fake_api;

    /// kube runs each reconcile in a task of its own, which can continue after the driver has ended.
    #[tokio::test]
    async fn no_claim_is_created_after_the_term() {
        for (is_over, expected) in [(false, 1), (true, 0)] {
            let requests = Arc::new(Mutex::new(0));
            let counted = requests.clone();
            let context = fake_api::context(move |_request| {
                *counted.lock() += 1;
                fake_api::failure(409, "AlreadyExists", "")
            });
            let term = Term::new(1);
            if is_over {
                term.over.cancel();
            }
            let controller = Arc::new(JobController { context, term, last_events: Mutex::default() });
            let job = json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u", "annotations": {JOB_LOCK_ANNOTATION: "k"}},
                "spec": {"suspend": true, "template": {"metadata": {}, "spec": {"containers": []}}}});
            let handled = handle(Arc::new(serde_json::from_value(job).unwrap()), controller).await;
            // The API server also answers 409 if a ResourceQuota changed at the same moment.
            assert_eq!(handled.unwrap(), if is_over { Action::await_change() } else { Action::requeue(RETRY) });
            assert_eq!(*requests.lock(), expected, "requests, with is_over = {is_over}");
        }
    }

    #[test]
    fn a_job_whose_claim_name_is_taken_is_handled_again() {
        let claim = "reindex-28934-1a2b3c4d".to_owned();
        assert_eq!(action_after(&JobEvent::NameTaken { claim: claim.clone() }), Action::requeue(REFUSED));
        assert_eq!(action_after(&JobEvent::WaitTimeout { claim }), Action::await_change());
    }
}
