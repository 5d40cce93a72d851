//! Repairs objects of a quorum that a user or a tool has deleted, edited or extended.
//!
//! The operator replaces an object as a whole, which removes the fields of other writers. A server-side apply would keep
//! them. The reply of the API server contains its defaults and the fields of admission webhooks. So an object that differs from
//! the last reply was edited since, and an equal one is correct.
//!
//! Annotations and finalizers on the object itself stay. Controllers and tools keep their data there, and would restore
//! removed ones in an endless loop.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::cluster::Cluster;
use super::error::Result;
use super::memory::{Digest, Kept, KeptObjects};
use super::snapshot::Sources;
use crate::api::QUORUM_LABEL;
use crate::api::requests::{Namespaced, RequestError, is_ours, put};
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::plan::Plan;
use crate::runtime::cache::Cache;
use crate::runtime::context::{Context, existing};

/// The watches of the objects of quorums.
///
/// Secrets are not watched, because the operator cannot list them.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) stateful_sets: Cache<StatefulSet>,
    pub(super) services: Cache<Service>,
    pub(super) budgets: Cache<PodDisruptionBudget>,
    pub(super) policies: Cache<NetworkPolicy>,
}

impl Owned {
    /// Empty caches, and the future that fills them.
    ///
    /// No step waits for the caches, because the operator reads an object that is not in its cache from the API server.
    pub(super) fn new(context: &Context) -> (Self, impl Future<Output = ()> + Send + 'static + use<>) {
        let (client, scope, clock) = (&context.client, &context.replica.settings.quorums, &context.clock);
        let ours = || watcher::Config::default().labels(QUORUM_LABEL);
        let exists = || existing(&context.namespaces);
        let (stateful_sets, follow_stateful_sets) = Cache::of_existing(scope.apis(client), clock, ours(), exists());
        let (services, follow_services) = Cache::of_existing(scope.apis(client), clock, ours(), exists());
        let (budgets, follow_budgets) = Cache::of_existing(scope.apis(client), clock, ours(), exists());
        let (policies, follow_policies) = Cache::of_existing(scope.apis(client), clock, ours(), exists());
        let follow = async move {
            tokio::join!(follow_stateful_sets, follow_services, follow_budgets, follow_policies);
        };
        (Self { stateful_sets, services, budgets, policies }, follow)
    }
}

/// Gives an object its desired state, and returns the obstacle, if there is one.
///
/// `live` is the watched object, if there is one. An edit that follows a repair stays until the pause has passed. There are three
/// obstacles: another owner's object has the name, our object is being deleted, or the API server refuses the write.
pub(super) async fn keep<K: Namespaced + Serialize>(
    sources: &Sources<'_>,
    plan: &Plan,
    desired: &K,
    live: Option<&K>,
) -> Result<Option<String>> {
    let (cluster, kept) = (sources.cluster, &sources.memory.kept);
    let kept_before = kept.lock().get(&key_of(desired)).cloned();
    let wanted = digest(desired);
    let was_wanted = kept_before.as_ref().is_some_and(|kept_before| kept_before.wanted == wanted);
    let is_kept = |found: &&K| was_wanted && is_kept(kept, *found) && has_notes(desired, found);
    let paused = || was_wanted && kept_before.as_ref().is_some_and(|kept| kept.paused_until(cluster.now()).is_some());
    if live.as_ref().is_some_and(|live| is_kept(live) || paused()) {
        return Ok(None);
    }
    let name = desired.name_any();
    let found = cluster.get::<K>(&plan.namespace, &name).await?;
    // The watch lags, or does not have the object.
    if found.as_ref().is_some_and(|found| is_kept(&found)) {
        return Ok(None);
    }
    let is_made = |found: &K| kept_before.as_ref().is_some_and(|kept| kept.uid.is_some() && kept.uid == found.uid());
    if let Some(refusal) = found.as_ref().and_then(|found| refusal(found, plan, is_made(found))) {
        return Ok(Some(refusal));
    }
    let next = found.as_ref().map_or_else(|| desired.clone(), |found| over(desired, found));
    let written = match put(&cluster.api(&plan.namespace), next, found.as_ref()).await {
        Ok(written) => written,
        Err(error) => return refused::<K>(&name, error).map(Some),
    };
    let changed = found.and_then(|found| found.resource_version()) != written.resource_version();
    let mended = (changed && was_wanted).then(|| cluster.now());
    if mended.is_some() {
        cluster.publish_event(QuorumEvent::Mended { kind: K::kind(&()).into_owned(), name }).await;
    }
    let (is, version, uid) = (digest(&written), written.resource_version(), written.uid());
    kept.lock().insert(key_of(desired), Kept { wanted, is, version, uid, mended });
    Ok(None)
}

