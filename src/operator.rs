//! The operator process: its command line, its HTTP server, and the wiring of the rest.
//!
//! Every replica watches the cluster, keeps connections to all members and renews held locks. One of them, the leader, also
//! runs the controllers: it grants, seals, repairs, fences and writes status.

mod api_client;
pub mod args;
pub mod http;
pub mod reachability;
mod readiness;
pub mod telemetry;
pub mod uninstall;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::{Api, Client};
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::args::OperatorArgs;
use self::http::Health;
use self::reachability::ReplicaReachability;
use crate::api::DistributedLock;
use crate::lock::replica::hold_table::Holds;
use crate::lock::replica::renewal::Renewal;
use crate::quorum::session::Sessions;
use crate::redis_member::{Machine, Outward, network};
use crate::runtime::context::{Context, Replica};
use crate::runtime::fair_queue::FairQueue;
use crate::runtime::leader::{Candidacy, Term};
use crate::runtime::panics::essential;
use crate::time::SystemClock;
use crate::{job, lock, quorum};

/// How long a stopping replica renews locks while no other replica leads.
///
/// It does not release locks. A replica that starts beside it can need this time to read all of them.
const HANDOVER: Duration = Duration::from_secs(25);

/// Time between two attempts to create the default quorum.
const DEFAULT_QUORUM_RETRY: Duration = Duration::from_secs(2);

/// The network access of this process to members and holders.
///
/// The API server is refused, because it answers this process differently from every other client.
fn outward(args: &OperatorArgs, api_server: Option<&str>) -> Outward {
    let api_server = api_server.and_then(|host| network(host).ok());
    Outward::but([&args.refused_networks[..], &args.pod_ips].concat().into_iter().chain(api_server).collect())
}

/// Runs one replica until SIGTERM or SIGINT.
pub async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log, args.log_format)?;
    log_start(&args);
    let client = api_client::client().await?;
    // A separate client, because the renewal of the Lease must not wait for the writes of many locks.
    let lease_client = api_client::client().await?;
    let terminated = terminated()?;
    let listen = args.listen;
    let api_server = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let machine = Machine { clock: Arc::new(SystemClock), network: Arc::new(outward(&args, api_server.as_deref())) };
    let operator = Operator::new(args, client, lease_client, machine);
    let (health, leadership) = (operator.health.subscribe(), operator.candidacy.leadership());
    let serving = http::serve(listen, operator.context.clone(), health, leadership);
    tokio::select! {
        result = operator.work(terminated) => result,
        served = serving => served.context("failed to serve HTTP"),
    }
}

/// Logs the version and the arguments of this operator.
fn log_start(args: &OperatorArgs) {
    let OperatorArgs { scopes, jobs, lease_gate, lock_metrics, .. } = args;
    let list = |names: &[String]| names.join(",");
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        installation = scopes.installation,
        operator = format!("{}/{}", args.namespace, args.lease),
        replica = args.pod_name,
        watch_namespaces = list(&scopes.watch_namespaces),
        quorum_namespaces = list(&scopes.quorum_namespaces),
        leave_out_namespaces = list(&scopes.leave_out_namespaces),
        jobs,
        lease_gate,
        lock_metrics,
        "redlock-operator starts"
    );
}

/// A token that SIGTERM and SIGINT cancel, on Windows Ctrl-C.
fn terminated() -> anyhow::Result<CancellationToken> {
    #[cfg(unix)]
    let signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    #[cfg(windows)]
    let signals = [tokio::signal::windows::ctrl_c()?];
    let terminated = CancellationToken::new();
    for mut signal in signals {
        let token = terminated.clone();
        tokio::spawn(async move {
            signal.recv().await;
            token.cancel();
        });
    }
    Ok(terminated)
}

/// One replica. Tests can give it another machine, network and API server.
pub struct Operator {
    args: OperatorArgs,
    context: Context,
    follow_caches: BoxFuture<'static, ()>,
    candidacy: Candidacy,
    health: watch::Sender<Health>,
}

impl Operator {
    /// Creates a replica, which does nothing before [`Operator::work`].
    pub fn new(args: OperatorArgs, client: Client, lease_client: Client, machine: Machine) -> Self {
        let settings = args.settings().into();
        let replica = Replica { namespace: args.namespace.clone(), pod_name: args.pod_name.clone(), settings };
        let (context, follow_caches) = Context::new(client, replica, machine);
        let leases = Api::namespaced(context.server_time.observe(lease_client), &args.namespace);
        let candidacy = Candidacy::new(leases, &args.lease, &args.pod_name, context.clock.clone());
        let health = watch::Sender::new(Health { synced: false, heartbeat: context.clock.boottime() });
        Self { args, context, follow_caches: follow_caches.boxed(), candidacy, health }
    }

