//! One replica of the operator, on threads of its own.
//!
//! It keeps locks like every replica. The test sets its leadership, instead of the Lease.

use std::{io, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::{Config, client::ClientBuilder, runtime::reflector::ObjectRef};
use redlock_operator::{
    api::RedisQuorum,
    lock::{self, replica::hold_table::Holds},
    operator,
    quorum::{
        model::lists::Lists,
        session::{MemberLink, QuorumSession, Sessions},
    },
    redis_member::{Connect, Link, Machine, Stream, Tcp},
    redlock::BoxFuture,
    runtime::{
        context::{self, Context},
        leader::Term,
        panics,
    },
    time::SystemClock,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::poll;

const START_LIMIT: Duration = Duration::from_secs(20);

/// The transports of a replica.
pub(crate) struct Reach {
    pub(crate) config: Config,
    pub(crate) gate: Gate,
    /// The addresses of the members from the replica's view.
    pub(crate) place: fn(&str) -> String,
    pub(crate) quorum: ObjectRef<RedisQuorum>,
}

/// A running replica, which ends without a hand-over when it is dropped.
pub(crate) struct Replica {
    runtime: Option<Runtime>,
    terms: watch::Sender<Option<Term>>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.hand_over();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Replica {
    /// Starts it, and waits until it can hold a lock.
    pub(crate) async fn start(name: &str, reach: Reach) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (terms, leadership) = watch::channel(None);
        let started = runtime.spawn(start(name.to_owned(), reach, leadership));
        // The drop of `replica` stops the runtime, even if the start fails.
        let replica = Self { runtime: Some(runtime), terms };
        timeout(START_LIMIT, started).await.context("the replica does not start")???;
        Ok(replica)
    }

    /// Makes it the leader from now on.
    pub(crate) fn lead(&self) {
        self.terms.send_replace(Some(Term::new(1)));
    }

    /// Ends its leadership.
    pub(crate) fn hand_over(&self) {
        if let Some(term) = self.terms.send_replace(None) {
            term.over.cancel();
        }
    }
}

async fn start(name: String, reach: Reach, leadership: watch::Receiver<Option<Term>>) -> anyhow::Result<()> {
    let client = ClientBuilder::try_from(reach.config)?.with_layer(&reach.gate).build();
    let replica = context::Replica { namespace: "redlock-system".into(), pod_name: name, settings: Arc::default() };
    let machine = Machine { clock: Arc::new(SystemClock), network: Arc::new(Via(reach.place)) };
    let (context, follow_caches) = Context::new(client, replica, machine);
    let mut tasks = JoinSet::new();
    tasks.spawn(panics::essential("caches", follow_caches));
    context.synced().await;
    let (sessions, holds) = operator::keep(&context, &leadership, &CancellationToken::new(), &mut tasks);
    tasks.detach_all();
    let session = poll::until(START_LIMIT, "a session", || async { Ok(sessions.get(&reach.quorum)) }).await?;
    poll::until(START_LIMIT, "a majority of the members", || async { Ok(is_connected(&session).then_some(())) })
        .await?;
    tokio::spawn(lead(context, sessions, holds, leadership));
    Ok(())
}

/// Whether this replica has open connections to a majority of the members.
fn is_connected(session: &QuorumSession) -> bool {
    let (links, lists) = (session.links(), Lists::of(&session.quorum()));
    let is_open = |link: &&Arc<MemberLink>| {
        link.voter(lists.epoch).is_some_and(|voter| matches!(*voter.link().borrow(), Link::Open(_)))
    };
    links.iter().filter(is_open).count() >= lists.majority()
}

/// TCP connections to the addresses of [`Reach::place`].
struct Via(fn(&str) -> String);

impl Connect for Via {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        let place = self.0(address);
        Box::pin(async move { Tcp.connect(&place).await })
    }
}

async fn lead(context: Context, sessions: Sessions, holds: Arc<Holds>, mut leadership: watch::Receiver<Option<Term>>) {
    loop {
        let term = leadership.borrow_and_update().clone();
        if let Some(term) = term.filter(|term| !term.over.is_cancelled()) {
            lock::leader::controller::run(context.clone(), sessions.clone(), holds.clone(), term).await;
        } else if leadership.changed().await.is_err() {
            return;
        }
    }
}