/// Deletes an object of a member, if this quorum owns it.
///
/// Returns whether the object no longer exists. It reads from the API server, because a new watch does not have the object yet.
pub(super) async fn remove<K: Namespaced>(sources: &Sources<'_>, plan: &Plan, name: &str) -> Result<bool> {
    let Sources { cluster, memory, .. } = sources;
    let found = cluster.get::<K>(&plan.namespace, name).await?;
    let Some(found) = found.filter(|found| is_ours(found, &plan.owner.uid)) else { return Ok(true) };
    if found.meta().deletion_timestamp.is_none() {
        // The deletion is intended, so the operator must not undo it.
        memory.kept.lock().remove(&key_of(&found));
        cluster.delete(&found).await?;
    }
    Ok(false)
}

/// Whether the object is in the last state that the operator confirmed. A confirmed version is not compared again.
pub(super) fn is_kept<K: Resource<DynamicType = ()> + Serialize>(kept: &Mutex<KeptObjects>, object: &K) -> bool {
    kept.lock().get_mut(&key_of(object)).is_some_and(|kept| {
        let version = object.resource_version();
        if kept.version != version && kept.is == digest(object) {
            kept.version.clone_from(&version);
        }
        version.is_some() && kept.version == version
    })
}

fn key_of<K: Resource<DynamicType = ()>>(object: &K) -> (String, String) {
    (K::kind(&()).into_owned(), object.name_any())
}

/// Why the operator must not touch an existing object.
///
/// `is_made`: the operator made it, although a user has removed its owner.
pub(super) fn refusal<K: Namespaced>(found: &K, plan: &Plan, is_made: bool) -> Option<String> {
    let (kind, name) = key_of(found);
    match found.meta().deletion_timestamp {
        _ if !is_made && !is_ours(found, &plan.owner.uid) => Some(Blocked::Foreign { kind, name }.to_string()),
        Some(_) => Some(Blocked::BeingDeleted { kind, name }.to_string()),
        None => None,
    }
}

/// The refusal of the API server, if only a user can resolve it. Its message names fields, never contents of Secrets.
fn refused<K: Resource<DynamicType = ()>>(name: &str, error: RequestError) -> Result<String> {
    let refusal = error.refusal(&[403, 422]).map(str::to_owned);
    let (kind, name, error) = (K::kind(&()).into_owned(), name.to_owned(), refusal.ok_or(error)?);
    Ok(Blocked::Refused { kind, name, error }.to_string())
}

/// Writes a Secret over the version that was read. Returns the refusal of the API server.
///
/// It fails with a conflict if another leader wrote first. The next reconciliation reads the Secret of that leader.
pub(super) async fn write_secret(
    cluster: &Cluster<'_>,
    plan: &Plan,
    mut secret: Secret,
    found: Option<&Secret>,
) -> Result<Option<String>> {
    if let Some(found) = found {
        // The type of a Secret cannot be changed.
        secret.type_.clone_from(&found.type_);
    }
    let name = secret.name_any();
    match put(&cluster.api(&plan.namespace), secret, found).await {
        Ok(_written) => Ok(None),
        Err(error) => refused::<Secret>(&name, error).map(Some),
    }
}

/// The object that replaces `found`.
///
/// It has the version of `found`, so that the API server refuses it after a change in between. It keeps the annotations of other writers.
fn over<K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned>(desired: &K, found: &K) -> K {
    let mut next = with_load_balancer(desired.clone(), found);
    let mut annotations = found.annotations().clone();
    annotations.extend(desired.annotations().clone());
    let meta = next.meta_mut();
    meta.resource_version = found.resource_version();
    meta.finalizers = found.meta().finalizers.clone();
    meta.annotations = (!annotations.is_empty()).then_some(annotations);
    next
}

/// Fields of a Service that controllers of load balancers write, and the operator never does.
const OF_LOAD_BALANCERS: [&str; 3] = ["loadBalancerIP", "loadBalancerClass", "healthCheckNodePort"];

/// The object with those fields of `found`.
///
/// A class cannot be removed, and a controller would write the other fields again.
fn with_load_balancer<K: Serialize + DeserializeOwned>(next: K, found: &K) -> K {
    let fields = |object: &K| serde_json::to_value(object).ok();
    let Some((mut value, found)) = fields(&next).zip(fields(found)) else { return next };
    for field in OF_LOAD_BALANCERS {
        if let Some(is) = found.pointer(&format!("/spec/{field}")) {
            value["spec"][field] = is.clone();
        }
    }
    serde_json::from_value(value).unwrap_or(next)
}

/// Whether an object has the desired annotations. Other annotations do not matter.
fn has_notes<K: Resource>(desired: &K, found: &K) -> bool {
    desired.annotations().iter().all(|(key, value)| found.annotations().get(key) == Some(value))
}

fn digest<K: Resource + Serialize>(object: &K) -> Digest {
    Sha256::digest(canonical(object).to_string()).into()
}

