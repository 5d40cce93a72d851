//! The agent's HTTP server. Each handler sends a query to the task, and makes a response of the task's answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::stream;
use serde_json::json;

use super::leadership::{Answer, Refusal};
use super::request::{Query, is_loopback};
use super::response::{Reply, no_lock, no_method, no_path, of_answer, typed};
use super::task::{Agent, now};
use crate::hold::{LockArgs, LockName, expected_source};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// The description of all endpoints.
const OPENAPI: &str = include_str!("openapi.json");
/// The header that every POST needs, so that a page in a browser cannot send one.
const HEADER: &str = "x-redlock";
/// Maximum time between two events.
///
/// A client that receives no event until the end of its validity does not lead any longer.
const REPEAT: Duration = Duration::from_secs(2);
/// Extra time after the wait of an acquisition, for the operator's reason why the lock is not free.
const MARGIN: Duration = Duration::from_secs(15);

/// The state of the handlers.
#[derive(Clone)]
pub(super) struct HttpState {
    pub(super) agent: Agent,
    /// The options of the agent, with the lock of /leader.
    pub(super) options: Arc<LockArgs>,
    /// Requests over TCP must name this machine as their host. A socket file has no host.
    pub(super) checks_host: bool,
}

type Result<T = Reply> = std::result::Result<T, Refusal>;

/// All endpoints of /openapi.json. The router adds HEAD and the header `Allow`.
pub(super) fn router(http: HttpState) -> Router {
    Router::new()
        .route("/", get(name))
        .route("/healthz", get(|| async { typed("text/plain; charset=utf-8", "ok\n") }))
        .route("/openapi.json", get(|| async { typed("application/json", OPENAPI) }))
        .route("/leader", get(leader))
        .route("/watch", get(watch))
        .route("/register", post(register))
        .route("/unregister", post(unregister))
        .route("/locks/{lock}", get(one_lock))
        .route("/locks/{lock}/renew", post(one_lock))
        .route("/locks/{lock}/acquire", post(acquire))
        .route("/locks/{lock}/release", post(release))
        .fallback(|| async { no_path() })
        .method_not_allowed_fallback(|| async { no_method() })
        .layer(from_fn_with_state(http.clone(), guarded))
        .with_state(http)
}

/// The lock in a path.
struct Lock(LockName);

impl FromRequestParts<HttpState> for Lock {
    type Rejection = Reply;

    async fn from_request_parts(parts: &mut Parts, http: &HttpState) -> std::result::Result<Self, Reply> {
        let named = Path::<String>::from_request_parts(parts, http).await.ok();
        named.and_then(|Path(lock)| lock.parse().ok()).map(Self).ok_or_else(no_lock)
    }
}

impl FromRequestParts<HttpState> for Query {
    type Rejection = Reply;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> std::result::Result<Self, Reply> {
        Self::of(parts.uri.query()).map_err(|detail| Reply::problem(StatusCode::BAD_REQUEST, "BadParameter", &detail))
    }
}

/// Refuses a request that a page in a browser or a remote program possibly caused.
async fn guarded(State(http): State<HttpState>, request: Request, next: Next) -> Response {
    match refused(&http, &request) {
        Some(reply) => reply.into_response(),
        None => next.run(request).await,
    }
}

fn refused(http: &HttpState, request: &Request) -> Option<Reply> {
    let text = |name| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if http.checks_host && !is_loopback(text(HOST.as_str())) {
        let detail = "The agent answers requests to localhost, 127.0.0.1 and [::1] only.";
        return Some(Reply::problem(StatusCode::MISDIRECTED_REQUEST, "NotLoopback", detail));
    }
    if *request.method() == Method::POST && text(HEADER).is_none() {
        let detail = "A POST needs the header X-Redlock: 1.";
        return Some(Reply::problem(StatusCode::FORBIDDEN, "NoHeader", detail));
    }
    None
}

impl HttpState {
    /// The lock that every instance wants.
    fn elected(&self) -> String {
        self.options.lock.to_string()
    }

