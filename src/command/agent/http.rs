//! The agent's HTTP: each request is looked up, answered from the desk, and that is all.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::holding::LockName;
use super::book::Word;
use super::desk::{Desk, now};
use super::orders::Orders;
use super::route::{Query, Route, is_loopback};
use super::say::{Said, of_no_route, of_refused, of_word};
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

pub(super) fn router(face: Face) -> Router {
    Router::new().fallback(answer).with_state(face)
}

async fn answer(State(face): State<Face>, request: Request) -> Response {
    if let Some(said) = refused(&face, &request) {
        return said.response();
    }
    let route = match Route::of(request.method(), request.uri().path()) {
        Ok(route) => route,
        Err(no) => return of_no_route(no).response(),
    };
    let query = match Query::of(request.uri().query()) {
        Ok(query) => query,
        Err(detail) => return Said::problem(StatusCode::BAD_REQUEST, "BadParameter", &detail).response(),
    };
    match route {
        Route::Name => Said::ok(name(&face.desk)).response(),
        Route::Watch => events(Leads { desk: face.desk, instance: query.instance, told: None }),
        Route::OpenApi => typed("application/json", Body::from(OPENAPI)),
        Route::Health => typed("text/plain; charset=utf-8", Body::from("ok\n")),
        Route::Leader => leader(&face, &query).await.response(),
        Route::Register => register(&face).response(),
        Route::Lock(lock) | Route::Renew(lock) => one(&face, &lock, &query).response(),
        Route::Acquire(lock) => face.orders.acquire(&lock, query).await.response(),
        Route::Release(lock) => release(&face, &lock, &query).response(),
    }
}

/// Requests that others make a program on this machine send.
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

fn register(face: &Face) -> Said {
    let id = format!("{:032x}", rand::random::<u128>());
    face.desk.register(id.clone(), face.orders.reads_first());
    Said { status: StatusCode::CREATED, body: json!({"instance": id, "lock": face.desk.elected}) }
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

async fn next(tell: &mut impl Tell, changes: &mut watch::Receiver<u64>) -> Option<String> {
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