/// All fields of an object that only the operator can change.
fn canonical<K: Resource + Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    let meta = object.meta();
    value["metadata"] = json!({
        "uid": meta.uid,
        "labels": meta.labels,
        "ownerReferences": meta.owner_references,
        "deletionTimestamp": meta.deletion_timestamp,
    });
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|field, _| !OF_LOAD_BALANCERS.contains(&field.as_str()));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::test_util::parsed;
    use crate::quorum::controller::error::Error;

    #[test]
    fn a_refused_secret_is_named_and_other_errors_end_the_visit() {
        let quota =
            "exceeded quota: secrets, requested: count/secrets=1, used: count/secrets=3, limited: count/secrets=3";
        let failed = |code: u16, reason: &str| {
            let status = json!({"status": "Failure", "message": quota, "code": code, "reason": reason});
            RequestError::from(kube::Error::Api(parsed(status)))
        };
        let named = refused::<Secret>("q-auth", failed(403, "Forbidden")).unwrap();
        assert!(named.contains("q-auth") && named.contains(quota), "{named}");
        assert!(matches!(
            refused::<Secret>("q-auth", failed(409, "Conflict")),
            Err(Error::Request(RequestError::Conflict))
        ));
        assert!(refused::<Secret>("q-auth", failed(500, "InternalError")).is_err());
    }

    fn service(value: Value) -> Service {
        parsed(value)
    }

    #[test]
    fn fields_of_other_writers_are_not_compared() {
        let base =
            json!({"metadata": {"name": "q-0", "uid": "u", "labels": {"a": "b"}}, "spec": {"clusterIP": "None"}});
        let changed = |pointer: &str, field: &str, value: Value| {
            let mut other = base.clone();
            other.pointer_mut(pointer).unwrap()[field] = value;
            canonical(&service(other)) != canonical(&service(base.clone()))
        };
        assert!(!changed("/metadata", "resourceVersion", json!("7")));
        assert!(!changed("/metadata", "annotations", json!({"a": "b"})));
        assert!(!changed("", "status", json!({"loadBalancer": {}})));
        assert!(changed("/metadata", "uid", json!("v")));
        assert!(changed("/metadata/labels", "c", json!("d")));
        assert!(changed("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")));
        assert!(changed("/spec", "ports", json!([{"port": 1}])));
        assert!(!changed("/spec", "loadBalancerIP", json!("192.0.2.1")), "a load balancer's controller writes it");
    }

    #[test]
    fn each_version_of_an_object_is_compared_once() {
        let version = |version: &str, cluster_ip: &str| {
            service(json!({"metadata": {"name": "q-0", "resourceVersion": version}, "spec": {"clusterIP": cluster_ip}}))
        };
        let confirmed = version("7", "None");
        let (is, version_7) = (digest(&confirmed), confirmed.resource_version());
        let entry = Kept { wanted: is, is, version: version_7, uid: None, mended: None };
        let kept = Mutex::new(KeptObjects::from([(key_of(&confirmed), entry)]));
        assert!(is_kept(&kept, &confirmed));
        assert!(!is_kept(&kept, &version("8", "10.0.0.1")), "an edit");
        assert!(is_kept(&kept, &version("9", "None")), "only the status differs");
        let again = kept.lock()[&key_of(&confirmed)].version.clone();
        assert_eq!(again.as_deref(), Some("9"), "the next reconciliation has nothing to compare");
    }

    #[test]
    fn only_the_operators_own_annotations_are_compared() {
        let with = |annotations: Value| service(json!({"metadata": {"annotations": annotations}}));
        let desired = with(json!({"a": "1"}));
        assert!(has_notes(&desired, &with(json!({"a": "1", "b": "2"}))));
        assert!(!has_notes(&desired, &with(json!({"a": "2"}))) && !has_notes(&desired, &with(json!({}))));
    }

    #[test]
    fn an_update_keeps_foreign_annotations_and_finalizers() {
        let desired =
            service(json!({"metadata": {"name": "q-0", "labels": {"a": "b"}}, "spec": {"clusterIP": "None"}}));
        let found = service(json!({
            "metadata": {"name": "q-0", "resourceVersion": "7", "finalizers": ["x/y"], "annotations": {"n": "1"},
                "labels": {"a": "c", "d": "e"}},
            "spec": {"clusterIP": "None", "ports": [{"port": 1}], "loadBalancerClass": "vip"},
        }));
        let next = serde_json::to_value(over(&desired, &found)).unwrap();
        let metadata = json!({"name": "q-0", "resourceVersion": "7", "finalizers": ["x/y"], "annotations": {"n": "1"},
            "labels": {"a": "b"}});
        assert_eq!(
            (&next["metadata"], &next["spec"]),
            (&metadata, &json!({"clusterIP": "None", "loadBalancerClass": "vip"}))
        );
    }
}
