//! The leader label: on the pod that leads, and on no other. Nor is it on any pod while the election has no leader, when `leaderLabel` is switched
//! off, or when the election is gone, however it came there.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::peers::Peers;
use super::store::Store;
use crate::api::requests::{RequestError, request, request_unless_gone};
use crate::api::{DistributedLock, LEADER_LABEL_PREFIX, leader_label};
use crate::lock::model::status::is_unconfirmed;
use crate::runtime::cache::{Cache, Guarded};
use crate::runtime::context::Context;
use crate::runtime::scope::Scope;

/// How soon a label that no election asks for is noticed.
const TEND: Duration = Duration::from_secs(1);
/// A ReplicaSet that is scaled down deletes pods with lower costs first. Pods without the annotation have the cost 0.
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// A number that no other program is likely to use.
/// It tells our annotation from one that a person has set.
const LEADERS_COST: &str = "1000001";

/// Which pods have leader labels, as the watch shows them, and the way to change that.
pub(super) struct Labels {
    client: Client,
    pods: Cache<Pod>,
    wearers: Wearers,
}

impl Labels {
    /// No label was seen yet.
    pub(super) fn new(context: &Context) -> Self {
        Self { client: context.client.clone(), pods: context.pods.clone(), wearers: Wearers::default() }
    }

    /// Takes notice of the labels of a pod.
    pub(super) fn see(&self, pod: &Pod) {
        self.wearers.see(pod);
    }

    /// The label is on the leader's pod and on no other, unless the cache shows that already.
    pub(super) async fn ensure(&self, lock: &DistributedLock) -> Result<(), RequestError> {
        let Some((pod_name, pod_uid)) = wanted(lock) else { return self.ensure_none(lock).await };
        let name = name_of(lock);
        let pod = self.pods.named(&name.0, pod_name).filter(|pod| pod.uid().as_deref() == Some(pod_uid));
        let has_it = pod.is_some_and(|pod| pod.labels().contains_key(&leader_label(&name.1)));
        if !has_it || self.wearing(&name).iter().any(|pod| pod.uid().as_deref() != Some(pod_uid)) {
            set(&self.client, &name, pod_name, pod_uid).await?;
        }
        Ok(())
    }

    /// No pod has the label, if the lock wants it on none.
    pub(super) async fn ensure_none(&self, lock: &DistributedLock) -> Result<(), RequestError> {
        let name = name_of(lock);
        if wanted(lock).is_none() && !self.wearing(&name).is_empty() {
            clear(&self.client, &name, None).await?;
        }
        Ok(())
    }

    fn wearing(&self, name: &Name) -> Vec<Arc<Pod>> {
        self.wearers.of(name, |pod| self.pods.named(&name.0, pod))
    }
}

/// Removes wrong leader labels to which no change of a lock leads, in the namespaces of `scope`.
///
/// They belong to elections that are gone, or a person or a late patch has put them on. This does not end.
pub(super) async fn tend(labels: &Labels, store: &Store, peers: &Peers, scope: &Scope) {
    loop {
        tokio::time::sleep(TEND).await;
        for name in labels.wearers.names().into_iter().filter(|name| scope.contains(&name.0)) {
            if let Err(error) = tend_one(&name, &labels.wearing(&name), store, peers).await {
                tracing::debug!(lock = ?name, error = &error as &dyn std::error::Error, "leader label not corrected yet");
            }
        }
    }
}

async fn tend_one(name: &Name, wearing: &[Arc<Pod>], store: &Store, peers: &Peers) -> Result<(), RequestError> {
    let reference = ObjectRef::<DistributedLock>::new(&name.1).within(&name.0);
    match store.get(&reference) {
        Some(lock) if wearing.iter().any(|pod| pod.uid().as_deref() != wanted(&lock).map(|(_, uid)| uid)) => {
            peers.nudge(reference);
            Ok(())
        }
        None if !wearing.is_empty() => clear_of_nothing(store.client(), name).await,
        _ => Ok(()),
    }
}

