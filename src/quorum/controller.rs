//! The controller of RedisQuorums. Runs on the leader only, for one term; every act on a member carries the term's epoch, and
//! every write of status a resourceVersion, so that a leader which was frozen can do nothing any more.

mod admit;
mod apply;
mod auth;
mod change;
mod clients;
mod copies;
mod decommission;
mod default;
mod expose;
mod external;
mod installations;
mod leave;
mod level;
mod locks;
mod members;
mod owned;
mod publish;
mod roll;
mod room;
mod rotation;
mod timekeeper;
mod tls;
mod watches;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::{Mutex, MutexGuard};
use serde::de::DeserializeOwned;
use tokio::time::{interval, timeout};
use tokio_stream::wrappers::IntervalStream;

pub use default::{DefaultQuorumError, ensure_default_quorum, warn_of_other_defaults};

use super::{
    model::{
        effective::Lowering,
        invalid::Invalid,
        plan::{self, Plan},
        status::Obstacle,
    },
    session::{ActError, FloorError, QuorumSession, Sessions, Turn},
};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::problems::Problem;
use crate::{
    api::RedisQuorum,
    runtime::{
        cache::{Cache, Change},
        context::Context,
        leader::Term,
        panics::caught,
    },
    time::{Boottime, Monotonic},
};
use auth::Secrets;
use change::Changed;
use installations::Others;
use owned::{Owned, Settled};
use publish::Applied;
use publish::Publisher;

/// Between two looks at a quorum without news.
const RESYNC: Duration = Duration::from_secs(60);
/// For one request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// After a conflict: somebody else's write, or an older state of ours, has reached the API server first.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Why a reconciliation ended early. None of them shows a password, key or value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("request to the API server failed")]
    Api(#[source] Box<kube::Error>),
    #[error("the API server did not answer in time")]
    TimedOut,
    #[error("the object has changed in the meantime")]
    Conflict,
    #[error("the quorum was deleted")]
    Gone,
    #[error("handling the quorum panicked")]
    Panicked,
    #[error(transparent)]
    Member(#[from] ActError),
    #[error(transparent)]
    Floor(#[from] FloorError),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            other => Self::Api(Box::new(other)),
        }
    }
}

/// A request to the API server, with a deadline.
pub(crate) async fn request<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    Ok(timeout(REQUEST_TIMEOUT, call).await.map_err(|_| Error::TimedOut)??)
}

/// Deletes this very object, by its UID: one that has taken its place meanwhile is another one. Whether it was there; that it is
/// gone or replaced is as good.
async fn delete<K>(client: &Client, object: &K) -> Result<bool, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match request(api.delete(&object.name_any(), &params)).await {
        Ok(_) => Ok(true),
        Err(Error::Conflict) => Ok(false),
        Err(Error::Api(error)) if matches!(error.as_ref(), kube::Error::Api(status) if status.code == 404) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the leader remembers of one quorum during its term.
#[derive(Default)]
struct Memory {
    applied: Option<(Applied, Monotonic)>,
    /// The objects as they were when they were last known to be as they shall be.
    settled: Settled,
    /// When a process was confirmed closed for good, by run_id.
    closed: HashMap<String, Monotonic>,
    lowering: Option<Lowering>,
    /// Why a change of the members does not go on, as far as acts on members have failed.
    change_failures: Vec<String>,
    tls: Option<tls::Remembered>,
    rotation: rotation::Memory,
    /// When what is recorded of the members' clocks was moved last, or may have been.
    clock_moved: Option<Boottime>,
    /// Since when the auth Secret has been missing, with no copy here.
    auth_missing_since: Option<Monotonic>,
    /// Since when each member has been away, as far as this leader knows.
    away: BTreeMap<String, Monotonic>,
    failures: u32,
}

/// One term of leadership.
struct Leader {
    context: Context,
    sessions: Sessions,
    term: Term,
    owned: Owned,
    memories: Mutex<HashMap<String, Memory>>,
    others: Mutex<Others>,
}

/// One quorum in one reconciliation.
struct Task<'a> {
    leader: &'a Leader,
    session: Arc<QuorumSession>,
    api: Api<RedisQuorum>,
}

/// Runs until the term is over. What is under way then is dropped wherever it stands: every order of writes is safe against
/// a crash, and so against this.
pub async fn run(context: Context, sessions: Sessions, term: Term) {
    let (clock, lasts) = (context.clock.clone(), term.clone());
    let (owned, follow) = Owned::new(&context.client, &context.replica.settings.quorums);
    let leader =
        Arc::new(Leader { context, sessions, term, owned, memories: Mutex::default(), others: Mutex::default() });
    let work = async {
        tokio::select! {
            () = follow => {}
            () = level::run(leader.clone()) => {}
            () = control(leader) => {}
        }
    };
    lasts.bound(&*clock, work).await;
}

