//! The controller of RedisQuorums. Runs on the leader only, for one term; every act on a member carries the term's epoch, and
//! every write of status a resourceVersion, so that a leader which was frozen can do nothing any more.

mod admit;
mod apply;
mod auth;
mod change;
mod clients;
mod cluster;
mod copies;
mod decide;
mod decommission;
mod default;
mod error;
mod fencing;
mod leave;
mod level;
mod locks;
mod look;
mod memory;
mod observe;
mod owned;
mod podless;
mod publish;
mod roll;
mod room;
mod rotation;
mod settle;
mod tls;

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

use super::model::build::{OperatorPods, build};
use super::model::plan::{self, Plan};
use super::model::problems::Problem;
use super::session::{QuorumSession, Sessions};
use crate::api::RedisQuorum;
use crate::api::requests::RequestError;
use crate::runtime::cache::{Cache, Change, Kind};
use crate::runtime::context::Context;
use crate::runtime::leader::Term;
use crate::runtime::panics::caught;
use auth::Secrets;
use change::Changed;
use cluster::Cluster;
use error::{Error, LONGEST_BACKOFF, RESYNC};
use look::Sights;
use memory::{Applied, Memory, SECRETS_PERIOD};
use observe::Observer;
use owned::Owned;
use tls::Tls;

pub use default::{DefaultQuorumError, ensure_default_quorum};
pub use locks::HeldVotes;

/// After a conflict: another write, or an older state of ours, has reached the API server first.
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
    /// What is remembered of the quorum with this UID.
    fn memory(&self, uid: &str) -> Arc<Memory> {
        let mut memories = self.memories.lock();
        if let Some(known) = memories.get(uid) {
            return known.clone();
        }
        // A session ends with its object, and so does what is remembered of it.
        let sessions = self.sessions.all();
        memories.retain(|known, _| sessions.iter().any(|session| session.uid() == known));
        memories.entry(uid.to_owned()).or_default().clone()
    }
}

