//! Writes the built objects to the API server. The operator never takes over an object of the same name that belongs to another owner.

use kube::ResourceExt;
use serde::Serialize;

use super::certificates::Tls;
use super::error::{RESYNC, Result};
use super::memory::{Applied, SECRETS_PERIOD};
use super::observe::Observer;
use super::{clients, copies, owned};
use crate::api::requests::{Namespaced, is_ours};
use crate::quorum::model::build::{Objects, Transport, build, operator_pods};
use crate::quorum::model::expose::SUFFIX;
use crate::quorum::model::problems::Problem;
use crate::runtime::cache::{Cache, Kind};
use crate::time::Monotonic;

/// Writes every object that the quorum consists of.
pub(super) async fn apply(observer: &Observer<'_>, tls: &Tls) -> Result<Applied> {
    let (context, memory) = (observer.sources.context, observer.sources.memory);
    let replica = &context.replica;
    let labels = context.pods.named(&replica.namespace, &replica.pod_name).map(|pod| pod.labels().clone());
    let operators = operator_pods(&replica.namespace, &labels.unwrap_or_default());
    let mut objects = build(observer.plan, observer.auth, operators, &tls.transport);
    let without_certificate = tls.obstacle();
    if without_certificate.is_some() {
        // A new pod could not start, or the operator could not connect to it.
        objects.stateful_sets.clear();
    }
    let mut applied = keep_secrets(observer, &objects, &tls.transport).await?;
    let mut in_the_way: Vec<String> = applied.blocked_config.iter().cloned().collect();
    in_the_way.extend(memory.auth_obstacles.lock().values().cloned());
    in_the_way.extend(keep_objects(observer, &objects).await?);
    applied.obstacle =
        (!in_the_way.is_empty()).then(|| Problem::InTheWay { objects: in_the_way.join("; ") }).or(without_certificate);
    if applied.obstacle.is_some() || !applied.blocked_clients.is_empty() {
        // The operator does not watch such an object, so it checks again after a while.
        applied.due = applied.due.min(observer.sources.cluster.after(SECRETS_PERIOD));
    }
    let now = observer.sources.cluster.now();
    applied.due =
        memory.kept.lock().values().filter_map(|kept| kept.paused_until(now)).fold(applied.due, Monotonic::min);
    *memory.applied.lock() = Some(applied.clone());
    Ok(applied)
}

/// Applies the Secrets, before the StatefulSets whose pods need them.
///
/// The operator reads Secrets one by one, so it does not read them in every reconciliation.
async fn keep_secrets(observer: &Observer<'_>, objects: &Objects, transport: &Transport) -> Result<Applied> {
    let (cluster, memory) = (observer.sources.cluster, &observer.sources.memory.applied);
    let secrets = (objects.config.clone(), objects.clients.clone());
    let remembered = memory.lock().clone().filter(|applied| applied.secrets == secrets);
    let fresh = remembered.and_then(|applied| Some(Applied { due: applied.fresh_until(cluster.now())?, ..applied }));
    if let Some(fresh) = fresh {
        return Ok(fresh);
    }
    let (sources, plan) = (&observer.sources, observer.plan);
    let mut blocked_clients = clients::change(observer).await?;
    let clients_changed = blocked_clients.is_empty();
    let blocked_config = if clients_changed { owned::keep(sources, plan, &secrets.0, None).await? } else { None };
    for secret in &secrets.1 {
        blocked_clients.extend(owned::keep(sources, plan, secret, None).await?);
    }
    blocked_clients.extend(copies::keep(observer, transport).await?);
    blocked_clients.extend(clients::without_grants(&observer.observe()));
    let config_kept = clients_changed && blocked_config.is_none();
    let (at, due) = (cluster.now(), cluster.after(RESYNC));
    let applied = Applied { secrets, blocked_clients, blocked_config, config_kept, obstacle: None, at, due };
    *memory.lock() = Some(applied.clone());
    Ok(applied)
}

/// Applies all other objects, and returns the obstacle.
async fn keep_objects(observer: &Observer<'_>, objects: &Objects) -> Result<Vec<String>> {
    // The fields are listed one by one, so that the compiler reports a new field of `Objects` here.
    let Objects { config: _, services, disruption_budget, network_policy, clients: _, stateful_sets } = objects;
    let owned = observer.owned;
    let mut in_the_way = keep_watched(observer, &owned.services, services).await?;
    hide(observer).await?;
    in_the_way.extend(keep_watched(observer, &owned.budgets, disruption_budget).await?);
    in_the_way.extend(keep_watched(observer, &owned.policies, network_policy).await?);
    in_the_way.extend(keep_watched(observer, &owned.stateful_sets, stateful_sets).await?);
    Ok(in_the_way)
}

/// Applies objects of a watched kind, and returns the obstacle.
async fn keep_watched<'k, K: Kind + Namespaced + Serialize>(
    observer: &Observer<'_>,
    cache: &Cache<K>,
    objects: impl IntoIterator<Item = &'k K>,
) -> Result<Vec<String>> {
    let mut in_the_way = Vec::new();
    for object in objects {
        let live = cache.named(&observer.plan.namespace, &object.name_any());
        in_the_way.extend(owned::keep(&observer.sources, observer.plan, object, live.as_deref()).await?);
    }
    Ok(in_the_way)
}

/// Removes the Services that expose members to the outside, except those of the plan.
async fn hide(observer: &Observer<'_>) -> Result<()> {
    let plan = observer.plan;
    let wanted = |name: &str| plan.expose.is_some() && plan.members.iter().any(|m| m.external_name() == name);
    for service in observer.owned.services.all() {
        let name = service.name_any();
        let ours = service.namespace().as_ref() == Some(&plan.namespace) && is_ours(service.as_ref(), &plan.owner.uid);
        let ends = service.metadata.deletion_timestamp.is_some();
        if !ours || ends || !name.ends_with(SUFFIX) || wanted(&name) {
            continue;
        }
        if observer.sources.cluster.delete(service.as_ref()).await? {
            tracing::info!(quorum = %plan.name, service = %name, "deleted a Service, because the member is no longer exposed");
        }
    }
    Ok(())
}
