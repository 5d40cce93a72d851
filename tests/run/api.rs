//! An API server and an operator for one claim: as much of both as `redlock run` sees.

mod other_kinds;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header::DATE},
    response::Response,
};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};

/// The token that the operator grants.
pub(crate) const TOKEN: i64 = 1_795_284_168_033_127;
/// The first part of the lock's value.
pub(crate) const NONCE: &str = "0102030405060708090a";
pub(crate) const TTL: Duration = Duration::from_secs(8);

/// How the operator behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operator {
    /// It grants the claim and renews it.
    #[default]
    Grants,
    /// Another claim holds the lock.
    Queues,
    /// It does nothing.
    Silent,
}

#[derive(Debug, Default)]
struct World {
    operator: Operator,
    /// The error of the API server's clock in seconds.
    ahead: i64,
    claim: Option<Value>,
    /// Token of the next grant.
    token: i64,
    /// The server answers no request, and its watches send no events.
    is_away: bool,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    renews: bool,
    heartbeats: usize,
    released: bool,
    /// The reason of a request to step down.
    stepped_down: Option<String>,
    /// Requests to create a claim.
    creations: usize,
    /// The number of first creations that succeed but are answered with an error.
    unanswered: usize,
    /// Time between a creation and its answer.
    creation_delay: Duration,
    /// The kind that the user can neither list nor watch.
    forbidden: Option<&'static str>,
}

type Shared = Arc<Mutex<World>>;

pub(crate) struct ApiServer {
    world: Shared,
    port: u16,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    pub(crate) fn start(operator: Operator, ahead: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let world = World { operator, ahead, token: TOKEN, version: 1, renews: true, ..World::default() };
        let world = Arc::new(Mutex::new(world));
        let (end, ended) = oneshot::channel();
        let state = world.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let app = Router::new().fallback(answer_in_time).with_state(state.clone());
                tokio::select! {
                    served = axum::serve(listener, app) => served.unwrap(),
                    () = renew(state) => {}
                    _ = ended => {}
                }
            });
        });
        Self { world, port, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// This server in a kubeconfig.
    pub(crate) fn cluster(&self) -> Value {
        json!({"server": format!("http://127.0.0.1:{}", self.port)})
    }

    /// Writes a kubeconfig for this server, and returns its path.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        write_kubeconfig(folder.join("kubeconfig"), &self.cluster(), &json!({}), None)
    }

    pub(crate) fn claim(&self) -> Option<Value> {
        self.world.lock().unwrap().claim.clone()
    }

    pub(crate) fn heartbeats(&self) -> usize {
        self.world.lock().unwrap().heartbeats
    }

    pub(crate) fn was_released(&self) -> bool {
        self.world.lock().unwrap().released
    }

    /// The reason of the request to step down, if there was one.
    pub(crate) fn stepped_down(&self) -> Option<String> {
        self.world.lock().unwrap().stepped_down.clone()
    }

    /// Lets this number of first creations succeed with a lost answer.
    pub(crate) fn lose_answers(&self, creations: usize) {
        self.world.lock().unwrap().unanswered = creations;
    }

    /// Delays the answer to each later creation. The claim exists before.
    pub(crate) fn delay_creations(&self, delay: Duration) {
        self.world.lock().unwrap().creation_delay = delay;
    }

    /// Forbids to list and watch a kind, which is named as in paths.
    pub(crate) fn forbid(&self, kind: &'static str) {
        self.world.lock().unwrap().forbidden = Some(kind);
    }

    /// The number of requests to create a claim.
    pub(crate) fn creations(&self) -> usize {
        self.world.lock().unwrap().creations
    }

    /// Makes a silent operator grant the claim.
    pub(crate) fn grant(&self) {
        let mut world = self.world.lock().unwrap();
        world.operator = Operator::Grants;
        world.grant();
    }

    /// Stops or resumes the answers of the API server.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.world.lock().unwrap().is_away = is_away;
    }

    /// Publishes this pod as the leader of an election.
    pub(crate) fn elect(&self, pod: &str, pod_uid: &str, token: i64) {
        let mut world = self.world.lock().unwrap();
        let until = text(now() + TTL);
        let election = json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "reindex", "namespace": "shop", "uid": "u-lock"},
            "spec": {"ttl": "8s", "election": {"selector": {"matchLabels": {"app": "reindex"}}}},
            "status": {"holder": {"identity": pod, "podUID": pod_uid, "nonce": format!("{token:020x}"), "key": "shop/reindex"},
                "fencingToken": token, "validUntil": until, "conditions": [condition("Held", "True", "Held")]},
        });
        world.token = token;
        world.claim = Some(election);
        world.renews = true;
        world.change(|_| ());
    }

    /// Stops the publication of renewals.
    pub(crate) fn stop_renewing(&self) {
        self.world.lock().unwrap().renews = false;
    }

    /// Begins the end of the hold, like the operator.
    pub(crate) fn end_hold(&self) {
        let mut world = self.world.lock().unwrap();
        world.renews = false;
        world.change(|claim| {
            claim["status"]["ending"] = json!({"since": text(now()), "reason": "Broken", "message": "by alice"});
        });
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.end.take().map(|end| end.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Writes a kubeconfig, and returns its path.
pub(crate) fn write_kubeconfig(path: PathBuf, cluster: &Value, user: &Value, namespace: Option<&str>) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": namespace}}],
    });
    fs::write(&path, config.to_string()).unwrap();
    path
}

