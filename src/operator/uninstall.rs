//! `redlock uninstall-check`: what `helm uninstall` asks before it removes anything.
//!
//! Nobody would renew the locks that are still held, and nobody would take the finalizers off once the operator is gone. So
//! this refuses while a lock is held, and otherwise stops the operator and clears its finalizers.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::cache::Guarded;
use crate::api::{DistributedLock, LOCK_FINALIZER, QUORUM_FINALIZER, RedisQuorum};

/// How long the operator's pods may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// So many held locks are named in the refusal.
const NAMED: usize = 20;

/// Where the operator runs.
#[derive(Clone, Debug, clap::Args)]
pub struct UninstallArgs {
    /// Namespace of the operator.
    #[arg(long, env = "POD_NAMESPACE", default_value = "redlock-system")]
    pub namespace: String,
    /// Name of the operator's Deployment.
    #[arg(long, env = "REDLOCK_DEPLOYMENT", default_value = "redlock-operator")]
    pub deployment: String,
}

/// Refuses while locks are held; otherwise stops the operator and clears its finalizers.
pub async fn run(args: UninstallArgs) -> anyhow::Result<()> {
    let client = Client::try_default().await.context("failed to find the API server")?;
    refuse_if_held(&client).await?;
    let replicas = stop_operator(&client, &args).await?;
    // Granted while it was stopping: somebody has to renew it.
    if let Err(held) = refuse_if_held(&client).await {
        scale(&client, &args, replicas).await?;
        return Err(held);
    }
    clear_finalizers::<Guarded<DistributedLock>>(&client, LOCK_FINALIZER).await?;
    clear_finalizers::<Guarded<RedisQuorum>>(&client, QUORUM_FINALIZER).await
}

async fn refuse_if_held(client: &Client) -> anyhow::Result<()> {
    let locks = Api::<Guarded<DistributedLock>>::all(client.clone()).list(&ListParams::default()).await?;
    let held: Vec<_> = locks
        .iter()
        .filter(|lock| is_held(lock))
        .map(|lock| format!("kubectl delete dlock -n {} {}", lock.namespace().unwrap_or_default(), lock.name_any()))
        .collect();
    if held.is_empty() {
        return Ok(());
    }
    let more = held.len().saturating_sub(NAMED);
    let named = held.iter().take(NAMED).cloned().collect::<Vec<_>>().join("\n  ");
    let rest = if more > 0 { format!("\n  and {more} more: kubectl get dlock -A") } else { String::new() };
    bail!("{} locks are held, and nobody would renew them. Delete them first:\n  {named}{rest}", held.len());
}

/// One that cannot be read is asked for its holder all the same.
fn is_held(lock: &Guarded<DistributedLock>) -> bool {
    match lock {
        Guarded::Read(lock) => lock.status.as_ref().is_some_and(|status| status.holder.is_some()),
        Guarded::Unreadable(raw) => raw.status("holder").is_some(),
    }
}

async fn scale(client: &Client, args: &UninstallArgs, replicas: i32) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.namespace);
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch_scale(&args.deployment, &PatchParams::default(), &scale).await?;
    Ok(())
}

/// Stops all replicas; gives how many there were meant to be.
async fn stop_operator(client: &Client, args: &UninstallArgs) -> anyhow::Result<i32> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.namespace);
    let Some(deployment) = deployments.get_opt(&args.deployment).await? else { return Ok(0) };
    scale(client, args, 0).await?;
    let spec = deployment.spec.unwrap_or_default();
    let labels = spec.selector.match_labels.unwrap_or_default();
    let selector = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let pods: Api<Pod> = Api::namespaced(client.clone(), &args.namespace);
    for pod in pods.list(&ListParams::default().labels(&selector)).await? {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let gone = await_condition(pods.clone(), &name, kube::runtime::conditions::is_deleted(&uid));
        tokio::time::timeout(STOP_TIMEOUT, gone).await.context("the operator's pods did not stop")??;
    }
    Ok(spec.replicas.unwrap_or(1))
}

async fn clear_finalizers<K>(client: &Client, ours: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    for object in Api::<K>::all(client.clone()).list(&ListParams::default()).await? {
        let left: Vec<_> = object.finalizers().iter().filter(|finalizer| *finalizer != ours).collect();
        if left.len() == object.finalizers().len() {
            continue;
        }
        let patch = json!({"metadata": {"finalizers": left, "resourceVersion": object.resource_version()}});
        let api = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}