async fn control(leader: Arc<Leader>) {
    let quorums = leader.context.quorums.changes().filter_map(async |change| match change {
        Change::Applied(quorum) => Some(Ok(quorum.as_ref().clone())),
        Change::Deleted(_) | Change::Vanished(_) => None,
    });
    let owned = leader.owned.clone();
    Controller::for_stream(quorums, leader.context.quorums.store())
        .owns_stream(touched(&owned.stateful_sets))
        .owns_stream(touched(&owned.services))
        .owns_stream(touched(&owned.budgets))
        .owns_stream(touched(&owned.policies))
        .reconcile_on(leader.sessions.changed())
        .reconcile_on(timekeeper::due(leader.clone()))
        .reconcile_all_on(IntervalStream::new(interval(RESYNC)).map(drop))
        .run(reconcile, on_error, leader)
        .for_each(async |result| {
            if let Err(error) = result {
                tracing::debug!(error = &error as &dyn std::error::Error, "quorum not reconciled");
            }
        })
        .await;
}

/// Every object that was made, changed or deleted.
fn touched<K>(cache: &Cache<K>) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    cache.changes().map(|change| Ok(change.object().as_ref().clone()))
}

/// A panic while one quorum is handled harms only that quorum.
async fn reconcile(quorum: Arc<RedisQuorum>, leader: Arc<Leader>) -> Result<Action, Error> {
    match caught(handle(quorum, leader.clone())).await {
        Ok(handled) => handled,
        Err(_panic) => {
            leader.context.metrics.count(&leader.context.metrics.panics, "quorum");
            Err(Error::Panicked)
        }
    }
}

/// The driver: observe, validate, build, apply, decide and act, publish.
async fn handle(quorum: Arc<RedisQuorum>, leader: Arc<Leader>) -> Result<Action, Error> {
    if let Some(later) = leader.leave_to_others(&quorum).await? {
        return Ok(later);
    }
    if leader.context.has_no_room(&quorum) && quorum.metadata.deletion_timestamp.is_none() {
        return leader.say_no_room(&quorum).await;
    }
    let Some(task) = Task::new(&leader, &quorum) else {
        // The session follows the same watch and will announce itself.
        return Ok(Action::requeue(FIRST_BACKOFF));
    };
    task.session.learn(quorum.clone());
    match task.keep_time().await {
        Ok(()) => {}
        // What was read is old, and so is whatever would follow from it.
        Err(error @ (Error::Conflict | Error::Gone)) => return Err(error),
        Err(error) => {
            tracing::info!(error = &error as &dyn std::error::Error, "the members' clocks are not recorded yet")
        }
    }
    let wake = match plan::validate(&task.session.quorum()) {
        _ if task.session.quorum().metadata.deletion_timestamp.is_some() => task.end().await?,
        Ok(plan) => task.carry_out(&plan).await?,
        Err(invalid) => return task.refuse(&invalid).await,
    };
    leader.memory(task.session.uid(), |memory| memory.failures = 0);
    Ok(Action::requeue(wake))
}

impl<'a> Task<'a> {
    fn new(leader: &'a Leader, quorum: &RedisQuorum) -> Option<Self> {
        let session = leader.sessions.get(&ObjectRef::from_obj(quorum))?;
        let same = quorum.uid().as_deref() == Some(session.uid());
        let api = Api::namespaced(leader.context.client.clone(), &quorum.namespace()?);
        same.then_some(Self { leader, session, api })
    }

