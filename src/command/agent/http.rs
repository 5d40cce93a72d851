//! The agent's HTTP: each request is looked up, answered from the desk, and that is all.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::super::holding::LockName;
use super::book::Word;
use super::desk::{Desk, now};
use super::orders::Orders;
use super::route::{Query, is_loopback};
use super::say::{Said, no_lock, no_method, no_path, of_refused, of_word};
use crate::time::{Boottime, Clock, SystemClock};

/// The description of all endpoints.
const OPENAPI: &str = include_str!("openapi.json");
/// What every change asks for, so that no page in a browser makes one.
const HEADER: &str = "x-redlock";
/// An event comes at least so often. A client that hears nothing for longer than its validity has lost.
const REPEAT: Duration = Duration::from_secs(2);

/// What requests are answered from.
#[derive(Clone)]
pub(super) struct Face {
    pub(super) desk: Arc<Desk>,
    pub(super) orders: Arc<Orders>,
    /// Over TCP. A socket file is no host.
    pub(super) checks_host: bool,
}

/// All endpoints, as /openapi.json has them. HEAD and `Allow` are the router's.
pub(super) fn router(face: Face) -> Router {
    let one_lock = |face: State<Face>, lock: Lock, query: Query| async move { one(&face, &lock.0, &query) };
    Router::new()
        .route("/", get(|face: State<Face>| async move { Said::ok(name(&face.desk)) }))
        .route("/healthz", get(|| async { typed("text/plain; charset=utf-8", Body::from("ok\n")) }))
        .route("/openapi.json", get(|| async { typed("application/json", Body::from(OPENAPI)) }))
        .route("/leader", get(|face: State<Face>, query: Query| async move { leader(&face, &query).await }))
        .route("/watch", get(|face: State<Face>, query: Query| async move { watch(&face, query) }))
        .route("/register", post(|face: State<Face>, query: Query| async move { register(&face, &query) }))
        .route("/unregister", post(|face: State<Face>, query: Query| async move { unregister(&face, &query) }))
        .route("/locks/{lock}", get(one_lock))
        .route("/locks/{lock}/renew", post(one_lock))
        .route("/locks/{lock}/acquire", post(acquire))
        .route(
            "/locks/{lock}/release",
            post(|face: State<Face>, lock: Lock, query: Query| async move { release(&face, &lock.0, &query) }),
        )
        .fallback(|| async { no_path() })
        .method_not_allowed_fallback(|| async { no_method() })
        .layer(from_fn_with_state(face.clone(), guarded))
        .with_state(face)
}

/// The lock that a path names.
struct Lock(LockName);

impl FromRequestParts<Face> for Lock {
    type Rejection = Said;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Said> {
        let named = Path::<String>::from_request_parts(parts, face).await.ok();
        named.and_then(|Path(lock)| lock.parse().ok()).map(Self).ok_or_else(no_lock)
    }
}

impl FromRequestParts<Face> for Query {
    type Rejection = Said;

    async fn from_request_parts(parts: &mut Parts, _: &Face) -> Result<Self, Said> {
        Self::of(parts.uri.query()).map_err(|detail| Said::problem(StatusCode::BAD_REQUEST, "BadParameter", &detail))
    }
}

impl IntoResponse for Said {
    fn into_response(self) -> Response {
        self.response()
    }
}

async fn acquire(face: State<Face>, lock: Lock, query: Query) -> Said {
    face.orders.acquire(&lock.0, query).await
}

fn watch(face: &Face, query: Query) -> Response {
    events(Leads { desk: Arc::clone(&face.desk), instance: query.instance, told: None })
}

/// Answers no request that others make a program on this machine send.
async fn guarded(State(face): State<Face>, request: Request, next: Next) -> Response {
    match refused(&face, &request) {
        Some(said) => said.response(),
        None => next.run(request).await,
    }
}

fn refused(face: &Face, request: &Request) -> Option<Said> {
    let text = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if face.checks_host && !is_loopback(text(HOST.as_str())) {
        let detail = "The agent answers requests to localhost, 127.0.0.1 and [::1] only.";
        return Some(Said::problem(StatusCode::MISDIRECTED_REQUEST, "NotLoopback", detail));
    }
    if *request.method() == Method::POST && text(HEADER).is_none() {
        let detail = "A POST needs the header X-Redlock: 1.";
        return Some(Said::problem(StatusCode::FORBIDDEN, "NoHeader", detail));
    }
    None
}

