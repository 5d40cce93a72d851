//! What the operator reports about a lock.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{GoDuration, MilliTime, RedisQuorum};

/// What the operator knows of a lock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct DistributedLockStatus {
    /// Generation of the specification that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Who holds the lock. Absent: nobody. A holder must not act on it after `validUntil`, nor while `ending` says that the hold
    /// was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<LockHolder>,
    /// Larger for every later holder of the key. A resource that remembers the largest token it has seen can refuse a
    /// holder that was paused and has lost the lock without knowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub fencing_token: Option<i64>,
    /// When the holder got the lock. This time and the next two are those of the quorum's clock, which its members keep and the
    /// operator holds near the API server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<MilliTime>,
    /// When the last renewal that counted began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<MilliTime>,
    /// Until when the holder has the lock at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<MilliTime>,
    /// Members that voted for the holder, of all members, e.g. `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub votes: Option<String>,
    /// Place among the waiting claims on the same key, 0 for the next; only for the first ten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<i32>,
    /// How often the lock got a holder.
    pub transitions: i64,
    /// Set while a hold is being ended without the holder's word: it runs out, and nothing can extend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// A hold that the status let go although no majority of the members could confirm its end. While its quorum exists, the lock
    /// is granted nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub let_go: Option<LetGo>,
    /// The last ten holds that ended, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<PastHold>,
    /// Accepted, Held, FullyReplicated, QuorumAvailable, Finished, PublicationDelayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Who holds a lock: leadership belongs to one container instance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LockHolder {
    /// The claim's identity, or the pod's name.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// The pod that holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// Its UID.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
    /// The container that holds the lock: after a restart it is another one.
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
    /// Names the attempt that took the lock. The key's value on the members is made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub nonce: Option<String>,
    /// Which of the key's slots it holds, from 0; only with `slots` above 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 99))]
    pub slot: Option<i32>,
    /// The quorum that granted the lock. It stays this one, whatever the specification or the default quorum says later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<HeldQuorum>,
    /// The key in Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub key: Option<String>,
    /// For how long at most the members may owe this hold something after its last renewal. No renewal uses a time to live that
    /// this does not cover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_delay: Option<GoDuration>,
}

/// A RedisQuorum object, and no later one of the same name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct HeldQuorum {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID.
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

/// A hold that the status no longer names, and whose key the members may still have.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LetGo {
    /// Names the attempt that took the lock.
    #[schemars(length(max = 64))]
    pub nonce: String,
    /// The quorum that granted it.
    pub quorum: HeldQuorum,
    /// The key in Redis.
    #[schemars(length(max = 300))]
    pub key: String,
}

/// A hold that is being ended.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Since when it is not renewed.
    pub since: MilliTime,
    /// Why it ends: a reason of the condition Held, e.g. `SteppedDown`.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// Until when the holder may rely on it, or until when nobody else gets the lock after a loss (`lockDelay`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<MilliTime>,
    /// Why it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}

/// A hold that has ended.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PastHold {
    /// Who held the lock.
    #[schemars(length(min = 1, max = 253))]
    pub identity: String,
    /// With which token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<i64>,
    /// From when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<MilliTime>,
    /// Until when.
    pub to: MilliTime,
    /// Why it ended.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// More about the end, e.g. who broke the lock and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub message: Option<String>,
}
