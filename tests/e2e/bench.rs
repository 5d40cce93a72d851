//! The environment of one test: a namespace of its own, and functions for objects there.

use std::{ops::Deref, process::Output, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Resource, ResourceExt, api::PostParams};
use redlock_operator::time::{Boottime, Clock as _, SystemClock, UnixMillis};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    cluster::{Cluster, text_of},
    figures::Figures,
    record::{Recorder, Watchable},
    votes::{Tally, VoteMonitor},
};

/// The label of every namespace of these tests.
pub(crate) const PART_OF: &str = "app.kubernetes.io/part-of=redlock-e2e";
/// A namespace with all its objects must be gone within this time.
const NAMESPACE_GONE_LIMIT: Duration = Duration::from_secs(180);

/// The environment of one test.
#[derive(Clone)]
pub(crate) struct Bench(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) figures: Arc<Figures>,
    /// The test's namespace.
    pub(crate) namespace: String,
    /// The vote monitor of the quorums in the namespace.
    votes: OnceCell<VoteMonitor>,
}

impl Deref for Bench {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Bench {
    /// Creates the namespace, with the strictest pod security.
    pub(crate) async fn open(test: &str, cluster: Arc<Cluster>, figures: Arc<Figures>) -> anyhow::Result<Self> {
        let short: String = test.replace('_', "-").chars().take(40).collect();
        let namespace = format!("e2e-{}-{:04x}", short.trim_end_matches('-'), rand::random::<u16>());
        let object = json!({"metadata": {"name": namespace, "labels": {
            "app.kubernetes.io/part-of": "redlock-e2e",
            "pod-security.kubernetes.io/enforce": "restricted",
        }}});
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(Self(Arc::new(Inner { cluster, figures, namespace, votes: OnceCell::new() })))
    }

    /// Runs a test with a second namespace, and deletes that namespace afterwards, even if the test fails.
    pub(crate) async fn beside(
        &self,
        name: &str,
        what: impl AsyncFnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let other = Self::open(name, self.cluster.clone(), self.figures.clone()).await?;
        let result = what(&other).await;
        let closed = other.close().await;
        result.and(closed)
    }

    /// Deletes the namespace and waits until it is gone.
    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        let namespaces = Api::<Namespace>::all(self.cluster.client.clone());
        let recorder = Recorder::of(namespaces.clone(), &self.namespace).await?;
        match namespaces.delete(&self.namespace, &kube::api::DeleteParams::background()).await {
            // The test has already deleted it.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            deleted => deleted?,
        };
        recorder.until_gone(NAMESPACE_GONE_LIMIT).await.context("the namespace's deletion does not end").map(drop)
    }

