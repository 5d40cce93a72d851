//! The operator process: shared caches, leadership, and the wiring of everything else.
//!
//! Every replica watches the cluster, keeps connections to all members and renews held locks. One of them, the leader, also
//! runs the controllers: it grants, seals, repairs, fences and writes status.

pub mod api_time;
pub mod args;
pub mod cache;
pub mod context;
pub mod http;
pub mod leader;
pub mod metrics;
pub mod telemetry;
pub mod uninstall;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::Client;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{
    args::OperatorArgs,
    context::{Context, Replica},
    http::Health,
    leader::{Candidacy, Term},
};
use crate::{
    lock::{self, holds::Holds, renewal::Renewal},
    quorum::{self, session::Sessions},
    time::Clock,
};

/// Name of the Lease that the leader holds.
const LEASE: &str = "redlock-operator";
/// How long a leader that was told to stop tries to publish what it knows.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How long a replica that was told to stop goes on renewing while no other leads; locks are not released.
const HANDOVER: Duration = Duration::from_secs(10);

/// Runs one replica until SIGTERM or SIGINT.
pub async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log, args.log_format)?;
    let client = Client::try_default().await.context("failed to find the API server: in a pod, or with KUBECONFIG?")?;
    let replica = Replica { namespace: args.namespace.clone(), pod_name: args.pod_name.clone() };
    let (context, follow_caches) = Context::new(client, replica);
    // Connections of its own: renewing the Lease must not wait behind the writes of many locks.
    let lease_client = context.api_time.observe(Client::try_default().await?);
    let (candidacy, leadership) =
        Candidacy::new(lease_client, &args.namespace, LEASE, &args.pod_name, context.clock.clone());
    let (health, health_seen) = watch::channel(Health::default());
    let (resign, stop) = (CancellationToken::new(), CancellationToken::new());

    let mut tasks = JoinSet::new();
    tasks.spawn(follow_caches);
    let face = http::Face { health: health_seen, context: context.clone(), leadership: leadership.clone() };
    let serving = http::serve(args.listen, face, stop.clone());
    tasks.spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "cannot serve HTTP");
        }
    });
    let (filled, filled_seen) = watch::channel(false);
    tasks.spawn(heartbeat(context.clone(), health, filled_seen));

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        synced = context.synced() => anyhow::ensure!(synced, "the caches ended before they were filled"),
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    filled.send_replace(true);

    let sessions = Sessions::start(context.clone());
    let holds = Arc::new(Holds::default());
    let renewal = Renewal {
        context: context.clone(),
        sessions: sessions.clone(),
        holds: holds.clone(),
        vitals: Arc::default(),
        leadership: leadership.clone(),
    };
    tasks.spawn(renewal.run(stop.clone()));
    tasks.spawn(lock::adopt::follow(context.clone(), holds.clone()));
    let leading = tasks.spawn(lead(context.clone(), sessions.clone(), holds.clone(), leadership.clone(), args.clone()));
    let reaches = {
        let sessions = sessions.clone();
        move |quorum: &str| {
            sessions.all().iter().any(|session| session.reference().to_string() == quorum && session.is_ready())
        }
    };
    let campaign = tokio::spawn(candidacy.run(resign.clone(), reaches));

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: handing over, held locks are not released");
    if leadership.borrow().is_some() {
        publish_validities(&holds).await;
    }
    resign.cancel();
    campaign.await?;
    leading.abort();
    await_successor(&context.client, &args).await;
    stop.cancel();
    tasks.shutdown().await;
    Ok(())
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
        if let Some(term) = term {
            tokio::join!(
                create_default_quorum(&context, &args, &term),
                quorum::controller::run(context.clone(), sessions.clone(), term.clone()),
                lock::controller::run(context.clone(), sessions.clone(), holds.clone(), term.clone()),
            );
        } else if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// The chart's default quorum is created by the operator, so that `helm uninstall` cannot take it, and its locks, along.
async fn create_default_quorum(context: &Context, args: &OperatorArgs, term: &Term) {
    if args.default_quorum.is_empty() {
        return;
    }
    let retry = Duration::from_secs(2);
    while !term.over.is_cancelled() {
        let created = quorum::ensure_default_quorum(
            &context.client,
            &args.default_quorum,
            &args.default_quorum_name,
            &args.namespace,
        );
        match created.await {
            Ok(()) => return,
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "default quorum not created yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(retry) => {}
            () = term.over.cancelled() => return,
        }
    }
}

/// Turns the main loop's heartbeat, and says when the caches are filled.
async fn heartbeat(context: Context, health: watch::Sender<Health>, mut filled: watch::Receiver<bool>) {
    loop {
        let synced = *filled.borrow_and_update();
        health.send_replace(Health { synced, heartbeat: Some(context.clock.boottime()) });
        tokio::select! {
            Ok(()) = filled.changed() => {}
            () = tokio::time::sleep(http::HEARTBEAT) => {}
        }
    }
}

/// A successor continues only what it finds published, so every validity is written once more.
pub async fn publish_validities(holds: &Holds) {
    holds.announce_all();
    let written = async {
        while holds.is_announcing() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LAST_WORDS, written).await.is_err() {
        tracing::warn!("not all validities could be published before the end of this term");
    }
}

/// Keeps renewing until another replica leads, or for [`HANDOVER`].
async fn await_successor(client: &Client, args: &OperatorArgs) {
    let leases = kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), &args.namespace);
    let taken = async {
        loop {
            if let Ok(lease) = leases.get(LEASE).await
                && lease.spec.and_then(|spec| spec.holder_identity).is_some_and(|holder| holder != args.pod_name)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    if tokio::time::timeout(HANDOVER, taken).await.is_err() {
        tracing::info!("no other replica leads; held locks stay in Redis until their validity ends");
    }
}