/// Runs until the term is over. What is under way then is dropped wherever it stands: every order of writes is safe against
/// a crash, and so against this.
pub async fn run(context: Context, sessions: Sessions, votes: HeldVotes, term: Term) {
    let (clock, lasts) = (context.clock.clone(), term.clone());
    let (owned, follow) = Owned::new(&context);
    let leader = Arc::new(Leader { context, sessions, term, owned, memories: Mutex::default(), votes });
    let work = async {
        tokio::select! {
            () = follow => {}
            () = level::run(leader.sessions.clone()) => {}
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

/// Every object that was made, changed or deleted.
fn touched<K: Kind>(cache: &Cache<K>) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static {
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

/// Reconciles one quorum of this installation: keeps its clock, then ends it or carries out its spec.
async fn handle(quorum: Arc<RedisQuorum>, leader: Arc<Leader>) -> Result<Action, Error> {
    let (context, term) = (&leader.context, &leader.term);
    if !context.replica.settings.serves(&quorum) {
        return Ok(Action::await_change());
    }
    if context.has_no_room(&quorum) && quorum.metadata.deletion_timestamp.is_none() {
        return room::refuse(context, &quorum).await;
    }
    let session = leader.sessions.get(&ObjectRef::from_obj(&*quorum));
    let Some(session) = session.filter(|session| quorum.uid().as_deref() == Some(session.uid())) else {
        // The session follows the same watch and will announce itself.
        return Ok(Action::requeue(FIRST_BACKOFF));
    };
    let (memory, cluster) = (leader.memory(session.uid()), Cluster::new(context, &session));
    let sights = Sights::new(context, &leader.sessions, &session, &leader.votes, &memory.away, term.epoch);
    session.learn(quorum);
    let quorum = session.quorum();
    let wake = match plan::validate(&quorum) {
        _ if quorum.metadata.deletion_timestamp.is_some() => {
            decommission::end(&sights, &cluster, term, &memory.closed, &memory.kept).await?
        }
        Ok(plan) => carry_out(&leader, &session, &cluster, sights, &memory, &plan).await?,
        Err(invalid) => {
            // Only an edit can mend it: say so, and wait for the edit.
            publish::refuse(&cluster, &quorum, &Problem::Invalid(invalid)).await?;
            return Ok(Action::await_change());
        }
    };
    memory.failures.store(0, Ordering::Relaxed);
    Ok(Action::requeue(wake))
}

/// Everything for a quorum that is to be; how long nothing has to be done unless something happens.
async fn carry_out(
    leader: &Leader,
    session: &QuorumSession,
    cluster: &Cluster<'_>,
    sights: Sights<'_>,
    memory: &Memory,
    plan: &Plan,
) -> Result<Duration, Error> {
    let (context, term) = (&leader.context, &leader.term);
    let namespace = context.namespaces.cluster_named(&plan.namespace);
    if namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
        // Whatever was made would be refused or deleted, and this quorum's own deletion is on its way.
        return Ok(LONGEST_BACKOFF);
    }
    cluster.hold_finalizer().await?;
    let auth = match auth::ensure(cluster, session, plan, &memory.applied, &memory.auth_missing_since).await? {
        Secrets::Known(auth) => auth,
        Secrets::Lost { obstacle, look_again } => {
            publish::refuse(cluster, &session.quorum(), &obstacle).await?;
            return Ok(look_again);
        }
    };
    let (auth, plan) = clients::grant(cluster, session, plan, auth, &memory.applied).await?;
    let observer = Observer::new(sights, context, &leader.owned, memory, &plan, &auth);
    let settings_due = publish::begin(cluster, &observer.observe(), &memory.lowering).await?;
    let tls = tls::ensure(cluster, session, &observer.observe(), &memory.tls).await?;
    memory.certificate.lock().clone_from(&tls.certificate);
    let span = tls.certificate.as_ref().and_then(|certificate| certificate.as_ref().ok()).map(|found| found.span);
    cluster.certificate_expires(span.map(|span| span.not_after));
    if change::keep_epoch(cluster, &observer.observe()).await? {
        // Nothing of this plan is true any more.
        return Ok(Duration::ZERO);
    }
    // Before the objects: a member is waited for by the second, and needs nothing of them.
    let members_due = settle::settle(&observer, cluster, term).await?;
    let applied = apply(leader, &observer, cluster, memory, &tls).await?;
    let mut dues = vec![applied.due];
    if tls.obstacle().is_none() {
        dues.extend(roll::roll(&observer, cluster).await?);
    }
    // Whom to trust must be written down before any member serves a certificate of theirs.
    if applied.config_kept {
        dues.extend(tls::reload(cluster, &observer.observe(), &tls).await);
    }
    let written = applied.config_kept;
    dues.extend(rotation::rotate(&observer, cluster, &memory.passwords, &memory.applied, written).await?);
    clients::open_new(&observer.observe()).await;
    match change::carry_out(&observer, cluster, &memory.change_failures).await? {
        Changed::Lists => return Ok(Duration::ZERO),
        Changed::Nothing { look_again } => dues.push(look_again),
    }
    dues.push(leave::settle(&observer, cluster, term, &memory.closed, &memory.kept).await?);
    dues.extend(podless::ask(&observer, cluster, &memory.podless).await.map(|due| due.since(cluster.now())));
    publish::conclude(cluster, &observer).await?;
    session.raise_floor_ahead().await?;
    dues.extend([members_due].into_iter().chain(settings_due).map(|due| due.since(cluster.now())));
    Ok(dues.into_iter().fold(RESYNC, Duration::min))
}

/// Everything that the quorum is made of.
async fn apply(
    leader: &Leader,
    observer: &Observer<'_>,
    cluster: &Cluster<'_>,
    memory: &Memory,
    tls: &Tls,
) -> Result<Applied, Error> {
    let (replica, pods) = (&leader.context.replica, &leader.context.pods);
    let labels = pods.named(&replica.namespace, &replica.pod_name).map(|pod| pod.labels().clone());
    let operator = OperatorPods::new(&replica.namespace, &labels.unwrap_or_default());
    let mut objects = build(observer.plan, observer.auth, &operator, &tls.transport);
    let without_certificate = tls.obstacle();
    if without_certificate.is_some() {
        // A new pod could not start, or not be spoken to.
        objects.stateful_sets.clear();
    }
    let secrets = (objects.config.clone(), objects.clients.clone());
    let (kept, transport) = (&memory.kept, &tls.transport);
    let mut applied = apply::keep_secrets(observer, cluster, kept, &memory.applied, secrets, transport).await?;
    let mut in_the_way: Vec<String> = applied.blocked_config.iter().cloned().collect();
    in_the_way.extend(apply::keep_objects(cluster, &leader.owned, kept, observer.plan, &objects).await?);
    applied.obstacle =
        (!in_the_way.is_empty()).then(|| Problem::InTheWay { objects: in_the_way.join("; ") }).or(without_certificate);
    if applied.obstacle.is_some() || !applied.blocked_clients.is_empty() {
        // What is in the way belongs to others, so nothing tells when it goes.
        applied.due = applied.due.min(SECRETS_PERIOD);
    }
    if let Some(remembered) = memory.applied.lock().as_mut() {
        remembered.obstacle.clone_from(&applied.obstacle);
    }
    Ok(applied)
}

fn on_error(quorum: Arc<RedisQuorum>, error: &Error, leader: Arc<Leader>) -> Action {
    if matches!(error, Error::Conflict) {
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
mod tests {
    use super::*;

    #[test]
    fn failures_are_retried_ever_more_slowly() {
        let waits: Vec<u128> = [1, 2, 3, 8, 9, 100, u32::MAX].map(|n| backoff(n).as_millis()).into();
        assert_eq!(waits, [200, 400, 800, 10_000, 10_000, 10_000, 10_000]);
    }
}
