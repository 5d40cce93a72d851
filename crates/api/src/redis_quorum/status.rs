//! The status of a quorum.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExternalMember, ExternalTls, SecretRef};
use crate::{GoDuration, MilliTime};

/// State of a member.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub enum MemberState {
    /// No pod yet.
    #[default]
    Pending,
    /// A pod, but no answer from Redis yet.
    Starting,
    /// Redis answers and cannot vote.
    Fenced,
    /// The process can vote.
    Admitted,
    /// Redis no longer answers.
    Unreachable,
}

/// Why a member is fenced. `Updating`: the operator replaces its pod. `Busy`: its process serves no client, because of
/// a script that cannot be ended, or because its memory or connections are used up. `PredecessorUnconfirmed`: the process before it is not known to be dead.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub enum FenceReason {
    /// The process restarted and has forgotten its locks.
    Restarted,
    /// The first process of this member.
    FirstStart,
    /// Its clock jumped.
    ClockJump,
    /// It serves no client.
    Busy,
    /// It joins the member list.
    Joining,
    /// It leaves the member list.
    Leaving,
    /// It is being replaced by a new version.
    Updating,
    /// The process before it is not known to be dead.
    PredecessorUnconfirmed,
}

/// The state of a quorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RedisQuorumStatus {
    /// Generation of the specification that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The operator that serves this quorum, as `<namespace>/<Lease name>`. Commands find the operator by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub operator: Option<String>,
    /// Number of votes that make a majority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<i32>,
    /// Number of admitted members, and number of all members, for example `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub ready: Option<String>,
    /// Number of the member list. It rises with every change of the list, and is part of the names of the Redis users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub membership_epoch: Option<i64>,
    /// The members that vote: a lock needs a majority of them. Members of the specification that are not in this list
    /// are still joining.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), inner(length(min = 1, max = 63)))]
    pub voters: Vec<String>,
    /// The members of the former list, while the member list changes. A lock also needs a majority of these members, until
    /// every lock that only they granted has expired. With external members no lock is granted until then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), inner(length(min = 1, max = 63)))]
    pub former_voters: Vec<String>,
    /// No fencing token above this number has been published. It stays ahead of the tokens in steps, so that they rise
    /// even when every member has forgotten its counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub token_floor: Option<i64>,
    /// The largest `maxTTL` with which a lock can still be held. Fences wait for it.
    #[serde(rename = "maxTTLInForce", skip_serializing_if = "Option::is_none")]
    pub max_ttl_in_force: Option<GoDuration>,
    /// The rotation of passwords that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_rotation: Option<PasswordRotation>,
    /// The copies of clients' Secrets in other namespaces. The operator deletes a copy when you remove or move the
    /// client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_COPIES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["client", "namespace"])
    )]
    pub client_copies: Vec<ClientCopy>,
    /// The members, by name.
    // These are the members of three lists: the former one, the one in force and the wanted one. If the specification was corrected
    // during a change, they also include leaving members of the lists in between.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// Conditions: Ready, QuorumAvailable, FaultTolerant, Progressing, ClockHealthy, QuorumAgrees, TTLWithinBound,
    /// ClientsReady, and TLSReady with TLS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Maximum copies of Secrets in the status: those of all clients, and as many that could not be deleted yet.
pub const MOST_COPIES: usize = 128;

/// A copy of a client's Secret in another namespace than the quorum's.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientCopy {
    /// Name of the client.
    #[schemars(length(max = 63))]
    pub client: String,
    /// Namespace of the copy.
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// A rotation of passwords.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PasswordRotation {
    /// The value of the annotation that asked for the rotation, cut to 253 characters.
    #[schemars(length(max = 253))]
    pub request: String,
    /// `Adding`: members get the new passwords, and the old ones are used. `Switched`: every member accepts both, and
    /// the Secrets of clients have the new ones. `Removing`: one member after the other stops accepting the old ones.
    pub stage: PasswordStage,
}

/// How far a rotation of passwords is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordStage {
    /// Members get the new passwords. The operator and the clients use the old ones.
    Adding,
    /// Every member accepts both. The Secrets of clients have the new ones.
    Switched,
    /// One member after the other stops accepting the old passwords.
    Removing,
}

/// The state of one member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member, for example `main-0`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Name of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// UID of the pod.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
    /// ID of the container, as the container runtime gives it.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub container_id: Option<String>,
    /// Node that the pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The machine behind that node. Another machine can later have a node of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
    /// `host:port` by which the operator reaches the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub address: Option<String>,
    /// `host:port` by which peers outside the cluster reach the member, with `expose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub external_address: Option<String>,
    /// Only an `Admitted` member can vote. `Pending`: no process runs. `Starting`: a process runs and has not answered
    /// yet. `Fenced`: the process answers and cannot vote, see `reason`. `Unreachable`: the process no longer answers.
    #[serde(default)]
    pub state: MemberState,
    /// Why the member is fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FenceReason>,
    /// The reason why the member waits, and what you can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// Identity of the Redis process (`run_id`). Another value means another process, which has forgotten the locks of
    /// the one before.
    #[serde(rename = "runID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_id: Option<String>,
    /// When the member can vote, if nothing else happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_at: Option<MilliTime>,
    /// Since when the member can vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<MilliTime>,
    /// Users of earlier membership epochs than this one are closed on the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The connection to an external member. It stays here while the member leaves, when the specification no longer
    /// names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStatus>,
    /// Evidence that the process of an external member has kept its data since its admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// The process that could vote before this one, until its death is proven. Until then no other process of the
    /// member is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<PredecessorStatus>,
}

/// Values that change when an external master loses its data without a restart.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Its `master_replid`. It changes when the master becomes a replica.
    #[serde(rename = "replicationID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub replication_id: Option<String>,
    /// Since when the master has kept the record of this quorum, in milliseconds of its own clock. 0 if the record was
    /// there before the operator looked. It changes when the master was emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_since: Option<i64>,
}

/// The connection to an external master.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalStatus {
    /// `host:port` of the master. Another address is another master, and needs another name.
    #[schemars(length(max = 300))]
    pub address: String,
    /// Secret with the Redis user of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// TLS to this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

impl From<&ExternalMember> for ExternalStatus {
    fn from(ExternalMember { address, secret_ref, tls, .. }: &ExternalMember) -> Self {
        Self { address: address.clone(), secret_ref: secret_ref.clone(), tls: tls.clone() }
    }
}

/// A process that can still run and vote somewhere.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PredecessorStatus {
    /// Identity of the Redis process (`run_id`).
    #[serde(rename = "runID")]
    #[schemars(length(max = 64))]
    pub run_id: String,
    /// UID of the pod. Set the annotation `redlock-operator.io/predecessor-dead` to this value when you are sure that
    /// the process is dead.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 64))]
    pub pod_uid: String,
    /// ID of the container, as the container runtime gives it.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub container_id: Option<String>,
    /// Node that the process was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The machine behind that node. Only a Node of the same name and the same machine can prove that the process is
    /// dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
}

/// The machine that a process runs on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// UID of the Node.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// systemUUID of the Node. Absent where several nodes report the same one, because it then identifies none.
    #[serde(rename = "systemUUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub system_uuid: Option<String>,
    /// machineID of the Node. Absent where several nodes report the same one.
    #[serde(rename = "machineID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub machine_id: Option<String>,
}
