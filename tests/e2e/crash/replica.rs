//! One replica of the operator, on threads of its own. It is put together as `operator::run` does it, but for the Lease: the test
//! says who leads.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Config,
    client::ClientBuilder,
    runtime::{reflector::ObjectRef, watcher},
};
use redlock_operator::{
    api::RedisQuorum,
    lock::{self, holds::Holds, renewal::Renewal},
    operator::{
        self,
        cache::Cache,
        context::{self, Context},
        leader::Term,
    },
    quorum::session::Sessions,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::poll;

const START_LIMIT: Duration = Duration::from_secs(20);

/// How a replica reaches the rest of the world.
pub(crate) struct Reach {
    pub(crate) config: Config,
    pub(crate) gate: Gate,
    /// Where it believes the members to be.
    pub(crate) place: fn(&mut Pod),
    pub(crate) quorum: ObjectRef<RedisQuorum>,
}

/// It ends, without a word, with its guard.
pub(crate) struct Replica {
    runtime: Option<Runtime>,
    terms: watch::Sender<Option<Term>>,
    holds: Arc<Holds>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.end_term();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Replica {
    /// Starts it, and waits until it could hold a lock.
    pub(crate) async fn start(name: &str, reach: Reach) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (terms, leadership) = watch::channel(None);
        let holds = Arc::<Holds>::default();
        let started = runtime.spawn(start(name.to_owned(), reach, holds.clone(), leadership));
        let replica = Self { runtime: Some(runtime), terms, holds };
        timeout(START_LIMIT, started).await.context("the replica does not start")???;
        Ok(replica)
    }

    /// It leads from now on.
    pub(crate) fn lead(&self) {
        self.terms.send_replace(Some(Term::new(1)));
    }

    /// It no longer leads, and has left word, like an operator that was told to stop.
    pub(crate) async fn hand_over(&self) {
        operator::publish_validities(&self.holds).await;
        self.end_term();
    }

    fn end_term(&self) {
        if let Some(term) = self.terms.send_replace(None) {
            term.over.cancel();
        }
    }
}

async fn start(
    name: String,
    reach: Reach,
    holds: Arc<Holds>,
    leadership: watch::Receiver<Option<Term>>,
) -> anyhow::Result<()> {
    let client = ClientBuilder::try_from(reach.config)?.with_layer(&reach.gate).build();
    let replica = context::Replica { namespace: "redlock-system".into(), pod_name: name };
    let (mut context, follow_caches) = Context::new(client.clone(), replica);
    let (pods, follow_pods) = Cache::new(Api::all(client), watcher::Config::default(), reach.place);
    context.pods = pods;
    tokio::spawn(follow_caches);
    tokio::spawn(follow_pods);
    ensure!(context.synced().await, "the caches ended before they were filled");
    let sessions = Sessions::start(context.clone());
    let renewal = Renewal {
        context: context.clone(),
        sessions: sessions.clone(),
        holds: holds.clone(),
        vitals: Arc::default(),
        leadership: leadership.clone(),
    };
    tokio::spawn(renewal.run(CancellationToken::new()));
    tokio::spawn(lock::adopt::follow(context.clone(), holds.clone()));
    let session = poll::until(START_LIMIT, "a session", || async { Ok(sessions.get(&reach.quorum)) }).await?;
    session.ready().await;
    tokio::spawn(lead(context, sessions, holds, leadership));
    Ok(())
}

async fn lead(context: Context, sessions: Sessions, holds: Arc<Holds>, mut leadership: watch::Receiver<Option<Term>>) {
    loop {
        let term = leadership.borrow_and_update().clone();
        if let Some(term) = term.filter(|term| !term.over.is_cancelled()) {
            lock::controller::run(context.clone(), sessions.clone(), holds.clone(), term).await;
        } else if leadership.changed().await.is_err() {
            return;
        }
    }
}