    /// The key in Redis of a lock in the test's namespace.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Objects of a kind in the test's namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// Creates an object in the test's namespace.
    pub(crate) async fn create<K>(&self, object: Value) -> anyhow::Result<K>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        let parsed: K = serde_json::from_value(object)?;
        let created = self.api::<K>().create(&PostParams::default(), &parsed).await;
        created.with_context(|| format!("failed to create {} {}", K::kind(&()), parsed.name_any()))
    }

    /// Deletes an object in the test's namespace, and does not wait for its end.
    pub(crate) async fn delete<K>(&self, name: &str) -> anyhow::Result<()>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        let deleted = self.api::<K>().delete(name, &kube::api::DeleteParams::background()).await;
        deleted.with_context(|| format!("failed to delete {} {name}", K::kind(&()))).map(drop)
    }

    /// The monitor that requests votes of every member of every quorum in the namespace.
    ///
    /// The end of the test checks the votes.
    pub(crate) async fn votes(&self) -> anyhow::Result<&VoteMonitor> {
        self.votes.get_or_try_init(|| VoteMonitor::start(self)).await
    }

    /// Checks the votes, if there is a monitor.
    pub(crate) async fn end_votes(&self) -> anyhow::Result<Option<Tally>> {
        match self.votes.get() {
            Some(votes) => votes.end(self).await.map(Some),
            None => Ok(None),
        }
    }

    /// Watches one object in the test's namespace.
    pub(crate) async fn record<K>(&self, name: &str) -> anyhow::Result<Recorder<K>>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        Recorder::of(self.api::<K>(), name).await
    }

    /// Runs kubectl in the test's namespace.
    ///
    /// It must succeed.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.cluster.kubectl(&[&["-n", &self.namespace], arguments].concat()).await
    }

    /// Runs kubectl in the test's namespace and returns its output, whether or not it succeeded.
    pub(crate) async fn kubectl_output(&self, arguments: &[&str], input: &str) -> anyhow::Result<Output> {
        self.cluster.kubectl_output(&[&["-n", &self.namespace], arguments].concat(), input).await
    }

    /// Runs kubectl in the test's namespace, which must fail, and returns its error.
    pub(crate) async fn kubectl_fails(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let output = self.kubectl_output(arguments, input).await?;
        ensure!(!output.status.success(), "kubectl {} succeeded: {input}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Checks that kubectl fails in the test's namespace, with this text in its error.
    pub(crate) async fn refuses(&self, arguments: &[&str], input: &str, text: &str) -> anyhow::Result<()> {
        let error = self.kubectl_fails(arguments, input).await?;
        ensure!(error.contains(text), "no {text:?} in the error of kubectl {}: {error}", arguments.join(" "));
        Ok(())
    }

    /// The name of the test's user.
    pub(crate) async fn user(&self) -> anyhow::Result<String> {
        let name = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
        Ok(self.cluster.kubectl(&name).await?.trim().to_owned())
    }

    /// Creates a service account with this ClusterRole in the test's namespace.
    pub(crate) async fn create_account(&self, name: &str, role: &str) -> anyhow::Result<()> {
        self.kubectl(&["create", "serviceaccount", name]).await?;
        let (role, account) = (format!("--clusterrole={role}"), format!("--serviceaccount={}:{name}", self.namespace));
        self.kubectl(&["create", "rolebinding", name, &role, &account]).await.map(drop)
    }

    /// Merges a patch into an object in the test's namespace.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: &str) -> anyhow::Result<()> {
        self.kubectl(&["patch", kind, name, "--type=merge", "--patch", patch]).await.map(drop)
    }

    /// Ends a hold by the annotation `break` or `break-force`.
    pub(crate) async fn break_lock(&self, lock: &str, how: &str, why: &str) -> anyhow::Result<()> {
        let annotations = json!({format!("redlock-operator.io/{how}"): format!("{}: {why}", self.user().await?)});
        self.patch("dlock", lock, &json!({"metadata": {"annotations": annotations}}).to_string()).await
    }

    /// Merges a patch that must be refused.
    ///
    /// Returns the message.
    pub(crate) async fn patch_refused(&self, kind: &str, name: &str, patch: &str) -> anyhow::Result<String> {
        self.kubectl_fails(&["patch", kind, name, "--type=merge", "--patch", patch], "").await
    }

    /// Applies a manifest that must be refused.
    ///
    /// Returns the message.
    pub(crate) async fn refused(&self, manifest: &str) -> anyhow::Result<String> {
        self.kubectl_fails(&["apply", "-f", "-"], manifest).await
    }

    /// The current time for measurements.
    pub(crate) fn now(&self) -> Boottime {
        SystemClock.boottime()
    }

    /// The current time for a comparison with times in objects.
    pub(crate) fn wall(&self) -> UnixMillis {
        SystemClock.wall()
    }

    /// Diagnostic output for a failed test.
    pub(crate) async fn dump(&self) -> String {
        let (own, operator) = (self.namespace.as_str(), self.cluster.operator_namespace.as_str());
        let parts = [
            ("quorums and locks", own, "get rq,dlock -o yaml"),
            ("objects", own, "get pods,deployments,statefulsets,services,endpointslices,pdb -o wide"),
            ("events", own, "get events --sort-by=.lastTimestamp"),
            ("the operator", operator, "get pods,leases,rq -o wide"),
            ("its leader", operator, "get leases -o yaml"),
            ("its log", operator, "logs --selector=app.kubernetes.io/name=redlock-operator --prefix --tail=120"),
        ];
        let mut text = String::new();
        for (title, namespace, command) in parts {
            let arguments: Vec<&str> = ["-n", namespace].into_iter().chain(command.split(' ')).collect();
            let output = self.cluster.kubectl_output(&arguments, "").await;
            let output = output.map_or_else(|error| format!("{error:#}\n"), |output| text_of(&output));
            text += &format!("--- {title} (kubectl {})\n{output}", arguments.join(" "));
        }
        text
    }
}
