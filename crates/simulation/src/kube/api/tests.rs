//! kube's client, watcher, reflector and controller use the server, on paused time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::http::{Request, Response};
use kube::Client;
use redlock_api::{DistributedLock, RedisQuorum};
use redlock_operator::time::{Clock, TokioClock};
use serde_json::{Value, json};

use super::super::Millis;
use super::{Answer, ApiServer, Lines, Refusal, Watch};

mod kinds;
mod watches;
mod writes;

/// The polling interval of an open watch.
const LOOK: Duration = Duration::from_millis(10);

/// A server, and the faults between it and its clients.
#[derive(Clone)]
struct Lab(Arc<Mutex<Inner>>);

struct Inner {
    server: ApiServer,
    clock: TokioClock,
    /// Number of cuts.
    ///
    /// A cut ends all watches that were opened at a smaller number.
    cuts: u32,
    /// The next requests get these responses.
    refusals: Vec<Refusal>,
    /// How far watches lag.
    lag: Millis,
    requests: Vec<String>,
}

impl Lab {
    fn new() -> Self {
        let clock = TokioClock::default();
        let server = ApiServer::new(7, clock.wall().0);
        let inner = Inner { server, clock, cuts: 0, refusals: Vec::new(), lag: 0, requests: Vec::new() };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Ends all open watches.
    fn cut(&self) {
        self.lock().cuts += 1;
    }

    fn client(&self) -> Client {
        let lab = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let lab = lab.clone();
            async move { Ok::<_, std::convert::Infallible>(lab.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<UnsyncBoxBody<Bytes, std::io::Error>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let request = Request::from_parts(parts, body);
        let mut inner = self.lock();
        let now = inner.clock.wall().0;
        inner.requests.push(format!("{} {}", request.method(), request.uri()));
        let answer = match inner.refusals.pop() {
            Some(refusal) => Answer::Unary(ApiServer::refuse(&refusal, now)),
            None => inner.server.handle(&request, now),
        };
        let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        match answer {
            Answer::Unary(response) => response.map(whole),
            Answer::Watch(watch) => Response::new(self.stream(watch, inner.cuts).boxed_unsync()),
        }
    }

    fn stream(&self, watch: Watch, cuts: u32) -> impl hyper::body::Body<Data = Bytes, Error = std::io::Error> + use<> {
        let lab = self.clone();
        StreamBody::new(stream::unfold((lab, watch, cuts, false), |(lab, mut watch, cuts, over)| async move {
            if over {
                return None;
            }
            loop {
                let lines = lab.poll(&mut watch, cuts)?;
                if !lines.lines.is_empty() {
                    let bytes = Bytes::from(lines.lines.concat());
                    return Some((Ok(Frame::data(bytes)), (lab, watch, cuts, lines.end)));
                }
                tokio::time::sleep(LOOK).await;
            }
        }))
    }

    fn poll(&self, watch: &mut Watch, cuts: u32) -> Option<Lines> {
        let inner = self.lock();
        let now = inner.clock.wall().0;
        let through = inner.server.version_at(now - inner.lag);
        (inner.cuts == cuts && now < watch.until).then(|| inner.server.lines(watch, through))
    }
}

fn lock(name: &str) -> DistributedLock {
    let spec = json!({"key": "k", "claim": {"identity": "me"}});
    serde_json::from_value(object("DistributedLock", name, spec)).unwrap()
}

fn quorum(name: &str) -> RedisQuorum {
    serde_json::from_value(object("RedisQuorum", name, json!({}))).unwrap()
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn pod(name: &str, node: Option<&str>) -> k8s_openapi::api::core::v1::Pod {
    let spec = json!({"nodeName": node, "containers": [{"name": "app"}]});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})).unwrap()
}

/// The HTTP status code of a refusal.
fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}
