//! What the operator reports about a quorum.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClockDrift, ExternalMember, ExternalTls, SecretRef};
use crate::api::{GoDuration, MilliTime};
pub use crate::fence::{Reason as FenceReason, State as MemberState};

/// What the operator knows of a quorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RedisQuorumStatus {
    /// Generation of the specification that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The installation of the operator that looks after this quorum, `<namespace>/<Lease name>`. Others leave it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub installation: Option<String>,
    /// How many votes make a majority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<i32>,
    /// Admitted members of all members, e.g. `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub ready: Option<String>,
    /// Rises with every change of the member list; part of the Redis users' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub membership_epoch: Option<i64>,
    /// The members of which a majority is needed in this epoch. Members of the specification that are not among them are still
    /// joining.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), inner(length(min = 1, max = 63)))]
    pub voters: Vec<String>,
    /// While the member list changes: the members of the epoch before, of which a majority is needed as well, until nothing that
    /// they promised alone can still be true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), inner(length(min = 1, max = 63)))]
    pub former_voters: Vec<String>,
    /// While the member list changes, and members are external: what other operators that share them are told. Left out: that
    /// a majority of `formerVoters` is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced: Option<Announced>,
    /// No fencing token above it has been published. Kept ahead of them in steps, so that tokens rise even when every
    /// member has forgotten its counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub token_floor: Option<i64>,
    /// The largest maxTTL that a lock may still have been given.
    #[serde(rename = "maxTTLInForce", skip_serializing_if = "Option::is_none")]
    pub max_ttl_in_force: Option<GoDuration>,
    /// The largest clockDrift that fences still have to allow for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_drift_in_force: Option<ClockDrift>,
    /// The largest nodeTimeout that a command may still have been given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_timeout_in_force: Option<GoDuration>,
    /// The rotation of passwords that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_rotation: Option<PasswordRotation>,
    /// Where copies of clients' Secrets may be, in namespaces other than the quorum's: those whose client or acceptance has gone are
    /// deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_COPIES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["client", "namespace"])
    )]
    pub client_copies: Vec<ClientCopy>,
    /// Members by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub members: Vec<MemberStatus>,
    /// Ready, QuorumAvailable, FaultTolerant, Progressing, ClockHealthy, QuorumAgrees, TTLWithinBound, ClientsReady, and TLSReady
    /// with TLS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// So many copies of Secrets are remembered: those of all clients, and as many that could not be deleted yet.
pub const MOST_COPIES: usize = 128;

/// A copy of a client's Secret in another namespace than the quorum's.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientCopy {
    /// The client.
    #[schemars(length(max = 63))]
    pub client: String,
    /// The namespace of the copy.
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// What operators that share members are told of the member lists while these change.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announced {
    /// Whatever was promised is known to a majority of both lists.
    BothLists,
    /// The list before is about to be given up.
    NewList,
}

/// A rotation of passwords.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PasswordRotation {
    /// The text of the annotation that asked for it, cut to 253 characters.
    #[schemars(length(max = 253))]
    pub request: String,
    /// How far it is.
    pub stage: PasswordStage,
}

/// How far a rotation of passwords is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordStage {
    /// The new passwords are made known to every member; everybody uses the old ones.
    Adding,
    /// Every member accepts both; the Secrets of clients have the new ones.
    Switched,
    /// The old ones are taken from one member after the other.
    Removing,
}

/// What the operator knows of one member.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member, e.g. `main-0`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Name of its pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pod_name: Option<String>,
    /// UID of its pod.
    #[serde(rename = "podUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
    /// Its container, as the container runtime names it.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub container_id: Option<String>,
    /// The node that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The machine of that node. Another one may come under its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
    /// `host:port` by which the operator reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub address: Option<String>,
    /// `host:port` by which peers outside the cluster reach it, with `expose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub external_address: Option<String>,
    /// Only an `Admitted` member may vote.
    #[serde(default)]
    pub state: MemberState,
    /// Why it is fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FenceReason>,
    /// What it waits for, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// Identity of the Redis process: a new one means that it has forgotten.
    #[serde(rename = "runID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_id: Option<String>,
    /// When it may vote, if nothing comes in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_at: Option<MilliTime>,
    /// Since when it may vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<MilliTime>,
    /// Microseconds that have to be added to its clock (`TIME`) to give the quorum's clock, by which the times of locks are
    /// published. Follows the API server's time slowly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -9_007_199_254_740_991_i64, max = 9_007_199_254_740_991_i64))]
    pub clock_offset: Option<i64>,
    /// Epoch of the operator that admitted it: a frozen predecessor can open nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_epoch: Option<i64>,
    /// Users of earlier membership epochs than this one are closed on its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// A member that others run: how it is reached, also when the specification names it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStatus>,
    /// What shows that the process of an external member still knows what it was told when it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// The process that could vote before this one, until it is known to be dead. Nothing is admitted before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<PredecessorStatus>,
}

/// What changes when a master that others run forgets without a restart.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Its `master_replid`: another one as soon as it has been a replica.
    #[serde(rename = "replicationID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub replication_id: Option<String>,
    /// Since when, in milliseconds of its own time, it has kept what operators say there of this quorum; 0 if it was there before
    /// the operator looked. It starts again when the master was emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_since: Option<i64>,
}

/// How a master is reached that others run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalStatus {
    /// `host:port`. Another address is another master, and needs another name.
    #[schemars(length(max = 300))]
    pub address: String,
    /// Secret with its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// TLS to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

impl From<&ExternalMember> for ExternalStatus {
    fn from(ExternalMember { address, secret_ref, tls, .. }: &ExternalMember) -> Self {
        Self { address: address.clone(), secret_ref: secret_ref.clone(), tls: tls.clone() }
    }
}

/// A process that may still run and vote somewhere.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PredecessorStatus {
    /// Identity of the Redis process.
    #[serde(rename = "runID")]
    #[schemars(length(max = 64))]
    pub run_id: String,
    /// UID of its pod: the value for the annotation `redlock-operator.io/predecessor-dead`.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 64))]
    pub pod_uid: String,
    /// Its container, as the container runtime names it.
    #[serde(rename = "containerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub container_id: Option<String>,
    /// The node that it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node_name: Option<String>,
    /// The machine of that node. Evidence about its death counts only from a Node of the same name that speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
}

/// The machine that a process runs on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// UID of its Node.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// What the Node calls its systemUUID; left out where several nodes say the same, so that it identifies none.
    #[serde(rename = "systemUUID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub system_uuid: Option<String>,
    /// What the Node calls its machineID; left out like systemUUID.
    #[serde(rename = "machineID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub machine_id: Option<String>,
}