fn now() -> Timestamp {
    #[allow(clippy::disallowed_methods, reason = "the clock of the API server")]
    Timestamp::now()
}

fn text(at: Timestamp) -> String {
    format!("{at:.3}")
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let message = if reason == "Queued" { "another claim holds it" } else { "" };
    let at = "2026-01-01T00:00:00Z";
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at})
}

/// The body of an answer that refuses a request.
fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code})
}

impl World {
    /// Changes the claim like a write of the operator, and notifies the watches.
    fn change(&mut self, how: impl FnOnce(&mut Value)) {
        let Some(mut claim) = self.claim.take() else { return };
        how(&mut claim);
        self.version += 1;
        claim["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.notify("MODIFIED", &claim);
        self.claim = Some(claim);
    }

    fn notify(&mut self, what: &str, claim: &Value) {
        let event = Bytes::from(format!("{}\n", json!({"type": what, "object": claim})));
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }

    /// The body of a new watch.
    fn watched(&mut self) -> Body {
        let (watcher, events) = mpsc::unbounded_channel();
        // The watch repeats the objects of the list, which clients tolerate.
        if let Some(claim) = &self.claim {
            let _ = watcher.send(Bytes::from(format!("{}\n", json!({"type": "MODIFIED", "object": claim}))));
        }
        self.watchers.push(watcher);
        let events = futures::stream::unfold(events, async |mut events| {
            let event = events.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(event), events))
        });
        Body::from_stream(Box::pin(events))
    }

    /// Creates the claim, and replaces the answer by an error if the test requires it.
    fn create(&mut self, mut claim: Value) -> (StatusCode, Value) {
        self.creations += 1;
        let exists = self.claim.as_ref().is_some_and(|known| known["metadata"]["name"] == claim["metadata"]["name"]);
        if !exists {
            assert_eq!(claim["metadata"]["namespace"], "shop");
            claim["metadata"]["uid"] = json!("u-1");
            self.claim = Some(claim.clone());
            self.renews = true;
            self.grant();
        }
        match exists {
            _ if self.creations <= self.unanswered => (StatusCode::GATEWAY_TIMEOUT, failure(504, "Timeout")),
            true => (StatusCode::CONFLICT, failure(409, "AlreadyExists")),
            false => (StatusCode::CREATED, claim),
        }
    }

    fn grant(&mut self) {
        if self.operator == Operator::Silent {
            return;
        }
        let token = self.token;
        let grants = self.operator == Operator::Grants;
        let until = text(now() + TTL);
        self.change(|claim| {
            claim["status"] = if grants {
                json!({
                    "holder": {"identity": "test", "nonce": NONCE, "key": "shop/reindex"},
                    "fencingToken": token, "validUntil": until, "conditions": [condition("Held", "True", "Held")],
                })
            } else {
                json!({"queuePosition": 1, "conditions": [condition("Held", "False", "Queued")]})
            };
        });
    }

    fn one(&self) -> (StatusCode, Value) {
        let gone = (StatusCode::NOT_FOUND, failure(404, "NotFound"));
        self.claim.clone().map_or(gone, |claim| (StatusCode::OK, claim))
    }

    fn release(&mut self) {
        self.released = true;
        self.renews = false;
        self.token += 1;
        let conditions = [condition("Held", "False", "Released"), condition("Finished", "True", "Released")];
        self.change(|claim| claim["status"] = json!({"conditions": conditions}));
    }
}

