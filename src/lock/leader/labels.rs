//! The leader label: on the pod that leads, and on no other. Nor is it on any pod while nobody leads, when `leaderLabel` is switched
//! off, or when the election is gone, however it came there.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use serde_json::{Value, json};

use super::{
    locks::{Error, Locks},
    wearers::Name,
};
use crate::{
    api::{DistributedLock, LEADER_LABEL_PREFIX, leader_label},
    lock::replica::writes::{WriteError, request},
    runtime::cache::Guarded,
};

/// How soon a label that nobody asked for is noticed.
const TEND: Duration = Duration::from_secs(1);
/// A ReplicaSet that is scaled down deletes pods with lower costs first. Pods without the annotation have the cost 0.
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Nobody else is likely to use this number, so that it tells our annotation from one that a person has set.
const LEADERS_COST: &str = "1000001";

impl Locks {
    /// The label is on the leader's pod and on no other, unless the cache shows that already.
    pub(super) async fn ensure_label(&self, lock: &DistributedLock) -> Result<(), Error> {
        let Some((pod_name, pod_uid)) = wanted(lock) else { return self.ensure_no_label(lock).await };
        let (namespace, name) = name_of(lock);
        let pod = self.context.pods.named(&namespace, pod_name).filter(|pod| pod.uid().as_deref() == Some(pod_uid));
        let has_it = pod.is_some_and(|pod| pod.labels().contains_key(&leader_label(&name)));
        if !has_it
            || self.wearing(&(namespace.clone(), name.clone())).iter().any(|pod| pod.uid().as_deref() != Some(pod_uid))
        {
            set(&self.context.client, &namespace, &name, pod_name, pod_uid).await?;
        }
        Ok(())
    }

    /// No pod has the label, if the lock wants it on none.
    pub(super) async fn ensure_no_label(&self, lock: &DistributedLock) -> Result<(), Error> {
        let name = name_of(lock);
        if wanted(lock).is_none() && !self.wearing(&name).is_empty() {
            clear(&self.context.client, &name.0, &name.1, None).await?;
        }
        Ok(())
    }

    fn wearing(&self, name: &Name) -> Vec<Arc<Pod>> {
        self.wearers.of(name, |pod| self.context.pods.named(&name.0, pod))
    }

    /// Sees to labels that no change of a lock leads to: of elections that are gone, or that a person or a late patch has put on. Does
    /// not end.
    pub(super) async fn tend_labels(&self) {
        loop {
            tokio::time::sleep(TEND).await;
            for name in self.wearers.names() {
                if !self.context.replica.settings.locks.contains(&name.0) {
                    continue;
                }
                let wearing = self.wearing(&name);
                if let Err(error) = self.tend(&name, &wearing).await {
                    tracing::debug!(lock = ?name, error = &error as &dyn std::error::Error, "leader label not mended yet");
                }
            }
        }
    }

    async fn tend(&self, name: &Name, wearing: &[Arc<Pod>]) -> Result<(), WriteError> {
        let reference = ObjectRef::<DistributedLock>::new(&name.1).within(&name.0);
        match self.context.locks.get(&reference).map(|lock| self.written.newest(lock)) {
            Some(lock) if wearing.iter().any(|pod| pod.uid().as_deref() != wanted(&lock).map(|(_, uid)| uid)) => {
                // Nobody listens only while the controller is being stopped.
                let _ = self.nudges.send(reference);
                Ok(())
            }
            None if !wearing.is_empty() => self.clear_of_nothing(name).await,
            _ => Ok(()),
        }
    }

    /// The cache knows no such lock. It may be one that cannot be read, and its holder keeps its label.
    async fn clear_of_nothing(&self, (namespace, name): &Name) -> Result<(), WriteError> {
        let locks: Api<DistributedLock> = Api::namespaced(self.context.client.clone(), namespace);
        if request(locks.get_metadata_opt(name)).await?.is_none() {
            tracing::info!(namespace, lock = name, "taking a leader label off, there is no such lock");
            clear(&self.context.client, namespace, name, None).await?;
        }
        Ok(())
    }
}

fn name_of(lock: &DistributedLock) -> Name {
    (lock.namespace().unwrap_or_default(), lock.name_any())
}

/// The pod that should carry the leader label, if the lock wants one.
pub fn leader_label_wanted(lock: &DistributedLock) -> Option<&str> {
    lock.spec.election.as_ref().filter(|election| election.leader_label)?;
    lock.status.as_ref()?.holder.as_ref()?.pod_name.as_deref()
}

/// Name and UID of the pod that is to wear the label.
fn wanted(lock: &DistributedLock) -> Option<(&str, &str)> {
    let holder = lock.status.as_ref()?.holder.as_ref()?;
    Some((leader_label_wanted(lock)?, holder.pod_uid.as_deref()?))
}

/// Puts the label of `lock` on the pod with this UID, after it is off every other pod (docs/safety.md, invariant 6). A pod
/// that is gone needs no label.
pub async fn set(
    client: &Client,
    namespace: &str,
    lock: &str,
    pod_name: &str,
    pod_uid: &str,
) -> Result<(), WriteError> {
    clear(client, namespace, lock, Some(pod_uid)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = match request(pods.get(pod_name)).await {
        Ok(pod) if pod.uid().as_deref() == Some(pod_uid) => pod,
        Ok(_) | Err(WriteError::Gone) => return Ok(()),
        Err(error) => return Err(error),
    };
    if pod.labels().contains_key(&leader_label(lock)) {
        return Ok(());
    }
    write(&pods, &pod.metadata, lock, json!("true")).await
}

/// Takes the label of `lock` off every pod but the one with the UID `except`. Reads the API server, not a cache.
pub async fn clear(client: &Client, namespace: &str, lock: &str, except: Option<&str>) -> Result<(), WriteError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // A pod that cannot be read has a label like any other.
    let labelled: Api<Guarded<Pod>> = Api::namespaced(client.clone(), namespace);
    let labelled = request(labelled.list(&ListParams::default().labels(&leader_label(lock)))).await?;
    for pod in labelled.items.iter().filter(|pod| pod.uid().as_deref() != except) {
        write(&pods, pod.meta(), lock, Value::Null).await?;
    }
    Ok(())
}

/// Carries the pod's resourceVersion, so that a leader that was frozen after it read the pod cannot write over what happened
/// since.
async fn write(pods: &Api<Pod>, pod: &ObjectMeta, lock: &str, value: Value) -> Result<(), WriteError> {
    let cost = deletion_cost(pod, lock, !value.is_null());
    let mut patch = json!({"metadata": {
        "labels": {leader_label(lock): value}, "resourceVersion": pod.resource_version, "uid": pod.uid
    }});
    if let Some(cost) = cost {
        patch["metadata"]["annotations"] = json!({DELETION_COST_ANNOTATION: cost});
    }
    let name = pod.name.as_deref().unwrap_or_default();
    match request(pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
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
}
