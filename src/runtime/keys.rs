//! The keys of the caches' indexes of pods and locks (see [`Cache::under`](super::cache::Cache::under)).

/// The label of every pod of a Job with the Job's UID.
pub const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// The label of every pod of a Job with the Job's name.
pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// The key of the pods and quorums in a namespace.
pub fn namespace(name: &str) -> String {
    format!("namespace {name}")
}

/// The key of the pod with this UID, and of the pods of the Job with this UID.
pub fn owner(uid: &str) -> String {
    format!("owner {uid}")
}

/// The key of the locks with this lock key.
pub fn key(key: &str) -> String {
    format!("key {key}")
}

/// The key of the locks that are held on the quorum with this UID.
///
/// `None` is the key of held locks whose status does not name the quorum.
pub fn held_on(quorum: Option<&str>) -> String {
    format!("held on {}", quorum.unwrap_or_default())
}

/// The key of the pods with any leader label.
pub const LABELLED: &str = "labelled";

/// The key of the pods with the leader label of this lock.
pub fn labelled(namespace: &str, lock: &str) -> String {
    format!("labelled {namespace}/{lock}")
}

/// The key of the elections with this Lease.
pub fn lease(namespace: &str, lease: &str) -> String {
    format!("lease {namespace}/{lease}")
}

/// The key of the claims for this Job.
pub fn claims_of_job(namespace: &str, job: &str) -> String {
    format!("job {namespace}/{job}")
}
