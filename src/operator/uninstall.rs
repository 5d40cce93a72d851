//! `redlock uninstall-check`: the hook of `helm uninstall`, which runs before anything is removed.
//!
//! Without the operator, held locks are not renewed, and finalizers are not removed. So this command refuses while a lock is held. Otherwise it
//! stops the operator and removes its finalizers.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::api_client;
use super::args::Scopes;
use crate::api::requests::{Namespaced, RequestError};
use crate::api::{DistributedLock, HeldQuorum, LOCK_FINALIZER, QUORUM_FINALIZER, RedisQuorum};
use crate::runtime::cache::{Guarded, Kind, pages};
use crate::runtime::scope::Scope;
use crate::runtime::settings::unreadable_installation;

/// How long the operator's pods can take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two lists of the operator's pods.
const STOP_PERIOD: Duration = Duration::from_millis(500);
/// Maximum number of held locks in the refusal.
const NAMED: usize = 20;

/// Namespace, Deployment and scopes of the operator.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// Namespace of the operator.
    #[arg(long, env = "POD_NAMESPACE", default_value = "redlock-system")]
    pub namespace: String,
    /// Name of the operator's Deployment.
    #[arg(long, env = "REDLOCK_DEPLOYMENT", default_value = "redlock-operator")]
    pub deployment: String,
    /// Quorums and namespaces that the operator serves.
    #[command(flatten)]
    pub scopes: Scopes,
}

/// The installation that is removed.
struct Installation<'a> {
    client: &'a Client,
    scopes: &'a Scopes,
}

/// Refuses while locks are held. Otherwise it stops the operator, and removes its finalizers.
pub async fn run(args: UninstallArgs) -> anyhow::Result<()> {
    uninstall(&api_client::client().await?, &args).await
}

async fn uninstall(client: &Client, args: &UninstallArgs) -> anyhow::Result<()> {
    let installation = Installation { client, scopes: &args.scopes };
    installation.refuse_if_held().await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.namespace);
    let Some(deployment) = deployments.get_opt(&args.deployment).await? else { return installation.clear().await };
    let removed = installation.stop_and_clear(&deployments, &deployment).await;
    if removed.is_err() {
        // The release stays installed, and it needs its operator.
        scale(&deployments, &deployment, deployment.spec.as_ref().and_then(|spec| spec.replicas)).await?;
    }
    removed
}