    /// Repeats the query until an answer is final, at most for `wait`.
    ///
    /// Each query keeps its instance present.
    async fn wait(
        &self,
        lock: &str,
        query: &Query,
        wait: Duration,
        mut is_final: impl FnMut(&Answer, bool) -> bool,
    ) -> Result<Answer> {
        let until = now() + wait;
        let mut agent = self.agent.clone();
        loop {
            let (name, instance) = (lock.to_owned(), query.instance.clone());
            let asked = agent.ask(move |state, now| {
                let answer = state.answer(&name, instance.as_deref(), now);
                (answer, state.is_wanted(&name, now))
            });
            let (answer, is_wanted) = asked.await?;
            if is_final(&answer, is_wanted) || until <= now() || agent.is_stopping() {
                return Ok(answer);
            }
            agent.changed().await;
        }
    }
}

/// Answers in the format of leader-elector. The name is empty unless a holder certainly leads.
async fn name(State(http): State<HttpState>) -> Result {
    let name = http.agent.ask(|state, now| state.leader(now)).await?;
    let at = jiff::Timestamp::from_millisecond(SystemClock.wall().0).unwrap_or_default();
    Ok(Reply::ok(json!({"name": name.unwrap_or_default(), "last_update": format!("{at:.3}")})))
}

async fn register(State(http): State<HttpState>, query: Query) -> Result {
    let id = format!("{:032x}", rand::random::<u128>());
    let body = json!({"instance": id, "lock": http.elected()});
    http.agent.ask(move |state, now| state.register(id, query.if_none, now)).await??;
    Ok(Reply { status: StatusCode::CREATED, body })
}

/// Unregisters an ended instance, and releases all its locks.
async fn unregister(State(http): State<HttpState>, query: Query) -> Result {
    http.agent.ask(move |state, now| state.unregister(query.instance.as_deref(), now)).await??;
    Ok(Reply::ok(json!({"unregistered": true})))
}

/// Answers whether the instance leads. With `wait` it waits until the instance leads.
async fn leader(State(http): State<HttpState>, query: Query) -> Result {
    let is_final = |answer: &Answer, _| {
        matches!(answer, Answer::Leads { .. } | Answer::No(Refusal::NotRegistered | Refusal::NotServed))
    };
    let answer = http.wait(&http.elected(), &query, query.wait.unwrap_or_default(), is_final).await?;
    Ok(of_answer(&http.elected(), answer, now()))
}

async fn one_lock(State(http): State<HttpState>, lock: Lock, query: Query) -> Result {
    let lock = lock.0.to_string();
    match (http.wait(&lock, &query, Duration::ZERO, |_, _| true).await?, query.token) {
        (Answer::Leads { token: held, .. }, Some(token)) if held != token => Err(Refusal::OtherToken { token }),
        (answer, _) => Ok(of_answer(&lock, answer, now())),
    }
}

/// Takes a lock for the instance, and waits for it for the time in the request.
async fn acquire(State(http): State<HttpState>, Lock(name): Lock, query: Query) -> Result {
    if let Some(Err(error)) = query.ttl.map(|ttl| expected_source(&http.options).refuse_short_ttl(ttl)) {
        return Ok(Reply::problem(StatusCode::BAD_REQUEST, "BadParameter", &error.to_string()));
    }
    let lock = name.to_string();
    let order = query.order(&http.options, name);
    let (agent, waits_for, instance) = (http.agent.clone(), lock.clone(), query.instance.clone());
    let acquiring = http
        .agent
        .ask(move |state, now| state.acquire(instance.as_deref(), order, now).map(|()| agent.waiter(waits_for)));
    let mut waiter = acquiring.await??;
    let is_final = |answer: &Answer, is_wanted: bool| matches!(answer, Answer::Leads { .. }) || !is_wanted;
    let answer = http.wait(&lock, &query, query.wait.unwrap_or_default() + MARGIN, is_final).await?;
    let reply = of_answer(&lock, answer, now());
    waiter.is_held = reply.status.is_success();
    Ok(reply)
}

