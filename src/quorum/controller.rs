//! The controller of RedisQuorums, which runs on the leader only, for one term.
//!
//! Every change of a member carries the epoch of the term, and every write of a status carries a resourceVersion. A frozen leader
//! can therefore change nothing after its term.

mod admit;
mod apply;
mod auth;
mod certificates;
mod change;
mod clients;
mod cluster;
mod copies;
mod decide;
mod decommission;
mod default;
mod error;
mod fencing;
mod locks;
mod member_steps;
mod memory;
mod observe;
mod owned;
mod podless;
mod publish;
mod quota;
mod restart_turn;
mod rollout;
mod rotation;
mod snapshot;
mod token_levelling;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use parking_lot::Mutex;
use tokio::time::interval;
use tokio_stream::wrappers::IntervalStream;

use super::model::blocked::Blocked;
use super::model::plan::{self, Plan};
use super::model::problems::Problem;
use super::session::Sessions;
use crate::api::RedisQuorum;
use crate::api::requests::RequestError;
use crate::runtime::cache::{Cache, Change, Kind};
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::runtime::panics::caught;
use crate::time::Monotonic;
use cluster::Cluster;
use error::{Error, LONGEST_BACKOFF, RESYNC, Result};
use memory::Memory;
use observe::Observer;
use owned::Owned;
use snapshot::Sources;

pub use default::ensure_default_quorum;
pub use locks::HeldVotes;

/// The pause after a conflict: another write, or an older state of ours, reached the API server first.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);

/// One term of leadership.
struct Leader {
    context: Context,
    sessions: Sessions,
    term: Term,
    owned: Owned,
    memories: Mutex<HashMap<String, Arc<Memory>>>,
    votes: HeldVotes,
}

impl Leader {
    /// The memory of the quorum with this UID.
    fn memory(&self, uid: &str) -> Arc<Memory> {
        let mut memories = self.memories.lock();
        if let Some(memory) = memories.get(uid) {
            return memory.clone();
        }
        // A session ends with its object, so the memory of the quorum ends with it.
        let sessions = self.sessions.all();
        memories.retain(|uid, _| sessions.iter().any(|session| session.uid() == uid));
        memories.entry(uid.to_owned()).or_default().clone()
    }
}

