//! The status of a lock.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoDuration, MilliTime, RedisQuorum};

/// Observed state of the lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct DistributedLockStatus {
    /// Generation of the specification that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The name of the locked resource: `spec.key`, or the name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub key: Option<String>,
    /// The current holder. Absent when no one holds the lock. A holder must not act after `validUntil`, nor while `ending` reports
    /// that the lock was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<LockHolder>,
    /// A number that is larger for every later holder of the key. A resource that stores the largest token can refuse a holder that
    /// was paused and has lost the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub fencing_token: Option<i64>,
    /// Latest possible time at which the holder got the lock, by the API server's clock. `renewedAt` and `validUntil` are the earliest
    /// possible times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<MilliTime>,
    /// When the last successful renewal began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<MilliTime>,
    /// The lock is guaranteed to the holder until this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<MilliTime>,
    /// Number of members that store the lock for this holder, and number of all members, for example `3/3`. As of the last write of
    /// this status: a change of votes alone is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub votes: Option<String>,
    /// Number of members that store the lock for this holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub votes_granted: Option<i32>,
    /// Number of all members of the quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 64))]
    pub member_count: Option<i32>,
    /// Position in the queue for this key: 1 is next, 0 is the holder. Reported for the first ten only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<i32>,
    /// Number of times that the lock has been acquired.
    pub transitions: i64,
    /// Set while the operator stops the Job that holds the lock. The hold is still renewed, until the pods of the Job have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Stopping>,
    /// Set while the operator ends a hold that the holder has not released. The hold is no longer renewed and expires at `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// The last ten ended holds, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<PastHold>,
    /// Conditions: Ready, Accepted, Held, Finished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The holder of a lock. A pod holds it with one run of one container.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LockHolder {
    /// The identity of the claim, or the name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// The pod that holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// UID of the pod.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
    /// ID of the container that holds the lock. It changes when the container restarts.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub container_id: Option<String>,
    /// When that container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_started_at: Option<MilliTime>,
    /// The node that the pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The Job that holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub job_name: Option<String>,
    /// UID of the Job.
    #[serde(rename = "jobUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub job_uid: Option<String>,
    /// Identifies the attempt that took the lock. The value of the key in Redis is derived from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub nonce: Option<String>,
    /// The slot of the key that this holder has, from 0. Only when `slots` is above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 99))]
    pub slot: Option<i32>,
    /// The quorum that granted the lock. It does not change during a hold, even if the default quorum changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<HeldQuorum>,
    /// The key in Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub key: Option<String>,
    /// Time after which no member can still store this hold, counted from its last renewal. The operator waits for it when the members
    /// do not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_delay: Option<GoDuration>,
}

/// Identifies one RedisQuorum object, not a later one of the same name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct HeldQuorum {
    /// Namespace of the RedisQuorum.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the RedisQuorum.
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID of the RedisQuorum.
    #[schemars(length(max = 64))]
    pub uid: String,
}

impl HeldQuorum {
    /// The object as it is now.
    #[must_use]
    pub fn of(quorum: &RedisQuorum) -> Self {
        let (namespace, uid) = (quorum.namespace().unwrap_or_default(), quorum.uid().unwrap_or_default());
        Self { namespace, name: quorum.name_any(), uid }
    }

    /// Whatever object has its name now.
    #[must_use]
    pub fn reference(&self) -> ObjectRef<RedisQuorum> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

impl std::fmt::Display for HeldQuorum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A hold whose Job is being stopped.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Stopping {
    /// When the operator suspended the Job.
    pub since: MilliTime,
    /// Why the hold ends afterwards: a reason of the condition Held, for example `HolderGone`.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// More about why the hold ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}

/// A hold that the operator is ending.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// When the operator stopped renewing the hold.
    pub since: MilliTime,
    /// Why the hold ends: a reason of the condition Held, for example `SteppedDown`.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// When the next holder can get the lock at the latest: the end of the validity, and of `lockDelay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<MilliTime>,
    /// More about why the hold ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}

/// An ended hold.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PastHold {
    /// The former holder.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// Fencing token of the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,
    /// When the hold began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<MilliTime>,
    /// When the hold ended.
    pub to: MilliTime,
    /// Why the hold ended: a reason of the condition Held.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// More about the end, for example who broke the lock and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
