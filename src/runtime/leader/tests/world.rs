//! An API server with one Lease, and replicas that are candidates for it, on tokio's paused clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::http::{Method, Request, Response};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::{Candidacy, QuorumReachability, ReplicaState, Term};
use crate::runtime::fake_api::failure;
use crate::time::{Clock, TokioClock, UnixMillis};

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The network between one replica and the API server.
#[derive(Clone, Copy, Default)]
pub(super) struct Way {
    /// The delay of each request, beside one millisecond.
    pub(super) slow_requests: Duration,
    /// The delay of an answer to a write.
    pub(super) slow_answers: Duration,
    /// No request arrives.
    pub(super) cut: bool,
}

#[derive(Default)]
struct Stored {
    lease: Option<Value>,
    version: u64,
}

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<Stored>>);

impl Server {
    pub(super) fn lease(&self) -> Value {
        self.0.lock().unwrap().lease.clone().unwrap_or_default()
    }

    /// Changes the Lease, as another client would.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Option<Value>)) {
        let mut stored = self.0.lock().unwrap();
        stored.version += 1;
        let version = stored.version.to_string();
        edit(&mut stored.lease);
        if let Some(lease) = &mut stored.lease {
            lease["metadata"]["resourceVersion"] = version.into();
        }
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (u16, Value) {
        let mut stored = self.0.lock().unwrap();
        if method == Method::GET {
            return stored.lease.clone().map_or_else(|| failure(404, "NotFound", ""), |lease| (200, lease));
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        let current = stored.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        let expected = (method == Method::PUT).then(|| lease["metadata"]["resourceVersion"].clone());
        if current != expected {
            return failure(409, "Conflict", "");
        }
        stored.version += 1;
        lease["metadata"]["resourceVersion"] = stored.version.to_string().into();
        stored.lease = Some(lease.clone());
        (200, lease)
    }

    fn client(&self, way: Arc<Mutex<Way>>) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, way) = (server.clone(), way.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let Way { slow_requests, cut, .. } = *way.lock().unwrap();
                if cut {
                    std::future::pending::<()>().await;
                }
                sleep(millis(1) + slow_requests).await;
                let (status, answer) = server.answer(&parts.method, &body);
                if parts.method != Method::GET {
                    let slow = way.lock().unwrap().slow_answers;
                    sleep(slow).await;
                }
                let answer = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, std::io::Error>(Response::builder().status(status).body(answer).unwrap())
            }
        });
        Client::new(service, "redlock-system")
    }
}

struct FixedState {
    refuses: Arc<AtomicBool>,
    reachability: Arc<Mutex<Vec<QuorumReachability>>>,
    clock: TokioClock,
}

impl ReplicaState for FixedState {
    fn reachability(&self) -> Vec<QuorumReachability> {
        self.reachability.lock().unwrap().clone()
    }

    fn api_now(&self) -> UnixMillis {
        self.clock.wall()
    }

    fn refuses_to_lead(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }
}

pub(super) struct Replica {
    pub(super) leadership: watch::Receiver<Option<Term>>,
    pub(super) way: Arc<Mutex<Way>>,
    reachability: Arc<Mutex<Vec<QuorumReachability>>>,
    refuses: Arc<AtomicBool>,
    pub(super) shutdown: CancellationToken,
}

impl Replica {
    pub(super) fn start(server: &Server, name: &str, clock: TokioClock, reached: &[(&str, bool)]) -> Self {
        let (way, reachability, shutdown) = (Arc::default(), Arc::default(), CancellationToken::new());
        let refuses = Arc::default();
        let client = server.client(Arc::clone(&way));
        let leases = Api::namespaced(client, "redlock-system");
        let candidacy = Candidacy::new(leases, "lease", name, Arc::new(clock));
        let leadership = candidacy.leadership();
        let replica = FixedState { refuses: Arc::clone(&refuses), reachability: Arc::clone(&reachability), clock };
        tokio::spawn(candidacy.run(shutdown.clone(), replica));
        let replica = Self { leadership, way, reachability, refuses, shutdown };
        replica.set_reachable(reached);
        replica
    }

    /// Sets the quorums that the replica reaches.
    pub(super) fn set_reachable(&self, reached: &[(&str, bool)]) {
        let reachability_of = |(quorum, is_reached): &(&str, bool)| QuorumReachability {
            quorum: (*quorum).into(),
            is_reached: *is_reached,
            is_wanted: true,
        };
        *self.reachability.lock().unwrap() = reached.iter().map(reachability_of).collect();
    }

    pub(super) fn slow(&self, slow_answers: Duration) {
        self.way.lock().unwrap().slow_answers = slow_answers;
    }

    pub(super) fn cut(&self, cut: bool) {
        self.way.lock().unwrap().cut = cut;
    }

    pub(super) fn term(&self) -> Option<Term> {
        self.leadership.borrow().clone().filter(|term| !term.over.is_cancelled())
    }

    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    pub(super) fn leads(&self) -> bool {
        self.term().is_some()
    }
}