fn typed(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// As leader-elector and its successors say it: the name is empty unless a holder certainly leads.
fn name(desk: &Desk) -> Value {
    let name = desk.name();
    let at = jiff::Timestamp::from_millisecond(SystemClock.wall().0).unwrap_or_default();
    json!({"name": name.unwrap_or_default(), "last_update": format!("{at:.3}")})
}

fn register(face: &Face, query: &Query) -> Said {
    let id = format!("{:032x}", rand::random::<u128>());
    if !face.desk.register(id.clone(), face.orders.reads_first(), query.if_none) {
        let detail = "Another instance is served. It ends by POST /unregister, or when it does not ask any more.";
        return Said::problem(StatusCode::CONFLICT, "Served", detail);
    }
    Said { status: StatusCode::CREATED, body: json!({"instance": id, "lock": face.desk.elected}) }
}

/// The instance has ended, and gives back all that it has.
fn unregister(face: &Face, query: &Query) -> Said {
    match face.desk.unregister(query.instance.as_deref()) {
        Ok(()) => Said::ok(json!({"unregistered": true})),
        Err(who) => of_refused(super::desk::Refused::NotServed(who)),
    }
}

/// With `wait` it answers as soon as the instance leads.
async fn leader(face: &Face, query: &Query) -> Said {
    let desk = &face.desk;
    let until = now() + query.wait.unwrap_or_default();
    let mut changes = desk.changes();
    loop {
        let said = word(desk, &desk.elected, query).unwrap_or_else(not_cared_for);
        let is_final = said.body["reason"] == "NotRegistered" || said.body["reason"] == "NotServed";
        if said.status.is_success() || is_final || until <= now() || desk.is_stopping() {
            return said;
        }
        let left = until.since(now());
        let _ = tokio::time::timeout(left, desk.pause(&desk.elected, &mut changes)).await;
    }
}

fn word(desk: &Desk, lock: &str, query: &Query) -> Option<Said> {
    let (word, _) = desk.word(lock, query.instance.as_deref())?;
    Some(of_word(lock, word, now()))
}

fn not_cared_for() -> Said {
    let detail = "The agent does not care for this lock. POST /locks/<lock>/acquire takes it.";
    Said::problem(StatusCode::NOT_FOUND, "NotAcquired", detail)
}

fn one(face: &Face, lock: &LockName, query: &Query) -> Said {
    let said = word(&face.desk, &lock.to_string(), query).unwrap_or_else(not_cared_for);
    match query.token {
        Some(token) if said.status.is_success() && said.body["fencingToken"] != token => other_token(token),
        _ => said,
    }
}

fn other_token(token: i64) -> Said {
    let detail = format!("This instance does not hold the lock with token {token}: it was released or lost.");
    Said::problem(StatusCode::CONFLICT, "OtherToken", &detail)
}

/// The instance says that it has stopped.
fn release(face: &Face, lock: &LockName, query: &Query) -> Said {
    let Some(token) = query.token else {
        return Said::problem(
            StatusCode::BAD_REQUEST,
            "NoToken",
            "Give the fencing token of the hold: ?token=<token>.",
        );
    };
    match face.desk.gives_back(&lock.to_string(), query.instance.as_deref(), token) {
        Err(who) => of_refused(super::desk::Refused::NotServed(who)),
        Ok(false) => other_token(token),
        Ok(true) => Said::ok(json!({"lock": lock.to_string(), "fencingToken": token, "released": true})),
    }
}

/// What a stream of events tells.
trait Tell: Send + 'static {
    fn desk(&self) -> &Arc<Desk>;
    /// The event now, and what makes it another one.
    fn event(&mut self) -> (String, String);
    fn told(&mut self) -> &mut Option<(String, Boottime)>;
}

/// Whether one instance leads.
struct Leads {
    desk: Arc<Desk>,
    instance: Option<String>,
    told: Option<(String, Boottime)>,
}

impl Tell for Leads {
    fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    fn event(&mut self) -> (String, String) {
        let lock = &self.desk.elected;
        let Some((word, sequence)) = self.desk.word(lock, self.instance.as_deref()) else {
            return (String::new(), String::new());
        };
        let kind = match word {
            Word::Leads { .. } => "leader",
            Word::DoesNot { .. } => "follower",
            Word::Unknown { .. } => "unknown",
        };
        let said = of_word(lock, word, now());
        (format!("event: {kind}\nid: {sequence}\ndata: {}\n\n", said.body), format!("{sequence} {kind}"))
    }

