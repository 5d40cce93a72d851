//! A mutating webhook that undoes a write of the operator.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{Router, body::Bytes, extract::State, routing::post};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::{net::UnixListener, sync::watch, task::AbortHandle, time::timeout};
use tokio_rustls::TlsAcceptor;

use super::control_plane_process::ControlPlaneProcess;
use crate::{bench::Bench, poll, self_signed};

/// The limit until each API server has loaded a webhook.
const LOADED: Duration = Duration::from_secs(60);

/// The loopback port on the control plane's network.
const PORT: u16 = 9_391;

/// A webhook of the API server that removes all finalizers from the locks of the test's namespace.
///
/// The server listens on a socket file. A socat on the control plane's network connects the port with it.
pub(super) struct Webhook<'a> {
    bench: &'a Bench,
    _socat: ControlPlaneProcess,
    /// The number of requests.
    requests: watch::Receiver<usize>,
    server: AbortHandle,
}

impl<'a> Webhook<'a> {
    /// Starts the server, registers the webhook, and waits until the API server sends requests to it.
    pub(super) async fn start(bench: &'a Bench) -> anyhow::Result<Self> {
        let socat = ControlPlaneProcess::prepare(bench, "webhook")?;
        let listener = UnixListener::bind(socat.directory.join("socket"))?;
        let (acceptor, authority) = self_signed::server(&["127.0.0.1"])?;
        let (count, requests) = watch::channel(0);
        let server = tokio::spawn(serve(listener, acceptor, count)).abort_handle();
        socat.start(&format!("socat TCP-LISTEN:{PORT},bind=127.0.0.1,reuseaddr,fork UNIX-CONNECT:socket")).await?;
        let webhook = Self { bench, _socat: socat, requests, server };
        webhook.register(&format!("https://127.0.0.1:{PORT}/"), &authority).await?;
        Ok(webhook)
    }

    async fn register(&self, url: &str, authority: &str) -> anyhow::Result<()> {
        let namespace = self.bench.namespace.as_str();
        let rule = json!({"apiGroups": ["redlock-operator.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["distributedlocks"]});
        let registration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": "finalizers.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "timeoutSeconds": 5, "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "clientConfig": {"url": url, "caBundle": ByteString(authority.as_bytes().to_vec())},
            }],
        });
        let probe = json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "probe", "namespace": namespace},
            "spec": {"key": "probe", "suspend": true, "claim": {"identity": "probe"}},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [registration, probe]}).to_string();
        self.bench.cluster.apply(&list).await?;
        let annotate = ["annotate", "dlock", "probe", "example.com/probe=true", "--dry-run=server"];
        let is_called = async || {
            self.bench.kubectl(&annotate).await?;
            Ok((*self.requests.borrow() > 0).then_some(()))
        };
        poll::until(LOADED, "the API server calls the webhook", is_called).await
    }

    /// Waits for the next request of the API server.
    pub(super) async fn next_request(&self) -> anyhow::Result<()> {
        let mut requests = self.requests.clone();
        requests.mark_unchanged();
        let request = timeout(LOADED, requests.changed()).await;
        Ok(request.context("the API server did not call the webhook")??)
    }

    /// Removes the webhook from the API server.
    pub(super) async fn delete(self) -> anyhow::Result<()> {
        self.bench.cluster.kubectl(&["delete", "mutatingwebhookconfiguration", &self.bench.namespace]).await.map(drop)
    }
}

impl Drop for Webhook<'_> {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Serves the requests of all connections.
async fn serve(listener: UnixListener, acceptor: TlsAcceptor, count: watch::Sender<usize>) {
    let router = Router::new().route("/", post(review)).with_state(Arc::new(count));
    while let Ok((connection, _)) = listener.accept().await {
        let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            let connection = TokioIo::new(acceptor.accept(connection).await?);
            hyper::server::conn::http1::Builder::new().serve_connection(connection, service).await?;
            anyhow::Ok(())
        });
    }
}

/// Answers with a patch that removes the finalizers of the object.
async fn review(State(count): State<Arc<watch::Sender<usize>>>, review: Bytes) -> String {
    count.send_modify(|count| *count += 1);
    let review: Value = serde_json::from_slice(&review).unwrap_or_default();
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if !review["request"]["object"]["metadata"]["finalizers"].is_null() {
        let patch = json!([{"op": "remove", "path": "/metadata/finalizers"}]).to_string();
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(ByteString(patch.into_bytes()));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
}
