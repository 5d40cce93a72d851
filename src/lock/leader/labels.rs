//! The leader label, which only the pod of the present leader has.
//!
//! No pod has it while the election has no leader, when `leaderLabel` is false, or after the election was deleted. The leader removes any
//! other label, whichever client set it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::lock_store::LockStore;
use super::peers::Peers;
use super::progress::Error;
use crate::api::requests::{request, unless_gone, unless_undone};
use crate::api::{DistributedLock, LEADER_LABEL_PREFIX, leader_label};
use crate::lock::model::contention::LockRef;
use crate::lock::model::refusal::Refusal;
use crate::runtime::cache::Guarded;
use crate::runtime::context::Context;
use crate::runtime::keys;

/// How often the leader checks for labels that no election wants.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A scaled-down ReplicaSet deletes pods with lower costs first.
///
/// Pods without the annotation have the cost 0.
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// A number that no other program is likely to set. It marks the operator's annotation.
const LEADERS_COST: &str = "1000001";

/// Sets the label on the leader's pod and clears it on other pods, unless the cache has this state.
pub(super) async fn ensure(context: &Context, lock: &DistributedLock) -> Result<(), Error> {
    let Some((pod_name, pod_uid)) = wanted(lock) else { return ensure_none(context, lock).await };
    let name = name_of(lock);
    let pod = context.pods.named(&name.0, pod_name).filter(|pod| pod.uid().as_deref() == Some(pod_uid));
    let has_it = pod.is_some_and(|pod| is_set(&pod, &name.1));
    if !has_it || labelled(context, &name).iter().any(|pod| pod.uid().as_deref() != Some(pod_uid)) {
        set(&context.client, &name, pod_name, pod_uid).await?;
    }
    Ok(())
}

/// Clears the label on all pods, if the lock wants none.
pub(super) async fn ensure_none(context: &Context, lock: &DistributedLock) -> Result<(), Error> {
    let name = name_of(lock);
    if wanted(lock).is_none() && !labelled(context, &name).is_empty() {
        clear(&context.client, &name, None).await?;
    }
    Ok(())
}

fn labelled(context: &Context, name: &Name) -> Vec<Arc<Pod>> {
    context.pods.under(&keys::labelled(&name.0, &name.1))
}

/// The locks whose leader label a pod has.
fn names(context: &Context) -> BTreeSet<Name> {
    let labelled = context.pods.under(keys::LABELLED);
    let names = labelled.iter().flat_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        let locks = pod.labels().keys().filter_map(|label| label.strip_prefix(LEADER_LABEL_PREFIX));
        locks.map(move |lock| (namespace.clone(), lock.to_owned()))
    });
    names.collect()
}

/// Corrects leader labels that no change of a lock would correct, in the namespaces of served locks.
///
/// Their elections are deleted, or another client or a late patch set them. The loop does not end.
pub(super) async fn correct_all(store: &LockStore, peers: &Peers) {
    let scope = &store.context.replica.settings.locks;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        for name in names(&store.context).into_iter().filter(|name| scope.contains(&name.0)) {
            if let Err(error) = correct(&name, store, peers).await {
                tracing::debug!(lock = ?name, error = &error as &dyn std::error::Error, "leader label not corrected yet");
            }
        }
    }
}

/// Reconciles a lock if another pod has its label. Clears the labels of a lock that does not exist.
async fn correct(name: &Name, store: &LockStore, peers: &Peers) -> Result<(), Error> {
    let (context, reference) = (&store.context, LockRef::new(&name.1).within(&name.0));
    if let Some(lock) = store.get(&reference) {
        let wanted = wanted(&lock).map(|(_, uid)| uid);
        if labelled(context, name).iter().any(|pod| pod.uid().as_deref() != wanted) {
            peers.request_reconcile(reference);
        }
        return Ok(());
    }
    if labelled(context, name).is_empty() {
        return Ok(());
    }
    // An unreadable lock exists, and its holder keeps the label.
    let locks: Api<DistributedLock> = Api::namespaced(context.client.clone(), &name.0);
    if request(locks.get_metadata_opt(&name.1)).await?.is_none() {
        tracing::info!(namespace = name.0, lock = name.1, "removing the leader label of a lock that does not exist");
        clear(&context.client, name, None).await?;
    }
    Ok(())
}