impl Installation<'_> {
    /// Stops the operator and removes its finalizers, unless it granted a lock while it was stopping.
    async fn stop_and_clear(&self, deployments: &Api<Deployment>, deployment: &Deployment) -> anyhow::Result<()> {
        scale(deployments, deployment, Some(0)).await?;
        let pods = Api::namespaced(self.client.clone(), &deployment.namespace().unwrap_or_default());
        let stopped = until_stopped(&pods, deployment);
        tokio::time::timeout(STOP_TIMEOUT, stopped).await.context("the operator's pods did not stop")??;
        self.refuse_if_held().await?;
        self.clear().await
    }

    async fn all<K: Kind + Namespaced>(&self, scope: Scope) -> anyhow::Result<Vec<Guarded<K>>> {
        let mut all = Vec::new();
        for (_, api) in scope.apis::<Guarded<K>>(self.client) {
            match pages(api, scope.fields()).try_concat().await {
                Ok(objects) => all.extend(objects),
                // The kind was deleted, with all its objects.
                Err(RequestError::Gone) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// The quorums of this installation, and other quorums in its namespaces.
    async fn quorums(&self) -> anyhow::Result<(Vec<Guarded<RedisQuorum>>, Vec<Guarded<RedisQuorum>>)> {
        let quorums = self.all::<RedisQuorum>(self.scopes.quorums()).await?;
        let is_ours = |quorum: &Guarded<RedisQuorum>| match quorum {
            Guarded::Read(quorum) => quorum.spec.installation == self.scopes.installation,
            Guarded::Unreadable(raw) => unreadable_installation(raw) == self.scopes.installation,
        };
        Ok(quorums.into_iter().partition(is_ours))
    }

    /// The locks of this installation. A lock on a quorum that another operator serves does not belong to it.
    async fn locks(&self) -> anyhow::Result<Vec<Guarded<DistributedLock>>> {
        let mut locks = self.all::<DistributedLock>(self.scopes.locks()).await?;
        let (scope, (_, others)) = (self.scopes.quorums(), self.quorums().await?);
        let others: HashSet<_> = others.iter().filter_map(ResourceExt::uid).collect();
        locks.retain(|lock| {
            let quorum = held_on(lock).flatten();
            quorum.is_none_or(|quorum| scope.contains(&quorum.namespace) && !others.contains(&quorum.uid))
        });
        Ok(locks)
    }

    async fn refuse_if_held(&self) -> anyhow::Result<()> {
        let locks = self.locks().await?;
        let held = locks.iter().filter(|lock| held_on(lock).is_some());
        let command = |lock: &Guarded<_>| {
            format!("kubectl delete dlock -n {} {}", lock.namespace().unwrap_or_default(), lock.name_any())
        };
        let held: Vec<_> = held.map(command).collect();
        if held.is_empty() {
            return Ok(());
        }
        let more = held.len().saturating_sub(NAMED);
        let named = held[..held.len() - more].join("\n  ");
        let rest = if more > 0 { format!("\n  and {more} more: kubectl get dlock -A") } else { String::new() };
        bail!(
            "{} locks are held, and nothing would renew them without the operator, so nothing was removed. Release them, then run helm uninstall again:\n  {named}{rest}\nThe lock of an election, and of a claim that names a pod, is held until its ttl has passed; kubectl delete waits for that.",
            held.len()
        );
    }

    /// Removes our finalizers, which would block the deletion of the objects.
    async fn clear(&self) -> anyhow::Result<()> {
        for lock in &self.locks().await? {
            self.clear_finalizer(lock, LOCK_FINALIZER).await?;
        }
        // A user can change quorums while many locks are cleared.
        let (quorums, _) = self.quorums().await?;
        for quorum in &quorums {
            self.clear_finalizer(quorum, QUORUM_FINALIZER).await?;
        }
        Ok(())
    }

    async fn clear_finalizer<K: Kind + Namespaced>(&self, object: &Guarded<K>, ours: &str) -> anyhow::Result<()> {
        let left: Vec<_> = object.finalizers().iter().filter(|finalizer| *finalizer != ours).collect();
        if left.len() == object.finalizers().len() {
            return Ok(());
        }
        let patch = json!({"metadata": {"finalizers": left, "resourceVersion": object.resource_version()}});
        let api: Api<Guarded<K>> = Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// Whether a lock is held, and its quorum, if the status has it.
///
/// The status of an unreadable lock is included.
fn held_on(lock: &Guarded<DistributedLock>) -> Option<Option<HeldQuorum>> {
    match lock {
        Guarded::Read(lock) => Some(lock.holder()?.quorum.clone()),
        Guarded::Unreadable(raw) => {
            let quorum = raw.status("holder")?.get("quorum");
            Some(quorum.and_then(|quorum| serde_json::from_value(quorum.clone()).ok()))
        }
    }
}

async fn scale(deployments: &Api<Deployment>, deployment: &Deployment, replicas: Option<i32>) -> anyhow::Result<()> {
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas.unwrap_or(1)}}));
    deployments.patch_scale(&deployment.name_any(), &PatchParams::default(), &scale).await?;
    Ok(())
}

