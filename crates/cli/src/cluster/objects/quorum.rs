//! The fields of a RedisQuorum that the commands use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use redlock_api::lenient::{metadata, readable, readable_items};
use redlock_api::{DEFAULT_QUORUM_ANNOTATION, GoDuration, MilliTime, RedisQuorum};

/// A RedisQuorum.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = RedisQuorum)]
pub struct QuorumObject {
    /// The metadata without `managedFields`.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The specification.
    #[serde(default)]
    pub spec: QuorumObjectSpec,
    /// The status that the operator writes.
    #[serde(default)]
    pub status: QuorumObjectStatus,
}

/// The specification of a quorum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuorumObjectSpec {
    /// The longest time to live of a lock.
    #[serde(rename = "maxTTL", deserialize_with = "readable")]
    pub max_ttl: Option<GoDuration>,
    /// The installation of the operator that serves the quorum.
    pub installation: String,
}

/// The status that the operator writes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuorumObjectStatus {
    /// The generation that the status describes.
    pub observed_generation: Option<i64>,
    /// The operator that serves the quorum, as `<namespace>/<Lease name>`.
    pub operator: Option<String>,
    /// The number of votes that is a majority.
    pub quorum: Option<i32>,
    /// The members of the current list of voters.
    pub voters: Vec<String>,
    /// The former list of voters, during a change.
    pub former_voters: Vec<String>,
    /// The maxTTL that fences wait for.
    #[serde(rename = "maxTTLInForce", deserialize_with = "readable")]
    pub max_ttl_in_force: Option<GoDuration>,
    /// No token of the quorum is above it.
    pub token_floor: Option<i64>,
    /// The members.
    pub members: Vec<QuorumMember>,
    /// Conditions.
    #[serde(deserialize_with = "readable_items")]
    pub conditions: Vec<Condition>,
}

/// A member.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuorumMember {
    /// Its name.
    pub name: String,
    /// Its pod.
    pub pod_name: Option<String>,
    /// UID of its pod.
    #[serde(rename = "podUID")]
    pub pod_uid: Option<String>,
    /// Its node.
    pub node_name: Option<String>,
    /// `host:port`.
    pub address: Option<String>,
    /// `Admitted`, or the state of a member that does not vote.
    pub state: String,
    /// The reason of the fence.
    pub reason: Option<String>,
    /// The condition that the member waits for.
    pub message: Option<String>,
    /// The `run_id` of the member's process.
    #[serde(rename = "runID")]
    pub run_id: Option<String>,
    /// When the member can vote.
    #[serde(deserialize_with = "readable")]
    pub rejoin_at: Option<MilliTime>,
    /// When the member was admitted.
    #[serde(deserialize_with = "readable")]
    pub admitted_at: Option<MilliTime>,
    /// Present if another party runs the member.
    pub external: Option<serde::de::IgnoredAny>,
}

impl QuorumMember {
    /// Whether the member can vote.
    #[must_use]
    pub fn votes(&self) -> bool {
        self.state == "Admitted"
    }
}

impl QuorumObject {
    /// `<namespace>/<name>`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace().unwrap_or_default(), self.name_any())
    }

    /// Whether the quorum is annotated as the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.annotations().get(DEFAULT_QUORUM_ANNOTATION).is_some_and(|value| value == "true")
    }

    /// Whether a member is in the current or the former list of voters.
    #[must_use]
    pub fn counts(&self, member: &str) -> bool {
        self.status.voters.iter().chain(&self.status.former_voters).any(|voter| voter == member)
    }

    /// Whether a member can vote, and is in one of the lists.
    #[must_use]
    pub fn has_vote(&self, member: &QuorumMember) -> bool {
        member.votes() && self.counts(&member.name)
    }

    /// Whether all members of the current list can vote.
    #[must_use]
    pub fn all_vote(&self) -> bool {
        self.voting() == self.status.voters.len()
    }

    /// The number of votes that is a majority. Before the first list of voters all members are voters.
    #[must_use]
    pub fn needed(&self) -> usize {
        let QuorumObjectStatus { voters, members, .. } = &self.status;
        let all = if voters.is_empty() { members.len() } else { voters.len() };
        self.status.quorum.and_then(|needed| usize::try_from(needed).ok()).unwrap_or(all / 2 + 1)
    }

    /// Number of members of the current list that can vote.
    #[must_use]
    pub fn voting(&self) -> usize {
        let voters = &self.status.voters;
        self.status.members.iter().filter(|member| member.votes() && voters.contains(&member.name)).count()
    }
}
