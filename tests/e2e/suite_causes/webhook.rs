//! A mutating webhook that undoes a write of the operator.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use axum::{Router, body::Bytes, extract::State, routing::post};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::{net::UnixListener, sync::watch, task::AbortHandle, time::timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use crate::{bench::Bench, poll};

/// The limit until each API server has loaded a webhook.
const LOADED: Duration = Duration::from_secs(60);

/// The loopback port on the control plane's network.
const PORT: u16 = 9_391;

/// A webhook of the API server that removes all finalizers from the locks of the test's namespace.
///
/// The server listens on a socket file. A socat on the control plane's network connects the port with it. Both end when this value is
/// dropped.
pub(super) struct Webhook<'a> {
    bench: &'a Bench,
    directory: PathBuf,
    /// The number of requests.
    requests: watch::Receiver<usize>,
    server: AbortHandle,
}

impl<'a> Webhook<'a> {
    /// Starts the server, registers the webhook, and waits until the API server sends requests to it.
    pub(super) async fn start(bench: &'a Bench) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("{}.webhook", bench.namespace));
        std::fs::create_dir_all(&directory)?;
        let listener = UnixListener::bind(directory.join("socket"))?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let acceptor = acceptor(&made)?;
        let (count, requests) = watch::channel(0);
        let server = tokio::spawn(serve(listener, acceptor, count)).abort_handle();
        let webhook = Self { bench, directory, requests, server };
        let script = format!(
            "set -eu
             cd {directory}
             nohup socat TCP-LISTEN:{PORT},bind=127.0.0.1,reuseaddr,fork UNIX-CONNECT:socket >log 2>&1 &
             echo $! >pid",
            directory = webhook.directory.display()
        );
        bench.cluster.faults.beside_the_control_plane(&script).await?;
        webhook.register(&format!("https://127.0.0.1:{PORT}/"), &made.cert.pem()).await?;
        Ok(webhook)
    }

    async fn register(&self, url: &str, authority: &str) -> anyhow::Result<()> {
        let (cluster, namespace) = (&self.bench.cluster, self.bench.namespace.as_str());
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
        let applied = cluster.kubectl_output(&["apply", "-f", "-"], &list).await?;
        ensure!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
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
        timeout(LOADED, requests.changed())
            .await
            .context("the API server did not call the webhook")?
            .map_err(Into::into)
    }

    /// Removes the webhook from the API server.
    pub(super) async fn delete(self) -> anyhow::Result<()> {
        self.bench.cluster.kubectl(&["delete", "mutatingwebhookconfiguration", &self.bench.namespace]).await.map(drop)
    }
}

impl Drop for Webhook<'_> {
    fn drop(&mut self) {
        self.server.abort();
        let directory = self.directory.display();
        let script = format!("kill -KILL $(cat {directory}/pid); rm -rf {directory}");
        self.bench.cluster.faults.clean_up_beside_the_control_plane(&script);
    }
}

fn acceptor(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> anyhow::Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
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
