//! An API server for unit tests, as a client with fixed answers.

use std::sync::Arc;

use hyper::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::context::{Context, Replica};
use crate::redis_member::{Machine, Outward};
use crate::time::SystemClock;

/// The refusal of a request.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}))
}

/// A replica with empty caches, [`client`] and the default settings.
pub(crate) fn context(answer: impl Fn(&Request<Body>) -> (u16, Value) + Send + 'static) -> Context {
    let replica = Replica { namespace: "ns".into(), pod_name: "a".into(), settings: Arc::default() };
    let machine = Machine { clock: Arc::new(SystemClock), network: Arc::new(Outward::default()) };
    Context::new(client(answer), replica, machine).0
}

/// A client whose requests get the status code and the object that `answer` returns.
pub(crate) fn client(answer: impl Fn(&Request<Body>) -> (u16, Value) + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, object) = answer(&request);
        let body = Body::from(serde_json::to_vec(&object).unwrap());
        std::future::ready(Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap()))
    });
    Client::new(service, "ns")
}
