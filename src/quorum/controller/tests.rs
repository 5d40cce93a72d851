//! A quorum and its leader for unit tests: fixed caches, members that cannot be reached, and an API server with fixed answers.

use std::io;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::*;
use crate::api::test_util::parsed;
use crate::api::{DistributedLock, MEMBER_LABEL, QUORUM_FINALIZER};
use crate::quorum::model::auth::Auth;
use crate::quorum::session::QuorumSession;
use crate::redis_member::{Connect, Stream as Connection};
use crate::redlock::{BoxFuture, Votes};
use crate::runtime::fake_api;

/// The leader of the quorum `locks/main` with three members.
pub(super) struct World {
    context: Context,
    sessions: Sessions,
    pub(super) session: Arc<QuorumSession>,
    pub(super) owned: Owned,
    pub(super) memory: Memory,
    term: Term,
    votes: HeldVotes,
    plan: Plan,
    auth: Auth,
    /// The method, path and body of each request that is no GET, and the attempts to connect to members.
    writes: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// `answer` gets the method and the path of a request, and returns the code and the object.
    pub(super) fn new(
        quorum: RedisQuorum,
        pods: Vec<Pod>,
        answer: impl Fn(&str) -> (u16, Value) + Send + 'static,
    ) -> Self {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let recorded = writes.clone();
        let mut context = fake_api::context(move |request| {
            let line = format!("{} {}", request.method(), request.uri().path());
            if request.method() != "GET" {
                let body = request.body().try_clone().and_then(|body| body.collect_bytes().now_or_never());
                let body = body.and_then(Result::ok).unwrap_or_default();
                recorded.lock().push(format!("{line} {}", String::from_utf8_lossy(&body)));
            }
            answer(&line)
        });
        context.network = Arc::new(Unplugged(writes.clone()));
        context.pods = Cache::filled(pods);
        let (plan, auth) = (plan::validate(&quorum).unwrap(), Auth::random());
        let session = QuorumSession::start(&context, Arc::new(quorum), broadcast::channel(64).0).unwrap();
        session.set_auth(auth.clone());
        let (sessions, _follow) = Sessions::start(context.clone());
        let (owned, _follow) = Owned::new(&context);
        let (memory, term, votes) = (Memory::default(), Term::new(7), Arc::new(no_votes));
        Self { context, sessions, session, owned, memory, term, votes, plan, auth, writes }
    }

    /// The API server answers with the stored quorum, unless it denies a request with this code.
    pub(super) fn denying(
        quorum: RedisQuorum,
        pods: Vec<Pod>,
        code: impl Fn(&str) -> Option<u16> + Send + 'static,
    ) -> Self {
        let stored = serde_json::to_value(&quorum).unwrap();
        Self::new(quorum, pods, move |request| code(request).map_or_else(|| (200, stored.clone()), denial))
    }

    pub(super) fn cluster(&self) -> Cluster<'_> {
        Cluster::new(&self.context, &self.session)
    }

    pub(super) fn observer<'a>(&'a self, cluster: &'a Cluster<'a>) -> Observer<'a> {
        let Self { context, sessions, session, owned, memory, term, votes, plan, auth, .. } = self;
        let sources = Sources { context, sessions, session, cluster, votes, memory, term };
        Observer { sources, owned, plan, auth }
    }

    /// Waits until the connection to each member has failed.
    pub(super) async fn until_members_fail(&self) {
        for link in self.session.links().iter() {
            while link.state().failure.is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// The requests with this method so far.
    pub(super) fn requests(&self, method: &str) -> Vec<String> {
        self.writes.lock().iter().filter(|line| line.starts_with(method)).cloned().collect()
    }
}

/// A network without any peer. It records each attempt.
struct Unplugged(Arc<Mutex<Vec<String>>>);

impl Connect for Unplugged {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        self.0.lock().push(format!("CONNECT {address}"));
        Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })
    }
}

fn no_votes(_lock: &DistributedLock) -> Option<Votes> {
    None
}

/// The quorum with these members in its status.
pub(super) fn quorum(members: &[Value]) -> RedisQuorum {
    let voters = ["main-0", "main-1", "main-2"];
    let metadata = json!({"name": "main", "namespace": "locks", "uid": "uid", "resourceVersion": "1",
        "finalizers": [QUORUM_FINALIZER]});
    parsed(json!({"metadata": metadata, "spec": {"members": 3},
        "status": {"membershipEpoch": 1, "voters": voters, "members": members}}))
}

/// The pod of a member. Its container has this state.
pub(super) fn pod(member: &str, state: &Value) -> Pod {
    let metadata = json!({"name": format!("{member}-0"), "namespace": "locks", "uid": member,
        "labels": {MEMBER_LABEL: member}});
    let container = json!({"name": "redis", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": state});
    let status = json!({"podIP": "10.0.0.1", "containerStatuses": [container]});
    parsed(json!({"metadata": metadata, "status": status}))
}

/// The answer of an API server whose policy denies a request.
pub(super) fn denial(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "message": "denied by policy p", "code": code}))
}

#[test]
fn failures_are_retried_ever_more_slowly() {
    let waits: Vec<u128> = [1, 2, 3, 8, 9, 100, u32::MAX].map(|n| backoff(n).as_millis()).into();
    assert_eq!(waits, [200, 400, 800, 10_000, 10_000, 10_000, 10_000]);
}

#[tokio::test]
async fn a_refusal_before_the_first_step_is_published() {
    for refused in ["PATCH /apis/redlock-operator.io", "GET /api/v1/namespaces/locks/secrets/main-auth"] {
        let mut quorum = quorum(&[]);
        if refused.starts_with("PATCH") {
            quorum.metadata.finalizers = None;
        }
        let world = World::denying(quorum, Vec::new(), move |request| request.starts_with(refused).then_some(403));
        let cluster = world.cluster();
        let ended = carry_out(&world.owned, world.observer(&cluster).sources, world.plan.clone()).await;
        assert!(matches!(ended, Err(Error::Later(pause)) if pause == LONGEST_BACKOFF), "{ended:?}");
        let published = world.requests("PUT");
        assert!(published.len() == 1 && published[0].contains("denied by policy p"), "{published:?}");
    }
}