/// The cache knows no such lock. It may be one that cannot be read, and its holder keeps its label.
async fn clear_of_nothing(client: &Client, name: &Name) -> Result<(), RequestError> {
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &name.0);
    if request(locks.get_metadata_opt(&name.1)).await?.is_none() {
        tracing::info!(namespace = name.0, lock = name.1, "taking a leader label off, there is no such lock");
        clear(client, name, None).await?;
    }
    Ok(())
}

/// Namespace and name of a lock.
pub(super) fn name_of(lock: &DistributedLock) -> Name {
    (lock.namespace().unwrap_or_default(), lock.name_any())
}

/// The pod that should carry the leader label, if the lock wants one.
pub(super) fn leader_label_wanted(lock: &DistributedLock) -> Option<&str> {
    lock.spec.election.as_ref().filter(|election| election.leader_label && !is_unconfirmed(lock))?;
    lock.status.as_ref()?.holder.as_ref()?.pod_name.as_deref()
}

/// Name and UID of the pod that is to wear the label.
fn wanted(lock: &DistributedLock) -> Option<(&str, &str)> {
    let holder = lock.status.as_ref()?.holder.as_ref()?;
    Some((leader_label_wanted(lock)?, holder.pod_uid.as_deref()?))
}

/// Puts the label of a lock on the pod with this UID.
///
/// Every other pod has lost it before (docs/dev/algorithm.md, "Order of writes"). A pod that is gone needs no label.
pub(super) async fn set(client: &Client, lock: &Name, pod_name: &str, pod_uid: &str) -> Result<(), RequestError> {
    clear(client, lock, Some(pod_uid)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &lock.0);
    let pod = match request(pods.get(pod_name)).await {
        Ok(pod) if pod.uid().as_deref() == Some(pod_uid) => pod,
        Ok(_) | Err(RequestError::Gone) => return Ok(()),
        Err(error) => return Err(error),
    };
    if pod.labels().contains_key(&leader_label(&lock.1)) {
        return Ok(());
    }
    write(&pods, &pod.metadata, &lock.1, json!("true")).await
}

/// Takes the label of a lock off every pod but the one with the UID `except`. Reads the API server, not a cache.
pub(super) async fn clear(client: &Client, lock: &Name, except: Option<&str>) -> Result<(), RequestError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &lock.0);
    // A pod that cannot be read has a label like any other.
    let labelled: Api<Guarded<Pod>> = Api::namespaced(client.clone(), &lock.0);
    let labelled = request(labelled.list(&ListParams::default().labels(&leader_label(&lock.1)))).await?;
    for pod in labelled.items.iter().filter(|pod| pod.uid().as_deref() != except) {
        write(&pods, pod.meta(), &lock.1, Value::Null).await?;
    }
    Ok(())
}

/// Patches the label of a pod, with the pod's resourceVersion.
///
/// So a leader that was frozen after it read the pod cannot write over what happened since.
async fn write(pods: &Api<Pod>, pod: &ObjectMeta, lock: &str, value: Value) -> Result<(), RequestError> {
    let cost = deletion_cost(pod, lock, !value.is_null());
    let mut patch = json!({"metadata": {
        "labels": {leader_label(lock): value}, "resourceVersion": pod.resource_version, "uid": pod.uid
    }});
    if let Some(cost) = cost {
        patch["metadata"]["annotations"] = json!({DELETION_COST_ANNOTATION: cost});
    }
    let name = pod.name.as_deref().unwrap_or_default();
    request_unless_gone(pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))).await
}

/// What the deletion cost of a pod becomes when it leads `lock`, or leads it no more; `None`: it stays. A cost that a person has set is
/// left alone, and one of ours stays while the pod leads another lock.
fn deletion_cost(pod: &ObjectMeta, lock: &str, leads: bool) -> Option<Value> {
    let cost = pod.annotations.as_ref().and_then(|annotations| annotations.get(DELETION_COST_ANNOTATION));
    let label = leader_label(lock);
    let leads_another =
        pod.labels.iter().flatten().any(|(name, _)| name.starts_with(LEADER_LABEL_PREFIX) && *name != label);
    match cost {
        None if leads => Some(json!(LEADERS_COST)),
        Some(cost) if cost == LEADERS_COST && !leads && !leads_another => Some(Value::Null),
        _ => None,
    }
}

/// Namespace and name of a lock, of which there may be none.
pub(super) type Name = (String, String);