    /// Everything for a quorum that shall be; how long nothing has to be done unless something happens.
    async fn carry_out(&self, plan: &Plan) -> Result<Duration, Error> {
        if self.namespace_terminates(plan) {
            // Whatever was made would be refused or deleted, and this quorum's own deletion is on its way.
            return Ok(LONGEST_BACKOFF);
        }
        self.hold_finalizer().await?;
        let (auth, plan) = match self.ensure_auth(plan).await? {
            Secrets::Known(auth) => self.grant_clients(plan, auth).await?,
            Secrets::Lost { obstacle, look_again } => {
                publish::refuse(self, obstacle).await?;
                return Ok(look_again);
            }
        };
        let (plan, mut publisher) = (plan.as_ref(), Publisher::new(self, plan.as_ref()));
        let settings_due = publisher.begin().await?;
        let tls = self.ensure_tls(plan).await?;
        publisher.learn_tls(self.tls_report(plan, &tls));
        publisher.learn_loss(self.loss(plan, &auth));
        if let Some(applied) = self.applied() {
            publisher.learn(&applied, self.progress(plan));
            publisher.learn_rotation(self.rotation_progress(plan, &auth, applied.is_config_kept()));
        }
        publisher.learn_change(self.change_text(plan));
        if self.keep_epoch(plan, &publisher).await? {
            // Nothing of this plan is true any more.
            return Ok(Duration::ZERO);
        }
        // Before the objects: a member is waited for by the second, and needs nothing of them.
        let wake = self.settle_members(plan, &auth, &publisher).await?;
        let applied = self.apply(plan, &auth, &tls, &publisher).await?;
        publisher.learn(&applied, self.progress(plan));
        let mut look_again = RESYNC;
        if tls.obstacle().is_none() {
            look_again = self.roll(plan, &auth, &publisher).await?.unwrap_or(RESYNC);
        }
        // Whom to trust must be written down before anybody serves a certificate of theirs.
        let reload_again = if applied.is_config_kept() { self.reload_certificates(plan, &tls).await } else { None };
        let look_again = look_again.min(reload_again.unwrap_or(RESYNC));
        let rotate_again = self.rotate(plan, &auth, applied.is_config_kept()).await?;
        let look_again = look_again.min(rotate_again.unwrap_or(RESYNC));
        publisher.learn(&applied, self.progress(plan));
        publisher.learn_tls(self.tls_report(plan, &tls));
        publisher.learn_loss(self.loss(plan, &auth));
        publisher.learn_rotation(self.rotation_progress(plan, &auth, applied.is_config_kept()));
        self.open_new_clients(plan, &auth).await;
        let Changed::Nothing { look_again: change_due } = self.change_members(plan, &auth, &publisher).await? else {
            // Nothing of this plan is true any more.
            return Ok(Duration::ZERO);
        };
        publisher.learn_change(self.change_text(plan));
        let leaving_due = self.settle_leavers(plan, &publisher).await?;
        publisher.conclude().await?;
        self.session.raise_floor_ahead().await?;
        let wake = settings_due.map_or(wake, |due| wake.min(due));
        Ok([applied.due, look_again, change_due, leaving_due].into_iter().fold(wake.since(self.now()), Duration::min))
    }

    /// A specification that only an edit can mend: say so, and wait for the edit.
    async fn refuse(&self, invalid: &Invalid) -> Result<Action, Error> {
        let obstacle = Obstacle::of(&Problem::Invalid(invalid.clone()));
        publish::refuse(self, obstacle).await?;
        Ok(Action::await_change())
    }

    /// Publishes an Event about the quorum.
    async fn tell(&self, event: QuorumEvent) {
        tracing::info!(quorum = %self.session.reference(), event = event.reason(), %event, "told");
        let quorum = self.session.quorum();
        self.leader.context.event(quorum.as_ref(), event.kind(), event.reason(), event.to_string()).await;
    }

    fn namespace_terminates(&self, plan: &Plan) -> bool {
        let namespace = self.leader.context.namespaces.cluster_named(&plan.namespace);
        namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    fn now(&self) -> Monotonic {
        self.leader.context.clock.monotonic()
    }
}

impl Leader {
    fn memory<T>(&self, uid: &str, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories: MutexGuard<'_, _> = self.memories.lock();
        use_it(memories.entry(uid.to_owned()).or_default())
    }

    fn others(&self) -> MutexGuard<'_, Others> {
        self.others.lock()
    }

    /// Makes this term's epoch the one that opens and closes users of the process. Where a higher one is obeyed nothing can be done in
    /// this term: the Lease may have been deleted while clocks differed. So that is said, and the next term begins above it.
    async fn raise_epoch(&self, turn: &mut Turn<'_>) -> Result<(), Error> {
        let raised = turn.raise_epoch(self.term.epoch).await;
        if let Err(ActError::Outdated(higher)) = raised
            && self.term.outdated(higher)
        {
            tracing::warn!(epoch = self.term.epoch, higher, "a member obeys a later operator epoch");
        }
        Ok(raised?)
    }
}

fn on_error(quorum: Arc<RedisQuorum>, error: &Error, leader: Arc<Leader>) -> Action {
    if matches!(error, Error::Conflict) {
        return Action::requeue(AFTER_CONFLICT);
    }
    leader.context.metrics.count(&leader.context.metrics.reconcile_errors, "quorum");
    let uid = quorum.uid().unwrap_or_default();
    let failures = leader.memory(&uid, |memory| {
        memory.failures = memory.failures.saturating_add(1);
        memory.failures
    });
    tracing::warn!(quorum = %ObjectRef::from_obj(quorum.as_ref()), failures, error = error as &dyn std::error::Error, "quorum not reconciled");
    Action::requeue(backoff(failures))
}

fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_retried_ever_more_slowly() {
        let waits: Vec<u128> = [1, 2, 3, 8, 9, 100, u32::MAX].map(|n| backoff(n).as_millis()).into();
        assert_eq!(waits, [200, 400, 800, 10_000, 10_000, 10_000, 10_000]);
    }
}