/// Namespace and name of a lock.
pub(super) fn name_of(lock: &DistributedLock) -> Name {
    (lock.namespace().unwrap_or_default(), lock.name_any())
}

/// Name and UID of the pod that needs the leader label, if the lock wants one.
///
/// A lost lock wants none, although its status names the holder until a majority confirms the end.
fn wanted(lock: &DistributedLock) -> Option<(&str, &str)> {
    lock.spec.election.as_ref().filter(|election| election.leader_label && lock.is_held())?;
    let holder = lock.holder()?;
    Some((holder.pod_name.as_deref()?, holder.pod_uid.as_deref()?))
}

/// Whether a Service finds the pod as the leader of this lock. The label can have another value, for example from the pod's template.
fn is_set(pod: &Pod, lock: &str) -> bool {
    pod.labels().get(&leader_label(lock)).is_some_and(|value| value == "true")
}

/// Sets the label of a lock on the pod with this UID.
///
/// First it clears the label on every other pod (docs/dev/algorithm.md, "Order of writes"). A deleted pod needs no label.
async fn set(client: &Client, lock: &Name, pod_name: &str, pod_uid: &str) -> Result<(), Error> {
    clear(client, lock, Some(pod_uid)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &lock.0);
    let pod = request(pods.get_opt(pod_name)).await?.filter(|pod| pod.uid().as_deref() == Some(pod_uid));
    match pod.filter(|pod| !is_set(pod, &lock.1)) {
        Some(pod) => write(&pods, &pod.metadata, &lock.1, json!("true")).await,
        None => Ok(()),
    }
}

/// Clears the label of a lock on every pod but the one with the UID `except`.
///
/// It lists the pods from the API server, not from a cache.
pub(super) async fn clear(client: &Client, lock: &Name, except: Option<&str>) -> Result<(), Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &lock.0);
    // An unreadable pod can have the label.
    let labelled: Api<Guarded<Pod>> = Api::namespaced(client.clone(), &lock.0);
    let labelled = request(labelled.list(&ListParams::default().labels(&leader_label(&lock.1)))).await?;
    for pod in labelled.items.iter().filter(|pod| pod.uid().as_deref() != except) {
        write(&pods, pod.meta(), &lock.1, Value::Null).await?;
    }
    Ok(())
}

/// Patches the label of a pod with the pod's resourceVersion.
///
/// A leader that was frozen after the read therefore cannot overwrite a later change.
async fn write(pods: &Api<Pod>, pod: &ObjectMeta, lock: &str, value: Value) -> Result<(), Error> {
    let is_set = !value.is_null();
    let cost = deletion_cost(pod, lock, is_set);
    let mut patch = json!({"metadata": {
        "labels": {leader_label(lock): value}, "resourceVersion": pod.resource_version, "uid": pod.uid
    }});
    if let Some(cost) = cost {
        patch["metadata"]["annotations"] = json!({DELETION_COST_ANNOTATION: cost});
    }
    let name = pod.name.as_deref().unwrap_or_default();
    let written = request(pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))).await;
    let (label, pod) = (leader_label(lock), format!("{}/{name}", pod.namespace.as_deref().unwrap_or_default()));
    let written = written.and_then(|pod| unless_undone(pod, |pod| pod.labels().contains_key(&label) == is_set));
    unless_gone(written).map_err(|error| {
        Error::of_write(error, |cause| match is_set {
            true => Refusal::LabelNotSet { label, pod, cause },
            false => Refusal::LabelNotRemoved { label, pod, cause },
        })
    })
}

/// The change of a pod's deletion cost when it begins or ceases to lead `lock`. `None` is no change.
///
/// A cost from another client stays. The operator's cost stays while the pod leads another lock.
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

/// Namespace and name of a lock, which need not exist.
pub(super) type Name = (String, String);

#[cfg(test)]
mod tests {
    use hyper::http::Method;

    use super::*;
    use crate::api::test_util::{condition, parsed};
    use crate::runtime::fake_api;

