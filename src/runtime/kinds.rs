//! The kinds that the operator watches, and what it keeps of each in memory.
//!
//! Users and controllers write more into objects than the operator reads, and every replica holds all objects. So the cache removes unused
//! fields before it parses an object, and bounds the fields that users can extend without limit.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodSpec, PodStatus, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::cache::Kind;
use super::keys::{self, JOB_UID_LABEL};
use crate::api::conditions::beginning;
use crate::api::lenient::Unreadable;
use crate::api::{DistributedLock, JOB_TOKEN_ANNOTATION, LEADER_LABEL_PREFIX, MEMBER_LABEL, RedisQuorum};

/// A part of the names of all labels and annotations of this operator.
const OURS: &str = "redlock-operator.io/";
/// Annotations of other software that the operator reads.
const READ_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/default-container", "controller.kubernetes.io/pod-deletion-cost"];
/// Maximum bytes of an annotation's value. The cache drops longer ones, because the operator cannot read them.
const LONGEST_ANNOTATION: usize = 4096;
/// Maximum length of a text of the kubelet or the scheduler in the cache.
const LONGEST_MESSAGE: usize = 512;
/// Maximum number of labels of this operator in the cache, per object.
const OUR_LABELS: usize = 256;
/// Maximum number of other labels in the cache.
///
/// The chart's policy refuses more of them on locks and quorums.
const OTHER_LABELS: usize = 64;
/// Maximum number of owners in the cache, per object. The controller is the first of them.
const OWNERS: usize = 16;
/// Maximum number of characters of a text about an owner in the cache. A Kubernetes name is not longer.
const LONGEST_NAME: usize = 253;
/// Maximum number of containers of one kind in the cache, per pod.
const CONTAINERS: usize = 64;
/// Labels of other software that the cache always keeps.
const READ_LABELS: [&str; 3] = [JOB_UID_LABEL, "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name"];

impl Kind for DistributedLock {
    // The schema and the chart's policy limit the size of a lock. Small pages would delay the first renewals of a new replica.
    const PAGE: u32 = 250;

    fn slim(lock: &mut Value) {
        bound_metadata(lock);
    }

    fn lenient(raw: &Unreadable) -> Option<Self> {
        Some(Self::lenient(raw))
    }

    fn keys(&self) -> Vec<String> {
        let held = self.holder().map(|holder| keys::held_on(holder.quorum.as_ref().map(|quorum| quorum.uid.as_str())));
        let job = self.spec.claim.as_ref().and_then(|claim| claim.job_name.as_deref());
        let job = job.map(|job| keys::claims_of_job(&self.namespace().unwrap_or_default(), job));
        let lease = self.lease().map(|lease| keys::lease(&self.namespace().unwrap_or_default(), lease));
        [keys::key(&self.key())].into_iter().chain(held).chain(job).chain(lease).collect()
    }
}

impl Kind for RedisQuorum {
    fn slim(quorum: &mut Value) {
        bound_metadata(quorum);
    }

    fn keys(&self) -> Vec<String> {
        vec![keys::namespace(&self.namespace().unwrap_or_default())]
    }
}

impl Kind for Namespace {
    fn slim(namespace: &mut Value) {
        bound_metadata(namespace);
    }
}

impl Kind for Node {
    /// Keeps the node's identity, conditions, provider and cordon, for elections and fences.
    fn slim(node: &mut Value) {
        bound_metadata(node);
        keep(node.get_mut("spec"), &["unschedulable", "taints", "providerID"]);
        keep(node.get_mut("status"), &["conditions", "nodeInfo", "addresses"]);
    }
}

impl Kind for Pod {
    /// Keeps names, labels, node, container states and conditions, for elections and fences.
    ///
    /// Fences also read the volumes of members. Statuses quote the reason why a pod does not start.
    fn slim(pod: &mut Value) {
        bound_metadata(pod);
        remove(pod.get_mut("metadata"), &["finalizers", "generateName"]);
        let is_member = pod.pointer("/metadata/labels").is_some_and(|labels| labels.get(MEMBER_LABEL).is_some());
        if let Some(spec) = pod.get_mut("spec") {
            let volumes = if is_member { &["volumes"][..] } else { &[] };
            keep(Some(&mut *spec), &[&["nodeName", "containers", "initContainers"], volumes].concat());
            for containers in ["containers", "initContainers"] {
                truncated(spec, containers, CONTAINERS).iter_mut().for_each(|item| keep(Some(item), &["name"]));
            }
            truncated(spec, "volumes", usize::MAX).iter_mut().for_each(|item| keep(Some(item), &["name", "secret"]));
        }
        if let Some(status) = pod.get_mut("status") {
            keep(Some(&mut *status), &["phase", "podIP", "conditions", "containerStatuses", "initContainerStatuses"]);
            truncated(status, "conditions", usize::MAX).iter_mut().for_each(slim_condition);
            for containers in ["containerStatuses", "initContainerStatuses"] {
                truncated(status, containers, CONTAINERS).iter_mut().for_each(slim_container);
            }
        }
    }

