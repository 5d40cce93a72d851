//! Under which keys the caches find pods and locks (see [`Cache::under`](super::cache::Cache::under)).

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::{DistributedLock, RedisQuorum};

/// On every pod of a Job; its value is the Job's UID.
pub const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// The pods, or quorums, of a namespace.
pub fn namespace(name: &str) -> String {
    format!("namespace {name}")
}

/// A pod by its own UID, and those of the Job with this UID.
pub fn owner(uid: &str) -> String {
    format!("owner {uid}")
}

/// The locks that name this key.
pub fn key(key: &str) -> String {
    format!("key {key}")
}

/// The locks that are held on the quorum with this UID. Without one: on a quorum that their status does not name.
pub fn held_on(quorum: Option<&str>) -> String {
    format!("held on {}", quorum.unwrap_or_default())
}

/// The claims that name this Job.
pub fn claims_of_job(namespace: &str, job: &str) -> String {
    format!("job {namespace}/{job}")
}

pub(super) fn of_pod(pod: &Pod) -> Vec<String> {
    let owners = [pod.metadata.uid.as_ref(), pod.labels().get(JOB_UID_LABEL)];
    let owners = owners.into_iter().flatten().map(|uid| owner(uid));
    owners.chain([namespace(&pod.namespace().unwrap_or_default())]).collect()
}

pub(super) fn of_quorum(quorum: &RedisQuorum) -> Vec<String> {
    vec![namespace(&quorum.namespace().unwrap_or_default())]
}

pub(super) fn of_lock(lock: &DistributedLock) -> Vec<String> {
    let holder = lock.status.as_ref().and_then(|status| status.holder.as_ref());
    let held = holder.map(|holder| held_on(holder.quorum.as_ref().map(|quorum| quorum.uid.as_str())));
    let job = lock.spec.claim.as_ref().and_then(|claim| claim.job_name.as_deref());
    let job = job.map(|job| claims_of_job(&lock.namespace().unwrap_or_default(), job));
    [key(&lock.key())].into_iter().chain(held).chain(job).collect()
}
