//! Under which keys the caches find pods and locks (see [`Cache::under`](super::cache::Cache::under)).

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

/// The elections with this Lease.
pub fn lease(namespace: &str, lease: &str) -> String {
    format!("lease {namespace}/{lease}")
}

/// The claims that name this Job.
pub fn claims_of_job(namespace: &str, job: &str) -> String {
    format!("job {namespace}/{job}")
}
