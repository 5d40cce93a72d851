//! The controllers of StatefulSets and Deployments.
//!
//! Deployments own their pods directly: there are no ReplicaSets.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Shared};
use super::super::chance::part;
use super::{Cluster, Place, by};

const REVISION_LABEL: &str = "controller-revision-hash";

/// Pods of an owner, by name.
pub(super) fn pods_of(owner: &Shared, api: &ApiServer) -> Vec<Shared> {
    let owned = |pod: &&Shared| {
        let owners = pod.value["metadata"]["ownerReferences"].as_array();
        pod.namespace() == owner.namespace() && owners.into_iter().flatten().any(|found| found["uid"] == owner.uid())
    };
    api.objects(Kind::Pod).filter(owned).cloned().collect()
}

pub(super) fn is_ready(pod: &Shared) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(super) fn has_ended(pod: &Shared) -> bool {
    matches!(pod.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Builds a pod from a template with additional labels.
pub(super) fn from_template(owner: &Shared, kind: Kind, labels: &[(&str, String)]) -> Value {
    let mut pod = owner.value["spec"]["template"].clone();
    for (label, value) in labels {
        pod["metadata"]["labels"][*label] = json!(value);
    }
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": kind.api_version(), "kind": kind.facts().name, "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod
}

/// A hash that differs between templates.
fn revision(owner: &Shared) -> String {
    format!("{:010x}", part(&owner.value["spec"]["template"].to_string()) & 0xff_ffff_ffff)
}

impl Cluster {
    pub(super) fn workload(&mut self, kind: Kind, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(owner) = api.get(kind, &at.0, &at.1) else { return };
        match kind {
            Kind::StatefulSet => stateful_set(&owner, api, now),
            Kind::Deployment => deployment(&owner, api, now),
            Kind::Job if self.suspends_jobs() => self.begin_sync(&owner, now),
            Kind::Job => self.job(&owner, api, now),
            _ => {}
        }
    }
}

/// Reconciles one ordinal after the other.
///
/// `OnDelete` keeps pods of an older template. `RollingUpdate` deletes one at a time.
fn stateful_set(set: &Shared, api: &mut ApiServer, now: Millis) {
    let (by, revision) = (by(now, "statefulset-controller"), format!("{}-{}", set.name(), revision(set)));
    let replicas = set.value["spec"]["replicas"].as_u64().unwrap_or(1);
    let pods = pods_of(set, api);
    let named = |ordinal: u64| api.get(Kind::Pod, set.namespace(), &format!("{}-{ordinal}", set.name()));
    let mut make = None;
    let mut delete = Vec::new();
    for ordinal in 0..replicas {
        match named(ordinal) {
            None => make = make.or(Some(ordinal)),
            Some(pod) if has_ended(&pod) && !pod.is_deleting() && pods.iter().any(|mine| mine.uid() == pod.uid()) => {
                delete.push(pod);
            }
            Some(pod) if is_ready(&pod) => continue,
            Some(_) => {}
        }
        break;
    }
    let ordinal = |pod: &Shared| pod.name().rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse::<u64>().ok());
    delete.extend(pods.iter().filter(|pod| ordinal(pod).is_none_or(|ordinal| ordinal >= replicas)).cloned());
    let rolls = set.value["spec"]["updateStrategy"]["type"] != "OnDelete";
    if rolls && make.is_none() && pods.iter().all(|pod| is_ready(pod) && !pod.is_deleting()) {
        let outdated = pods.iter().filter(|pod| pod.label(REVISION_LABEL) != Some(&revision));
        delete.extend(outdated.max_by_key(|pod| ordinal(pod)).cloned());
    }
    if !set.is_deleting() {
        for pod in delete.into_iter().filter(|pod| !pod.is_deleting()) {
            let options = DeleteOptions { uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
            let _ = api.delete(Kind::Pod, (pod.namespace(), pod.name()), &options, by);
        }
        if let Some(ordinal) = make {
            let name = format!("{}-{ordinal}", set.name());
            let labels = [
                (REVISION_LABEL, revision.clone()),
                ("statefulset.kubernetes.io/pod-name", name.clone()),
                ("apps.kubernetes.io/pod-index", ordinal.to_string()),
            ];
            let mut pod = from_template(set, Kind::StatefulSet, &labels);
            pod["metadata"]["name"] = json!(name);
            pod["spec"]["hostname"] = json!(name);
            pod["spec"]["subdomain"] = set.value["spec"]["serviceName"].clone();
            let _ = api.create(Kind::Pod, set.namespace(), pod, by);
        }
    }
    let pods = pods_of(set, api);
    let updated = pods.iter().filter(|pod| pod.label(REVISION_LABEL) == Some(&revision)).count();
    let current = set.value["status"]["currentRevision"].as_str().map(str::to_owned);
    let current = if updated == pods.len() { revision.clone() } else { current.unwrap_or(revision.clone()) };
    let status = json!({
        "observedGeneration": set.value["metadata"]["generation"], "replicas": pods.len(),
        "readyReplicas": pods.iter().filter(|pod| is_ready(pod)).count(), "updatedReplicas": updated,
        "updateRevision": revision, "currentRevision": current, "collisionCount": 0,
    });
    let _ =
        api.edit(Kind::StatefulSet, (set.namespace(), set.name()), Part::Status, by, |value| value["status"] = status);
}

/// Surges by one pod while templates differ.
///
/// An older pod is deleted when a newer one is ready.
fn deployment(owner: &Shared, api: &mut ApiServer, now: Millis) {
    if owner.is_deleting() {
        return;
    }
    let (by, revision) = (by(now, "deployment-controller"), revision(owner));
    let replicas = owner.value["spec"]["replicas"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
    let pods: Vec<_> = pods_of(owner, api).into_iter().filter(|pod| !pod.is_deleting() && !has_ended(pod)).collect();
    let (new, old): (Vec<_>, Vec<_>) =
        pods.into_iter().partition(|pod| pod.label("pod-template-hash") == Some(&revision));
    let surge = usize::from(!old.is_empty());
    if new.len() < replicas && new.len() + old.len() < replicas + surge {
        let mut pod = from_template(owner, Kind::Deployment, &[("pod-template-hash", revision)]);
        pod["metadata"]["generateName"] = json!(format!("{}-", owner.name()));
        let _ = api.create(Kind::Pod, owner.namespace(), pod, by);
        return;
    }
    let ready = new.iter().filter(|pod| is_ready(pod)).count();
    let spare = (ready + old.len()).saturating_sub(replicas);
    let surplus = new.len().saturating_sub(replicas);
    // Delete pods that are not ready first, like the real controller.
    let mut old = old;
    old.sort_by_key(|pod| (is_ready(pod), pod.uid().to_owned()));
    let broken = old.iter().filter(|pod| !is_ready(pod)).count();
    let doomed = old.into_iter().take(spare.max(broken.min(surge))).chain(new.into_iter().rev().take(surplus));
    for pod in doomed {
        let options = DeleteOptions { uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
        let _ = api.delete(Kind::Pod, (pod.namespace(), pod.name()), &options, by);
    }
}
