//! Objects of a quorum as they shall be, whatever somebody has made of them: deleted, edited or added to.
//!
//! An object is replaced as a whole, so that fields which somebody has added go too (a server-side apply leaves them alone). The
//! API server fills in its defaults, and whatever other admission adds, in its answer; so an object that differs from the last
//! answer has been touched by somebody, and one that does not is as it shall be. Annotations and finalizers on
//! the object itself are left alone: controllers and tools keep their notes there, and removing them would start a quarrel.

use std::collections::HashMap;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Error, Task, request};
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::events::QuorumEvent;
use crate::{
    api::{FIELD_MANAGER, QUORUM_LABEL},
    quorum::model::plan::Plan,
    runtime::{
        cache::{Cache, Shape},
        scope::Scope,
    },
};

/// What the leader watches of the objects that quorums are made of. Secrets are not watched: nobody here may list them.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) stateful_sets: Cache<StatefulSet>,
    pub(super) services: Cache<Service>,
    pub(super) budgets: Cache<PodDisruptionBudget>,
    pub(super) policies: Cache<NetworkPolicy>,
}

impl Owned {
    /// Empty caches, and the future that fills them. Nobody has to wait for that: an object that is not in its cache is asked for.
    pub(super) fn new(client: &Client, scope: &Scope) -> (Self, impl Future<Output = ()> + Send + 'static + use<>) {
        let ours = || watcher::Config::default().labels(QUORUM_LABEL);
        let (stateful_sets, follow_stateful_sets) = Cache::scoped(client, scope, ours(), Shape::whole());
        let (services, follow_services) = Cache::scoped(client, scope, ours(), Shape::whole());
        let (budgets, follow_budgets) = Cache::scoped(client, scope, ours(), Shape::whole());
        let (policies, follow_policies) = Cache::scoped(client, scope, ours(), Shape::whole());
        let follow = async move {
            tokio::join!(follow_stateful_sets, follow_services, follow_budgets, follow_policies);
        };
        (Self { stateful_sets, services, budgets, policies }, follow)
    }
}

/// Objects that were as they shall be, by kind and name.
pub(super) type Settled = HashMap<(String, String), Kept>;

/// One such object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// What was asked for.
    wanted: Value,
    /// What the API server made of it.
    is: Value,
}

/// The outcome for one object.
pub(super) enum Outcome {
    /// It is as it shall be.
    Kept,
    /// Another owner's object has the name, ours is being deleted, or it was refused.
    InTheWay(String),
}

impl Task<'_> {
    /// Makes an object what it shall be; `live` is what the watch says of it, if there is one.
    pub(super) async fn keep<K>(&self, plan: &Plan, desired: &K, live: Option<&K>) -> Result<Outcome, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let known = self.kept(desired);
        let wanted = canonical(desired);
        let is_kept = |found: &K| {
            let known = known.as_ref();
            known.is_some_and(|known| known.wanted == wanted && known.is == canonical(found))
                && has_notes(desired, found)
        };
        if live.is_some_and(is_kept) {
            return Ok(Outcome::Kept);
        }
        let api: Api<K> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let name = desired.name_any();
        let found = request(api.get_opt(&name)).await?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let written = match &found {
            // The watch lags, or there is none.
            Some(found) if is_kept(found) => return Ok(Outcome::Kept),
            Some(found) => {
                if let Some(refusal) = refusal(found, plan, known.as_ref()) {
                    return Ok(Outcome::InTheWay(refusal));
                }
                request(api.replace(&name, &params, &over(desired, found))).await
            }
            None => request(api.create(&params, desired)).await,
        };
        let written = match written {
            Ok(written) => written,
            Err(Error::Api(error)) => return refused::<K>(&name, error).map(Outcome::InTheWay),
            Err(error) => return Err(error),
        };
        let changed = found.and_then(|found| found.resource_version()) != written.resource_version();
        if changed && known.is_some_and(|known| known.wanted == wanted) {
            self.say_mended::<K>(&name).await;
        }
        let kept = Kept { wanted, is: canonical(&written) };
        self.leader.memory(self.session.uid(), |memory| memory.settled.insert(key_of(desired), kept));
        Ok(Outcome::Kept)
    }

    /// Whether this is the object as the API server had it when it was last known to be as it shall be.
    pub(super) fn is_settled<K: Resource<DynamicType = ()> + Serialize>(&self, object: &K) -> bool {
        self.kept(object).is_some_and(|kept| kept.is == canonical(object))
    }

    /// The object shall be no more: its end is nobody's fault.
    pub(super) fn forget_settled<K: Resource<DynamicType = ()>>(&self, name: &str) {
        let key = (K::kind(&()).into_owned(), name.to_owned());
        self.leader.memory(self.session.uid(), |memory| memory.settled.remove(&key));
    }

    fn kept<K: Resource<DynamicType = ()>>(&self, object: &K) -> Option<Kept> {
        self.leader.memory(self.session.uid(), |memory| memory.settled.get(&key_of(object)).cloned())
    }

    async fn say_mended<K: Resource<DynamicType = ()>>(&self, name: &str) {
        let kind = K::kind(&()).into_owned();
        self.tell(QuorumEvent::Mended { kind, name: name.to_owned() }).await;
    }
}