/// Pods that were seen with leader labels, so that the leader need not look at all pods. Some may have lost them since: the cache of pods
/// says so.
#[derive(Debug, Default)]
struct Wearers(Mutex<HashMap<Name, BTreeSet<String>>>);

impl Wearers {
    /// Takes notice of the labels of a pod.
    fn see(&self, pod: &Pod) {
        for label in pod.labels().keys() {
            if let Some(lock) = label.strip_prefix(LEADER_LABEL_PREFIX) {
                let name = (pod.namespace().unwrap_or_default(), lock.to_owned());
                self.0.lock().entry(name).or_default().insert(pod.name_any());
            }
        }
    }

    /// The pods with the label of this lock, by what `pod` says of each.
    fn of(&self, name: &Name, pod: impl Fn(&str) -> Option<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let mut table = self.0.lock();
        let Some(names) = table.get_mut(name) else { return Vec::new() };
        let label = leader_label(&name.1);
        let mut wearing = Vec::new();
        names.retain(|name| match pod(name).filter(|pod| pod.labels().contains_key(&label)) {
            Some(pod) => {
                wearing.push(pod);
                true
            }
            None => false,
        });
        if names.is_empty() {
            table.remove(name);
        }
        wearing
    }

    /// The locks whose labels were seen.
    fn names(&self) -> Vec<Name> {
        self.0.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_costs_more_to_delete_unless_a_person_has_set_a_cost() {
        let pod = |labels: Value, cost: Option<&str>| -> ObjectMeta {
            let annotations = cost.map(|cost| json!({DELETION_COST_ANNOTATION: cost}));
            serde_json::from_value(json!({"labels": labels, "annotations": annotations})).unwrap()
        };
        let (one, two) = (leader_label("one"), leader_label("two"));
        assert_eq!(deletion_cost(&pod(json!({}), None), "one", true), Some(json!(LEADERS_COST)));
        assert_eq!(deletion_cost(&pod(json!({}), Some("7")), "one", true), None);
        assert_eq!(deletion_cost(&pod(json!({&one: "true"}), Some(LEADERS_COST)), "one", false), Some(Value::Null));
        assert_eq!(deletion_cost(&pod(json!({&one: "true"}), Some("7")), "one", false), None);
        let both = pod(json!({&one: "true", &two: "true"}), Some(LEADERS_COST));
        assert_eq!(deletion_cost(&both, "one", false), None, "it still leads the other");
    }

    #[test]
    fn no_pod_is_to_wear_the_label_while_nobody_leads_or_when_it_is_switched_off() {
        let lock = |leader_label: bool, status: Value| -> DistributedLock {
            let election = json!({"selector": {"matchLabels": {"app": "a"}}, "leaderLabel": leader_label});
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "app", "namespace": "ns"}, "spec": {"election": election}, "status": status}))
            .unwrap()
        };
        let held = json!({"transitions": 1, "holder": {"identity": "a-0", "podName": "a-0", "podUID": "u"}});
        assert_eq!(wanted(&lock(true, held.clone())), Some(("a-0", "u")));
        assert_eq!(wanted(&lock(false, held)), None);
        assert_eq!(wanted(&lock(true, json!({"transitions": 1}))), None);
    }

    fn pod(name: &str, labels: Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn pods_with_a_leader_label_are_found_without_a_look_at_all_pods_and_forgotten_without_it() {
        let wearers = Wearers::default();
        let worn = pod("a-0", json!({"leader.redlock-operator.io/app": "true", "app": "a"}));
        wearers.see(&worn);
        wearers.see(&pod("a-1", json!({"app": "a"})));
        let name: Name = ("ns".into(), "app".into());
        assert_eq!(wearers.names().as_slice(), std::slice::from_ref(&name));
        let found = wearers.of(&name, |asked| (asked == "a-0").then(|| worn.clone()));
        assert_eq!(found.len(), 1);
        assert!(wearers.of(&("other".into(), "app".into()), |_| Some(worn.clone())).is_empty());
        assert!(wearers.of(&name, |asked| Some(pod(asked, json!({"app": "a"})))).is_empty());
        assert!(wearers.names().is_empty());
    }
}
