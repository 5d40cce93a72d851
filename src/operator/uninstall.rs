//! `redlock uninstall-check`: what `helm uninstall` asks before it removes anything.
//!
//! Without the operator, held locks are not renewed, and finalizers are not removed. So this command refuses while a lock is held. Otherwise it
//! stops the operator and removes its finalizers.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde_json::json;

use super::args::Scopes;
use crate::api::{DistributedLock, LOCK_FINALIZER, QUORUM_FINALIZER, RedisQuorum};
use crate::runtime::cache::{Guarded, Kind};
use crate::runtime::scope::Scope;
use crate::runtime::settings::unreadable_installation;

/// How long the API server can be silent within one request.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the operator's pods can take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
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
struct Installation {
    client: Client,
    name: String,
    locks: Scope,
    quorums: Scope,
}

/// Refuses while locks are held. Otherwise it stops the operator, and removes its finalizers.
pub async fn run(args: UninstallArgs) -> anyhow::Result<()> {
    let mut config = Config::infer().await.context("failed to find the API server: in a pod, or with KUBECONFIG?")?;
    (config.read_timeout, config.write_timeout) = (Some(SILENCE_TIMEOUT), Some(SILENCE_TIMEOUT));
    let client = Client::try_from(config)?;
    let installation = Installation {
        client: client.clone(),
        name: args.scopes.installation.clone(),
        locks: args.scopes.locks(),
        quorums: args.scopes.quorums(),
    };
    installation.refuse_if_held().await?;
    let replicas = stop_operator(&client, &args).await?;
    // The operator granted a lock while it was stopping, so it must start again and renew that lock.
    if let Err(held) = installation.refuse_if_held().await {
        scale(&client, &args, replicas).await?;
        return Err(held);
    }
    installation.clear().await
}

impl Installation {
    async fn all<K>(&self, scope: &Scope) -> anyhow::Result<Vec<Guarded<K>>>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        let mut all = Vec::new();
        for api in scope.apis::<Guarded<K>>(&self.client) {
            match api.list(&ListParams::default()).await {
                Ok(objects) => all.extend(objects),
                // The kind was deleted, with all its objects.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
        all.retain(|object| scope.contains(&object.namespace().unwrap_or_default()));
        Ok(all)
    }

    /// The UIDs of the quorums that other operators serve.
    ///
    /// These quorums and the locks on them do not belong to this installation.
    async fn others(&self) -> anyhow::Result<HashSet<String>> {
        let quorums = self.all::<RedisQuorum>(&self.quorums).await?;
        let of_others = quorums.iter().filter(|quorum| installation(quorum) != self.name);
        Ok(of_others.filter_map(ResourceExt::uid).collect())
    }

    async fn refuse_if_held(&self) -> anyhow::Result<()> {
        let (locks, others) = (self.all::<DistributedLock>(&self.locks).await?, self.others().await?);
        let held: Vec<_> = locks
            .iter()
            .filter(|lock| held_on(lock).is_some_and(|quorum| quorum.is_none_or(|uid| !others.contains(&uid))))
            .map(|lock| format!("kubectl delete dlock -n {} {}", lock.namespace().unwrap_or_default(), lock.name_any()))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        let more = held.len().saturating_sub(NAMED);
        let named = held.iter().take(NAMED).cloned().collect::<Vec<_>>().join("\n  ");
        let rest = if more > 0 { format!("\n  and {more} more: kubectl get dlock -A") } else { String::new() };
        bail!(
            "{} locks are held, and nothing would renew them without the operator, so nothing was removed. Release them, then run helm uninstall again:\n  {named}{rest}\nThe lock of an election, and of a claim that names a pod, is held until its ttl has passed; kubectl delete waits for that.",
            held.len()
        );
    }

    /// Removes our finalizers, which would block the deletion of the objects.
    async fn clear(&self) -> anyhow::Result<()> {
        let others = self.others().await?;
        for lock in self.all::<DistributedLock>(&self.locks).await? {
            if held_on(&lock).flatten().is_none_or(|quorum| !others.contains(&quorum)) {
                self.clear_finalizer(&lock, LOCK_FINALIZER).await?;
            }
        }
        for quorum in self.all::<RedisQuorum>(&self.quorums).await? {
            if quorum.uid().is_none_or(|uid| !others.contains(&uid)) {
                self.clear_finalizer(&quorum, QUORUM_FINALIZER).await?;
            }
        }
        Ok(())
    }

    async fn clear_finalizer<K>(&self, object: &Guarded<K>, ours: &str) -> anyhow::Result<()>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
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

/// The installation that serves a quorum.
fn installation(quorum: &Guarded<RedisQuorum>) -> &str {
    match quorum {
        Guarded::Read(quorum) => &quorum.spec.installation,
        Guarded::Unreadable(raw) => unreadable_installation(raw),
    }
}

/// Whether a lock is held, and the UID of its quorum, if the status has it.
///
/// The status of an unreadable lock is included.
fn held_on(lock: &Guarded<DistributedLock>) -> Option<Option<String>> {
    match lock {
        Guarded::Read(lock) => {
            let holder = lock.holder()?;
            Some(holder.quorum.as_ref().map(|quorum| quorum.uid.clone()))
        }
        Guarded::Unreadable(raw) => {
            let holder = raw.status("holder")?;
            Some(holder.pointer("/quorum/uid").and_then(|uid| uid.as_str()).map(str::to_owned))
        }
    }
}

async fn scale(client: &Client, args: &UninstallArgs, replicas: i32) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &args.namespace);
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments.patch_scale(&args.deployment, &PatchParams::default(), &scale).await?;
    Ok(())
}

/// Stops all replicas, and returns their desired number before the stop.
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