/// Releases a lock that the instance no longer uses.
async fn release(State(http): State<HttpState>, lock: Lock, query: Query) -> Result {
    let lock = lock.0.to_string();
    let Some(token) = query.token else {
        let detail = "Give the fencing token of the hold: ?token=<token>.";
        return Ok(Reply::problem(StatusCode::BAD_REQUEST, "NoToken", detail));
    };
    let body = json!({"lock": lock, "fencingToken": token, "released": true});
    http.agent.ask(move |state, now| state.release(&lock, query.instance.as_deref(), token, now)).await??;
    Ok(Reply::ok(body))
}

/// Sends server-sent events: one at each change, and at least one in each [`REPEAT`].
async fn watch(State(http): State<HttpState>, query: Query) -> Response {
    let events = stream::unfold((http, query, None), |(mut http, query, mut last)| async move {
        let event = next_event(&mut http, &query, &mut last).await?;
        Some((Ok::<_, Infallible>(event), (http, query, last)))
    });
    typed("text/event-stream", Body::from_stream(Box::pin(events))).into_response()
}

/// Waits for the next event. Returns `None` when the agent is stopped.
///
/// `last` is the answer of the last event, and its time.
async fn next_event(http: &mut HttpState, query: &Query, last: &mut Option<(Answer, Boottime)>) -> Option<String> {
    let elected = http.elected();
    while !http.agent.is_stopping() {
        let answer = http.wait(&elected, query, Duration::ZERO, |_, _| true).await.ok()?;
        let is_due = last.as_ref().is_none_or(|(last, at)| *last != answer || now().since(*at) >= REPEAT);
        if is_due {
            let retry = if last.is_none() { "retry: 1000\n" } else { "" };
            *last = Some((answer.clone(), now()));
            let kind = match answer {
                Answer::Leads { .. } => "leader",
                Answer::No(_) => "follower",
                Answer::Unknown { .. } => "unknown",
            };
            return Some(format!("{retry}event: {kind}\ndata: {}\n\n", of_answer(&elected, answer, now()).body));
        }
        http.agent.changed().await;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::http::header::CONTENT_TYPE;
    use serde_json::Value;
    use tower::ServiceExt as _;

    use super::*;
    use crate::agent::tests::http_state;

    async fn asked(method: &str, path: &str) -> Response {
        let request = Request::builder().method(method).uri(path).header("host", "localhost").header("x-redlock", "1");
        router(http_state()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
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

    /// A client repeats a request after 503, and this one never succeeds.
    #[tokio::test]
    async fn a_ttl_that_the_skew_uses_up_is_a_bad_parameter() {
        assert_eq!(reason("POST", "/locks/shop%2Fa/acquire?ttl=2s").await, (400, "BadParameter".into()));
        assert_eq!(reason("POST", "/locks/shop%2Fa/acquire?ttl=8s").await, (405, "Election".into()));
    }

    #[tokio::test]
    async fn head_is_answered_and_a_refusal_names_the_allowed_methods() {
        let head = asked("HEAD", "/healthz").await;
        assert_eq!(head.status(), 200);
        assert!(axum::body::to_bytes(head.into_body(), 16).await.unwrap().is_empty());
        for (method, path, allowed) in [("POST", "/healthz", "GET,HEAD"), ("GET", "/register", "POST")] {
            let refused = asked(method, path).await;
            let answer = (refused.status().as_u16(), refused.headers()["allow"].to_str().unwrap());
            assert_eq!(answer, (405, allowed), "{path}");
            assert_eq!(refused.headers()[CONTENT_TYPE], "application/problem+json");
        }
    }

    #[tokio::test]
    async fn the_description_has_exactly_these_endpoints() {
        let described: Value = serde_json::from_str(OPENAPI).unwrap();
        let source = include_str!("http.rs");
        let routes = source.split("\n        .route(").skip(1).map(|rest| {
            let path = rest.split('"').nth(1).unwrap();
            let is_get = rest.split_once("get(").is_some_and(|(before, _)| !before.contains("post("));
            (if is_get { "get" } else { "post" }, path)
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