/// Publishes a validity as often as the operator does.
async fn renew(world: Shared) {
    loop {
        sleep(TTL / 3).await;
        let mut world = world.lock().unwrap();
        if world.renews && world.operator == Operator::Grants {
            let until = text(now() + TTL);
            world.change(|claim| claim["status"]["validUntil"] = json!(until));
        }
    }
}

/// Answers a creation after its delay, and other requests at once.
async fn answer_in_time(State(world): State<Shared>, request: Request) -> Response {
    let is_creation = *request.method() == Method::POST && request.uri().path().contains("/distributedlocks");
    let response = answer(State(world.clone()), request).await;
    let delay = world.lock().unwrap().creation_delay;
    if is_creation {
        sleep(delay).await;
    }
    response
}

async fn answer(State(world): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let watches = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
    let is_lock = path.contains("/distributedlocks");
    while world.lock().unwrap().is_away {
        sleep(Duration::from_millis(20)).await;
    }
    let mut world = world.lock().unwrap();
    let object = |(code, object): (StatusCode, Value)| (code, Body::from(object.to_string()));
    let is_forbidden = parts.method == Method::GET && world.forbidden.is_some_and(|kind| path.ends_with(kind));
    let (code, body) = match parts.method {
        _ if is_forbidden => object((StatusCode::FORBIDDEN, failure(403, "Forbidden"))),
        Method::POST if is_lock => object(world.create(body)),
        Method::GET if is_lock && watches => (StatusCode::OK, world.watched()),
        Method::GET if is_lock && !path.ends_with("/distributedlocks") => object(world.one()),
        Method::GET if is_lock => {
            let items: Vec<_> = world.claim.iter().collect();
            let list = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList",
                "metadata": {"resourceVersion": world.version.to_string()}, "items": items});
            object((StatusCode::OK, list))
        }
        Method::PATCH if is_lock => {
            let token = &body["metadata"]["annotations"]["redlock-operator.io/release"];
            if *token == json!(world.token.to_string()) {
                world.release();
            }
            let reason = body["metadata"]["annotations"]["redlock-operator.io/step-down"].as_str();
            world.stepped_down = reason.map(str::to_owned).or(world.stepped_down.take());
            object((StatusCode::OK, world.claim.clone().unwrap_or_default()))
        }
        Method::DELETE if is_lock => {
            let claim = world.claim.take().unwrap_or_default();
            world.notify("DELETED", &claim);
            object((StatusCode::OK, claim))
        }
        Method::POST | Method::PATCH if path.contains("/leases") => {
            world.heartbeats += 1;
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}});
            object((StatusCode::OK, lease))
        }
        method => other_kinds::answer(&method, &path, watches),
    };
    let date = now() + jiff::SignedDuration::from_secs(world.ahead);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
    Response::builder().status(code).header(DATE, date).body(body).unwrap()
}