    #[test]
    fn a_leader_costs_more_to_delete_unless_a_user_has_set_a_cost() {
        let pod = |labels: Value, cost: Option<&str>| -> ObjectMeta {
            let annotations = cost.map(|cost| json!({DELETION_COST_ANNOTATION: cost}));
            parsed(json!({"labels": labels, "annotations": annotations}))
        };
        let (one, two) = (leader_label("one"), leader_label("two"));
        assert_eq!(deletion_cost(&pod(json!({}), None), "one", true), Some(json!(LEADERS_COST)));
        assert_eq!(deletion_cost(&pod(json!({}), Some("7")), "one", true), None);
        assert_eq!(deletion_cost(&pod(json!({&one: "true"}), Some(LEADERS_COST)), "one", false), Some(Value::Null));
        assert_eq!(deletion_cost(&pod(json!({&one: "true"}), Some("7")), "one", false), None);
        let both = pod(json!({&one: "true", &two: "true"}), Some(LEADERS_COST));
        assert_eq!(deletion_cost(&both, "one", false), None, "the pod still leads the other lock");
    }

    /// An API server with this answer to every patch.
    ///
    /// In the namespace `other`, the pod `a-1` has the label.
    fn api(patched: (u16, Value)) -> Client {
        fake_api::client(move |request| {
            let labelled = json!({"metadata": {"name": "a-1", "namespace": "ns", "uid": "v"}});
            let items =
                if request.uri().path().starts_with("/api/v1/namespaces/other") { vec![labelled] } else { vec![] };
            match (request.method(), request.uri().path()) {
                (&Method::PATCH, _) => patched.clone(),
                (_, path) if path.ends_with("/pods") => (200, json!({"metadata": {}, "items": items})),
                _ => (200, json!({"metadata": {"name": "a-0", "namespace": "ns", "uid": "u"}})),
            }
        })
    }

    #[tokio::test]
    async fn a_label_that_a_webhook_removes_is_a_fault() {
        let client = api((200, json!({"metadata": {"name": "a-0", "namespace": "ns", "uid": "u"}})));
        let set = set(&client, &("ns".into(), "app".into()), "a-0", "u").await;
        let Err(Error::Refused(refusal)) = set else { panic!("{set:?}") };
        assert!(refusal.to_string().contains("webhook or policy undid"), "{refusal}");
    }

    #[tokio::test]
    async fn a_refused_label_is_a_fault_with_the_pod_and_the_policy() {
        let policy = "pods \"a-0\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: labels are final";
        let client = api(fake_api::failure(403, "Forbidden", policy));
        let (label, cause) = (leader_label("app"), policy.to_owned());
        let set = set(&client, &("ns".into(), "app".into()), "a-0", "u").await;
        let Err(Error::Refused(refusal)) = set else { panic!("{set:?}") };
        assert_eq!(*refusal, Refusal::LabelNotSet { label: label.clone(), pod: "ns/a-0".into(), cause: cause.clone() });
        let cleared = clear(&client, &("other".into(), "app".into()), None).await;
        let Err(Error::Refused(refusal)) = cleared else { panic!("{cleared:?}") };
        assert_eq!(*refusal, Refusal::LabelNotRemoved { label, pod: "ns/a-1".into(), cause });
    }

    #[test]
    fn only_the_value_true_makes_a_leader() {
        let with = |value: &str| parsed::<Pod>(json!({"metadata": {"labels": {leader_label("app"): value}}}));
        assert!(is_set(&with("true"), "app") && !is_set(&with("false"), "app") && !is_set(&with("true"), "other"));
    }

    #[test]
    fn no_pod_has_the_label_without_a_leader_or_when_it_is_off() {
        let lock = |leader_label: bool, status: Value| -> DistributedLock {
            let election = json!({"selector": {"matchLabels": {"app": "a"}}, "leaderLabel": leader_label});
            parsed(json!({"metadata": {"name": "app"}, "spec": {"election": election}, "status": status}))
        };
        let with = |held: &str, reason: &str| {
            let holder = json!({"identity": "a-0", "podName": "a-0", "podUID": "u"});
            json!({"transitions": 1, "holder": holder, "conditions": [condition("Held", held, reason)]})
        };
        assert_eq!(wanted(&lock(true, with("True", "Held"))), Some(("a-0", "u")));
        assert_eq!(wanted(&lock(false, with("True", "Held"))), None);
        assert_eq!(
            wanted(&lock(true, with("False", "Expired"))),
            None,
            "it is lost, and no majority confirmed the end"
        );
        assert_eq!(wanted(&lock(true, json!({"transitions": 1}))), None);
    }
}