    fn told(&mut self) -> &mut Option<(String, Boottime)> {
        &mut self.told
    }
}

/// Server-sent events: one when something is different, and one now and then.
fn events(tell: impl Tell) -> Response {
    let changes = tell.desk().changes();
    let events = stream::unfold((tell, changes), |(mut tell, mut changes)| async move {
        let event = next(&mut tell, &mut changes).await?;
        Some((Ok::<_, Infallible>(event), (tell, changes)))
    });
    typed("text/event-stream", Body::from_stream(Box::pin(events)))
}

async fn next(tell: &mut impl Tell, changes: &mut Receiver<u64>) -> Option<String> {
    let desk = Arc::clone(tell.desk());
    while !desk.is_stopping() {
        let (event, mark) = tell.event();
        let told = tell.told();
        let is_due = told.as_ref().is_none_or(|(last, at)| *last != mark || now().since(*at) >= REPEAT);
        if is_due {
            let is_first = told.is_none();
            *told = Some((mark, now()));
            return Some(if is_first { format!("retry: 1000\n{event}") } else { event });
        }
        desk.pause(&desk.elected, changes).await;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tower::ServiceExt as _;

    use super::*;
    use crate::command::agent::tests::{face, template};

    async fn asked(method: &str, path: &str) -> Response {
        let request = Request::builder().method(method).uri(path).header("host", "localhost").header("x-redlock", "1");
        router(face(template())).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    async fn reason(method: &str, path: &str) -> (u16, String) {
        let response = asked(method, path).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        (status, body["reason"].as_str().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn a_slash_of_a_lock_is_escaped_in_paths() {
        for path in ["/locks/shop%2Fjobs%2facquire", "/locks/shop%2Fa"] {
            assert_eq!(reason("GET", path).await, (404, "NotAcquired".into()), "{path}");
        }
        for path in ["/locks/shop%2", "/locks/shop%zz", "/locks/%2Fa", "/locks/%ff"] {
            assert_eq!(reason("GET", path).await, (400, "BadLock".into()), "{path}");
        }
        for path in ["/nothing", "/locks/shop/jobs/acquire", "/locks", "//leader", "/leader/"] {
            assert_eq!(reason("GET", path).await, (404, "NotFound".into()), "{path}");
        }
        assert_eq!(reason("GET", "/leader?tll=2s").await, (400, "BadParameter".into()));
    }

    #[tokio::test]
    async fn head_is_answered_and_other_methods_name_those_that_are() {
        let head = asked("HEAD", "/healthz").await;
        assert_eq!(head.status(), 200);
        assert!(axum::body::to_bytes(head.into_body(), 16).await.unwrap().is_empty());
        for (method, path, allowed) in [("POST", "/healthz", "GET,HEAD"), ("GET", "/register", "POST")] {
            let refused = asked(method, path).await;
            assert_eq!(
                (refused.status().as_u16(), refused.headers()["allow"].to_str().unwrap()),
                (405, allowed),
                "{path}"
            );
            assert_eq!(refused.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }

    #[tokio::test]
    async fn the_description_has_exactly_these_endpoints() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let source = include_str!("http.rs");
        let routes = source.split("\n        .route(").skip(1).map(|rest| {
            let path = rest.split('"').nth(1).unwrap();
            let method = if rest.split_once("get(").is_some_and(|(before, _)| !before.contains("post(")) {
                "get"
            } else {
                "post"
            };
            (method, path)
        });
        let paths = described["paths"].as_object().unwrap();
        let methods = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.as_str(), path.as_str()))
        });
        let described_ones: BTreeSet<_> = methods.collect();
        assert_eq!(described_ones, routes.collect());
        for (method, path) in described_ones {
            let status = asked(&method.to_uppercase(), &path.replace("{lock}", "shop%2Fa")).await.status().as_u16();
            let responses = described["paths"][path][method]["responses"].as_object().unwrap();
            assert!(responses.contains_key(&status.to_string()), "{method} {path}: {status}");
            let is_read = method == "get";
            for needed in ["400", "403", "421"] {
                assert!(is_read && needed == "403" || responses.contains_key(needed), "{method} {path}: {needed}");
            }
        }
    }
}