/// Runs until the term ends.
///
/// The leader drops unfinished work at that moment. Every sequence of writes is safe against a crash, and so against this.
pub async fn run(context: Context, sessions: Sessions, votes: HeldVotes, term: Term) {
    let (clock, lasts) = (context.clock.clone(), term.clone());
    let (owned, follow) = Owned::new(&context);
    let leader = Arc::new(Leader { context, sessions, term, owned, memories: Mutex::default(), votes });
    let work = async {
        tokio::select! {
            () = follow => {}
            () = token_levelling::run(leader.sessions.clone()) => {}
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
        .reconcile_all_on(IntervalStream::new(interval(RESYNC)).map(drop))
        .run(reconcile, on_error, leader)
        .for_each(async |result| {
            if let Err(error) = result {
                tracing::debug!(error = &error as &dyn std::error::Error, "quorum not reconciled");
            }
        })
        .await;
}

/// The objects of each creation, change and deletion.
fn touched<K: Kind>(cache: &Cache<K>) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static {
    cache.changes().map(|change| Ok(change.object().as_ref().clone()))
}

/// Reconciles one quorum. A panic harms only that quorum.
async fn reconcile(quorum: Arc<RedisQuorum>, leader: Arc<Leader>) -> Result<Action> {
    match leader.term.bound(&*leader.context.clock, caught(handle(quorum, leader.clone()))).await {
        None => Ok(Action::await_change()),
        Some(Ok(handled)) => handled,
        Some(Err(_panic)) => {
            leader.context.metrics.count(&leader.context.metrics.panics, "quorum");
            Err(Error::Panicked)
        }
    }
}

/// Reconciles one quorum of this installation.
///
/// It ends a deleted quorum, and executes the spec of any other.
async fn handle(quorum: Arc<RedisQuorum>, leader: Arc<Leader>) -> Result<Action> {
    let (context, term) = (&leader.context, &leader.term);
    if !context.replica.settings.serves(&quorum) {
        return Ok(Action::await_change());
    }
    if context.has_no_room(&quorum) {
        return quota::handle(context, &quorum).await;
    }
    let session = leader.sessions.get(&ObjectRef::from_obj(&*quorum));
    let Some(session) = session.filter(|session| quorum.uid().as_deref() == Some(session.uid())) else {
        // The session follows the same watch and will send an announcement.
        return Ok(Action::requeue(FIRST_BACKOFF));
    };
    let (memory, cluster) = (leader.memory(session.uid()), Cluster::new(context, &session));
    let (sessions, votes) = (&leader.sessions, &leader.votes);
    let sources = Sources { context, sessions, session: &session, cluster: &cluster, votes, memory: &memory, term };
    session.update(quorum);
    let quorum = session.quorum();
    let pause = match plan::validate(&quorum) {
        _ if quorum.metadata.deletion_timestamp.is_some() => decommission::end(&sources).await?,
        Ok(plan) => match carry_out(&leader.owned, sources, plan).await {
            Err(Error::Later(pause)) => pause,
            outcome => outcome?,
        },
        Err(invalid) => {
            // Only an edit can repair it, so the status names the fault and the controller waits.
            publish::refuse(&cluster, &quorum, &Problem::Invalid(invalid)).await?;
            return Ok(Action::await_change());
        }
    };
    memory.failures.store(0, Ordering::Relaxed);
    Ok(Action::requeue(pause))
}

/// Executes the spec of a remaining quorum, and returns the pause until the next reconciliation.
async fn carry_out(owned: &Owned, sources: Sources<'_>, plan: Plan) -> Result<Duration> {
    let Sources { context, session, cluster, .. } = sources;
    let namespace = context.namespaces.cluster_named(&plan.namespace);
    if namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
        // The namespace is being deleted, so new objects would be refused or deleted. The deletion of this quorum follows.
        return Ok(LONGEST_BACKOFF);
    }
    unless_refused(&sources, ("RedisQuorum", &plan.name), cluster.set_finalizer(true).await).await?;
    let auth = auth::ensure(&sources, &plan).await;
    let auth = unless_refused(&sources, ("Secret", &plan::auth_name(&plan.name)), auth).await?;
    let (auth, plan) = clients::grant(&sources, plan, auth).await?;
    let observer = Observer { sources, owned, plan: &plan, auth: &auth };
    let due = steps(&observer).await;
    if !matches!(due, Err(Error::Request(RequestError::Conflict) | Error::Later(_))) {
        // The written records get their conditions even if a later step failed.
        publish::conclude(&observer).await?;
        session.raise_floor_ahead().await?;
    }
    // The time of an obstacle can pass during the steps. It stays until it is checked again.
    Ok(due?.since(cluster.now()).max(AFTER_CONFLICT))
}

/// Publishes a refusal of the API server that only a user can resolve, and ends this reconciliation.
///
/// No step is possible yet, so no other write of the status would name it.
async fn unless_refused<T>(sources: &Sources<'_>, (kind, name): (&str, &str), outcome: Result<T>) -> Result<T> {
    let Some(refusal) = outcome.as_ref().err().and_then(Error::refused) else { return outcome };
    let (kind, name, error) = (kind.to_owned(), name.to_owned(), refusal.to_owned());
    let objects = Blocked::Refused { kind, name, error }.to_string();
    tracing::warn!(quorum = %sources.session.reference(), objects, "quorum not reconciled");
    publish::refuse(sources.cluster, &sources.session.quorum(), &Problem::InTheWay { objects }).await?;
    Err(Error::Later(LONGEST_BACKOFF))
}

/// Takes all steps in their order, and returns when they must be taken again.
///
/// Each step observes the quorum after the changes of the step before.
async fn steps(observer: &Observer<'_>) -> Result<Monotonic> {
    let settings = publish::begin(observer).await?;
    let tls = certificates::ensure(observer).await?;
    change::keep_epoch(observer).await?;
    // The members come before the objects, because an admission needs none of them.
    let members = member_steps::take_all(observer).await?;
    let applied = apply::apply(observer, &tls).await?;
    let updates = rollout::update(observer, &tls, &applied).await?;
    let passwords = observer.sources.cluster.after(rotation::rotate(observer, applied.config_kept).await?);
    clients::correct_users(observer).await;
    let lists = change::carry_out(observer).await?;
    let leavers = decommission::remove_members(observer).await?;
    let dues = [settings, members, applied.due, updates, passwords, lists, leavers];
    Ok(dues.into_iter().fold(podless::read_events(observer).await, Monotonic::min))
}

fn on_error(quorum: Arc<RedisQuorum>, error: &Error, leader: Arc<Leader>) -> Action {
    if matches!(error, Error::Request(RequestError::Conflict)) {
        return Action::requeue(AFTER_CONFLICT);
    }
    leader.context.metrics.count(&leader.context.metrics.reconcile_errors, "quorum");
    let uid = quorum.uid().unwrap_or_default();
    let failures = leader.memory(&uid).failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    tracing::warn!(quorum = %ObjectRef::from_obj(quorum.as_ref()), failures, error = error as &dyn std::error::Error, "quorum not reconciled");
    Action::requeue(backoff(failures))
}

fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests;