/// Waits until no pod of the Deployment runs. A failed pod, such as an evicted one, can stay.
async fn until_stopped(pods: &Api<Pod>, deployment: &Deployment) -> anyhow::Result<()> {
    let labels = deployment.spec.iter().flat_map(|spec| spec.selector.match_labels.iter().flatten());
    let selector = labels.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.is_some_and(|phase| ["Failed", "Succeeded"].contains(&phase))
    };
    while !pods.list(&ListParams::default().labels(&selector)).await?.iter().all(has_ended) {
        tokio::time::sleep(STOP_PERIOD).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::Value;

    use super::*;
    use crate::runtime::fake_api;
    use crate::tests::arguments;

    /// Uninstalls with this answer to the list of pods. Returns whether it succeeded, and how often it set the number of replicas.
    async fn uninstalled(pods: (u16, Value)) -> (bool, usize) {
        let scaled = Arc::new(AtomicUsize::new(0));
        let counter = scaled.clone();
        let deployment = json!({"metadata": {"name": "redlock-operator", "namespace": "redlock-system"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": {}}});
        let client = fake_api::client(move |request| match request.uri().path().rsplit('/').next() {
            Some("scale") => {
                counter.fetch_add(1, Ordering::Relaxed);
                (200, json!({"metadata": {}}))
            }
            Some("redlock-operator") => (200, deployment.clone()),
            Some("pods") => pods.clone(),
            _ => (200, json!({"metadata": {}, "items": []})),
        });
        let ended = uninstall(&client, &arguments(&[])).await.is_ok();
        (ended, scaled.load(Ordering::Relaxed))
    }

    fn pods(phase: &str) -> (u16, Value) {
        (200, json!({"metadata": {}, "items": [{"metadata": {"name": "a"}, "status": {"phase": phase}}]}))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_uninstallation_starts_the_operator_again() {
        assert_eq!(uninstalled(fake_api::failure(500, "InternalError", "no")).await, (false, 2));
        assert_eq!(uninstalled(pods("Running")).await, (false, 2), "its pods do not stop");
    }

    /// An administrator can delete the kinds first. Then the API server answers with a text.
    #[tokio::test]
    async fn deleted_kinds_do_not_block_an_uninstallation() {
        let client = fake_api::client(|request| match request.uri().path().rsplit('/').next() {
            Some("redlock-operator") => (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
            _ => (404, json!("404 page not found")),
        });
        let ended = uninstall(&client, &arguments(&[])).await;
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[tokio::test]
    async fn an_evicted_pod_does_not_delay_an_uninstallation() {
        assert_eq!(uninstalled(pods("Failed")).await, (true, 1));
        assert_eq!(uninstalled((200, json!({"metadata": {}, "items": []}))).await, (true, 1));
    }

    /// Returns the refusal to uninstall while this lock is held. The lock is in the second page.
    async fn refusal(line: &[&str], held: Value) -> Option<String> {
        let client = fake_api::client(move |request| {
            let query = request.uri().query().unwrap_or_default();
            match request.uri().path().rsplit('/').next() {
                Some("distributedlocks") if query.contains("continue=second") => {
                    (200, json!({"metadata": {}, "items": [held]}))
                }
                Some("distributedlocks") if query.contains("limit=") => {
                    (200, json!({"metadata": {"continue": "second"}, "items": []}))
                }
                Some("redlock-operator") => (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"})),
                _ => (200, json!({"metadata": {}, "items": []})),
            }
        });
        uninstall(&client, &arguments(line)).await.err().map(|error| error.to_string())
    }

    /// An answer with all locks can be larger than the memory of the hook.
    #[tokio::test]
    async fn held_locks_of_all_pages_are_found() {
        let held = |namespace: &str| {
            json!({"metadata": {"name": "nightly", "namespace": "a"}, "spec": {"key": "k", "claim": {"identity": "b"}},
                "status": {"holder": {"identity": "b", "quorum": {"namespace": namespace, "name": "q", "uid": "1"}}}})
        };
        let refused = refusal(&[], held("redis")).await.unwrap_or_default();
        assert!(refused.contains("kubectl delete dlock -n a nightly"), "{refused}");
        let ours = ["--quorum-namespaces", "redis"];
        assert!(refusal(&ours, held("redis")).await.is_some());
        assert_eq!(refusal(&ours, held("theirs")).await, None, "another installation serves that namespace");
    }
}