    /// Works until `terminated`, then hands over and ends.
    pub async fn work(self, terminated: CancellationToken) -> anyhow::Result<()> {
        let Self { args, context, follow_caches, candidacy, health } = self;
        let leadership = candidacy.leadership();
        let mut tasks = JoinSet::new();
        tasks.spawn(essential("caches", follow_caches));
        tasks.spawn(essential("heartbeat", heartbeat(context.clone(), health.clone())));
        tokio::select! {
            Some(ended) = tasks.join_next() => return Err(ended_early(ended)),
            () = context.synced() => {}
            () = terminated.cancelled() => return Ok(()),
        }
        let (locks, quorums) = (context.locks.all().len(), context.quorums.all().len());
        tracing::info!(locks, quorums, "the caches are filled");
        let stop = CancellationToken::new();
        let (sessions, holds) = keep(&context, &leadership, &stop, &mut tasks);
        let has_voted = readiness::default_quorum_has_voted(context.clone(), args.clone(), leadership.clone());
        let ready = has_voted.map(move |()| health.send_modify(|health| health.synced = true));
        let _ready = AbortOnDropHandle::new(tokio::spawn(ready));
        let leading = lead(context.clone(), sessions.clone(), holds.clone(), leadership.clone(), args.clone());
        let leading = tasks.spawn(essential("leader", leading));
        let around = ReplicaReachability { context: context.clone(), sessions };
        let resign = CancellationToken::new();
        let mut campaign = tokio::spawn(essential("lease", candidacy.run(resign.clone(), around)));

        let ended = tokio::select! {
            () = terminated.cancelled() => None,
            Some(ended) = tasks.join_next() => Some(ended_early(ended)),
            ended = &mut campaign => return Err(ended_early(ended)),
        };
        if ended.is_none() {
            tracing::info!("stopping: handing over, held locks are not released");
        }
        resign.cancel();
        campaign.await?;
        // A replica with a failed task ends immediately and starts again, so that its other tasks do not rely on the failed one.
        if let Some(ended) = ended {
            return Err(ended);
        }
        leading.abort();
        await_successor(&context.client, &args).await;
        stop.cancel();
        tasks.shutdown().await;
        Ok(())
    }
}

/// The error for an essential task that has ended.
fn ended_early(ended: Result<String, JoinError>) -> anyhow::Error {
    ended.map_or_else(anyhow::Error::from, anyhow::Error::msg)
}

/// Starts the tasks that renew locks, on every replica. The caches must be filled.
///
/// Returns the connections to all quorums, and the holds that this replica renews.
pub fn keep(
    context: &Context,
    leadership: &watch::Receiver<Option<Term>>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<String>,
) -> (Sessions, Arc<Holds>) {
    let (sessions, follow_caches) = Sessions::start(context.clone());
    tasks.spawn(essential("quorums", follow_caches));
    let holds = Arc::new(Holds::default());
    let renewal = Renewal {
        context: context.clone(),
        sessions: sessions.clone(),
        holds: holds.clone(),
        leadership: leadership.clone(),
        queue: FairQueue::new(lock::replica::renewal::SLOTS),
    };
    tasks.spawn(essential("renewal", renewal.run(stop.clone())));
    let adoption = lock::replica::adopt::follow(context.clone(), sessions.clone(), holds.clone());
    tasks.spawn(essential("published holds", adoption));
    tasks.spawn(essential("node watch", context.clone().watch_nodes()));
    (sessions, holds)
}

/// Runs the controllers whenever this replica leads.
async fn lead(
    context: Context,
    sessions: Sessions,
    holds: Arc<Holds>,
    mut leadership: watch::Receiver<Option<Term>>,
    args: OperatorArgs,
) {
    loop {
        let term = leadership.borrow_and_update().clone();
        if let Some(term) = term.filter(|term| !term.over.is_cancelled()) {
            // These futures are on the heap, because together they are too large for a thread's stack.
            let (renewed, clock) = (holds.clone(), context.clock.clone());
            let votes = Arc::new(move |lock: &DistributedLock| renewed.of(lock)?.votes_of(clock.boottime()));
            let quorums = quorum::controller::run(context.clone(), sessions.clone(), votes, term.clone()).boxed();
            let locks =
                lock::leader::controller::run(context.clone(), sessions.clone(), holds.clone(), term.clone()).boxed();
            let jobs = job::controller::run(context.clone(), term.clone()).boxed();
            let unreadable = unreadable::report(context.clone(), term.clone());
            tokio::join!(create_default_quorum(&context, &args, &term), quorums, locks, jobs, unreadable);
        } else if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Creates the chart's default quorum.
///
/// The operator creates it instead of the chart, so that `helm uninstall` does not delete the quorum and its locks.
async fn create_default_quorum(context: &Context, args: &OperatorArgs, term: &Term) {
    let Some(default) = readiness::created_default(context, args) else { return };
    let (client, installation) = (&context.client, &context.replica.settings.installation);
    let creation = async {
        while let Err(error) = quorum::ensure_default_quorum(client, &args.default_quorum, default, installation).await
        {
            tracing::warn!(error = &*error as &dyn std::error::Error, "default quorum not created yet");
            tokio::time::sleep(DEFAULT_QUORUM_RETRY).await;
        }
    };
    term.bound(&*context.clock, creation).await.unwrap_or(());
}

/// Updates the heartbeat of the main loop.
async fn heartbeat(context: Context, health: watch::Sender<Health>) {
    loop {
        health.send_modify(|health| health.heartbeat = context.clock.boottime());
        tokio::time::sleep(http::HEARTBEAT).await;
    }
}

/// Waits until another replica leads, for at most [`HANDOVER`]. This replica still renews locks.
async fn await_successor(client: &Client, args: &OperatorArgs) {
    let taken = async {
        // A Lease that does not change can name a leader that has died.
        let mut first = None;
        loop {
            let lease = readiness::lease_of_another(client, args).await;
            if lease.is_some() && first.is_some() && lease != first {
                return;
            }
            first = first.or(lease);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(HANDOVER, taken).await.is_err() {
        tracing::info!("no other replica leads; held locks stay in Redis until their validity ends");
    }
}

#[cfg(test)]
mod tests;
