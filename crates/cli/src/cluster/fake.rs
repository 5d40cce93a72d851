//! An API server for unit tests, as a cluster with fixed answers.

use axum::http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

impl Cluster {
    /// A cluster whose requests get the status code and the object that `answer` returns.
    pub(crate) fn answering(answer: impl Fn(&Request<Body>) -> (u16, Value) + Send + 'static) -> Self {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, object) = answer(&request);
            let body = Body::from(serde_json::to_vec(&object).unwrap());
            std::future::ready(Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap()))
        });
        Self {
            client: Client::new(service, "shop"),
            namespace: "shop".into(),
            named_namespace: None,
            server: "https://cluster:6443".into(),
            timeout: REQUEST_TIMEOUT,
            time: Arc::new(ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT)),
        }
    }
}

/// Whether a request is for a watch.
pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

/// The answer with a list of these objects.
pub(crate) fn list(items: &[Value]) -> (u16, Value) {
    (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
}

/// The answer to a failed request.
pub(crate) fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code}))
}