    fn keys(&self) -> Vec<String> {
        let namespace = self.namespace().unwrap_or_default();
        let owners = [self.metadata.uid.as_ref(), self.labels().get(JOB_UID_LABEL)];
        let mut found: Vec<_> = owners.into_iter().flatten().map(|uid| keys::owner(uid)).collect();
        let leads = self.labels().keys().filter_map(|label| label.strip_prefix(LEADER_LABEL_PREFIX));
        let labelled: Vec<_> = leads.map(|lock| keys::labelled(&namespace, lock)).collect();
        found.extend((!labelled.is_empty()).then(|| keys::LABELLED.to_owned()));
        found.extend(labelled);
        found.push(keys::namespace(&namespace));
        found
    }

    /// The evidence for the end of the containers, and the Job and hold of the pod.
    fn last_state(&self) -> Option<Self> {
        let only = |map: &BTreeMap<String, String>, name| Some([(String::from(name), map.get(name)?.clone())].into());
        let node_name = self.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let (labels, annotations) = (self.labels(), self.annotations());
        let (labels, annotations) = (only(labels, JOB_UID_LABEL), only(annotations, JOB_TOKEN_ANNOTATION));
        let ObjectMeta { name, namespace, uid, resource_version, .. } = self.metadata.clone();
        let metadata =
            ObjectMeta { name, namespace, uid, resource_version, labels, annotations, ..ObjectMeta::default() };
        let spec = Some(PodSpec { node_name, ..PodSpec::default() });
        let status = self.status.clone().map(|status| PodStatus { conditions: None, pod_ip: None, ..status });
        Some(Self { metadata, spec, status })
    }
}

impl Kind for Job {
    /// Keeps only the annotations and the grace period of a Job's pod template.
    fn slim(job: &mut Value) {
        bound_metadata(job);
        remove(job.get_mut("metadata"), &["finalizers", "generateName"]);
        remove(job.get_mut("spec"), &["podFailurePolicy", "successPolicy", "selector"]);
        if let Some(template) = job.pointer_mut("/spec/template") {
            bound_metadata(template);
            keep(template.get_mut("spec"), &["terminationGracePeriodSeconds"]);
        }
    }
}

// The leader compares these objects completely with their desired state.
impl Kind for StatefulSet {}
impl Kind for Service {}
impl Kind for PodDisruptionBudget {}
impl Kind for NetworkPolicy {}

/// Bounds labels, annotations and owners, which have no schema.
fn bound_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, value| {
            let is_short = value.as_str().is_some_and(|value| value.len() <= LONGEST_ANNOTATION);
            is_short && (name.contains(OURS) || READ_ANNOTATIONS.contains(&name.as_str()))
        });
    }
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        let (mut ours, mut others) = (0, 0);
        labels.retain(|name, _| {
            let (count, most) = if name.contains(OURS) { (&mut ours, OUR_LABELS) } else { (&mut others, OTHER_LABELS) };
            let is_read = READ_LABELS.contains(&name.as_str());
            *count += usize::from(!is_read);
            is_read || *count <= most
        });
    }
    if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        owners.sort_by_key(|owner| owner["controller"] != true);
        owners.truncate(OWNERS);
        for text in owners.iter_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
            if let Value::String(text) = text {
                *text = beginning(text, LONGEST_NAME).to_owned();
            }
        }
    }
}

/// Truncates the list in a field, and returns the remaining items.
fn truncated<'v>(object: &'v mut Value, field: &str, most: usize) -> &'v mut [Value] {
    let Some(list) = object.get_mut(field).and_then(Value::as_array_mut) else { return &mut [] };
    list.truncate(most);
    list
}

/// Keeps only the text of the scheduler.
fn slim_condition(condition: &mut Value) {
    let is_unscheduled = condition["type"] == "PodScheduled" && condition["status"] == "False";
    let texts = if is_unscheduled { &["reason", "message"][..] } else { &[] };
    keep(Some(&mut *condition), &[&["type", "status", "lastTransitionTime"], texts].concat());
    cut_message(condition);
}

fn slim_container(container: &mut Value) {
    keep(Some(&mut *container), &["name", "containerID", "ready", "restartCount", "state", "lastState"]);
    for state in ["state", "lastState"] {
        let Some(state) = container.get_mut(state) else { continue };
        for kind in ["running", "terminated"] {
            keep(state.get_mut(kind), &["startedAt", "finishedAt", "exitCode", "reason", "containerID"]);
        }
        if let Some(waiting) = state.get_mut("waiting") {
            keep(Some(&mut *waiting), &["reason", "message"]);
            cut_message(waiting);
        }
    }
}

/// Cuts the text of the kubelet or the scheduler to [`LONGEST_MESSAGE`].
fn cut_message(object: &mut Value) {
    if let Some(Value::String(message)) = object.get_mut("message") {
        *message = beginning(message, LONGEST_MESSAGE).to_owned();
    }
}

/// Removes all fields of an object except these.
fn keep(object: Option<&mut Value>, fields: &[&str]) {
    if let Some(object) = object.and_then(Value::as_object_mut) {
        object.retain(|field, _| fields.contains(&field.as_str()));
    }
}

/// Removes these fields of an object.
fn remove(object: Option<&mut Value>, fields: &[&str]) {
    if let Some(object) = object.and_then(Value::as_object_mut) {
        object.retain(|field, _| !fields.contains(&field.as_str()));
    }
}

#[cfg(test)]
mod tests;