fn key_of<K: Resource<DynamicType = ()>>(object: &K) -> (String, String) {
    (K::kind(&()).into_owned(), object.name_any())
}

/// Why an object that exists may not be touched.
fn refusal<K: Resource<DynamicType = ()>>(found: &K, plan: &Plan, known: Option<&Kept>) -> Option<String> {
    let (kind, name) = (K::kind(&()).into_owned(), found.name_any());
    let owned = found.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == plan.uid);
    // Ours, although somebody took the owner off it.
    let made = known.is_some_and(|known| known.is["metadata"]["uid"].as_str() == found.uid().as_deref());
    if !owned && !made {
        Some(Blocked::Foreign { kind, name }.to_string())
    } else if found.meta().deletion_timestamp.is_some() {
        Some(Blocked::BeingDeleted { kind, name }.to_string())
    } else {
        None
    }
}

/// What the API server will not have for reasons that a person has to see. Its message names fields, never contents of Secrets.
fn refused<K: Resource<DynamicType = ()>>(name: &str, error: Box<kube::Error>) -> Result<String, Error> {
    match error.as_ref() {
        kube::Error::Api(status) if [403, 422].contains(&status.code) => {
            let (kind, name, error) = (K::kind(&()).into_owned(), name.to_owned(), status.message.clone());
            Ok(Blocked::Refused { kind, name, error }.to_string())
        }
        _ => Err(Error::Api(error)),
    }
}

/// The object that takes the place of `found`: with its version, so that a change in between is seen, and with the notes of
/// others.
fn over<K: Resource<DynamicType = ()> + Clone>(desired: &K, found: &K) -> K {
    let mut next = desired.clone();
    let mut annotations = found.annotations().clone();
    annotations.extend(desired.annotations().clone());
    let meta = next.meta_mut();
    meta.resource_version = found.resource_version();
    meta.finalizers = found.meta().finalizers.clone();
    meta.annotations = (!annotations.is_empty()).then_some(annotations);
    next
}

/// Whether an object has the annotations that it shall have; others do not matter.
fn has_notes<K: Resource>(desired: &K, found: &K) -> bool {
    desired.annotations().iter().all(|(key, value)| found.annotations().get(key) == Some(value))
}

/// All of an object that nobody else may change.
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
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_nobody_else_may_change_is_compared() {
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
    }

    #[test]
    fn own_notes_are_kept_and_others_do_not_matter() {
        let with = |annotations: Value| service(json!({"metadata": {"annotations": annotations}}));
        let desired = with(json!({"a": "1"}));
        assert!(has_notes(&desired, &with(json!({"a": "1", "b": "2"}))));
        assert!(!has_notes(&desired, &with(json!({"a": "2"}))) && !has_notes(&desired, &with(json!({}))));
    }

    #[test]
    fn notes_of_others_survive_and_nothing_else() {
        let desired =
            service(json!({"metadata": {"name": "q-0", "labels": {"a": "b"}}, "spec": {"clusterIP": "None"}}));
        let found = service(json!({
            "metadata": {"name": "q-0", "resourceVersion": "7", "finalizers": ["x/y"], "annotations": {"n": "1"},
                "labels": {"a": "c", "d": "e"}},
            "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        }));
        let next = serde_json::to_value(over(&desired, &found)).unwrap();
        let metadata = json!({"name": "q-0", "resourceVersion": "7", "finalizers": ["x/y"], "annotations": {"n": "1"},
            "labels": {"a": "b"}});
        assert_eq!((&next["metadata"], &next["spec"]), (&metadata, &json!({"clusterIP": "None"})));
    }
}
