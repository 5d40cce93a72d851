//! What the pods of members are made of besides Redis.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::api::schema::{add_rules, rule};

/// Settings of the members' pods. Members are spread over nodes and zones whatever stands here.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = pod_rules)]
pub struct MemberPod {
    /// Labels of the pods, besides the operator's own. For a service mesh, for example, to leave the pods alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 16_384}))]
    pub annotations: BTreeMap<String, String>,
    /// CPU and memory of the redis container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Labels of the nodes that members may run on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that members tolerate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Affinity of the members, in place of the operator's preference for different nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Spread constraints of the members, in place of the operator's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Runtime class of the members, for example of a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
    /// Service account of the pods, for platforms that attach rights to run a pod to it. Its token is not mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// User and groups of the pods. Left out: 999, the user `redis` of the official images. With `{}` no user is set, and the platform has
    /// to choose one, as OpenShift does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<MemberSecurityContext>,
    /// Secrets for pulling the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Containers beside Redis, such as an agent of a platform. They run with the restrictions of the redis container and mount nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_containers: Vec<ExtraContainer>,
}

fn pod_rules(schema: &mut Schema) {
    add_rules(
        schema,
        &[
            rule(
                ".labels",
                "!has(self.labels) || self.labels.all(key, !key.startsWith('redlock-operator.io/') && \
                 !key.startsWith('leader.redlock-operator.io/') && !key.startsWith('app.kubernetes.io/'))",
                "labels of redlock-operator.io and app.kubernetes.io are the operator's: give yours another prefix",
            ),
            rule(
                ".annotations",
                "!has(self.annotations) || self.annotations.all(key, !key.startsWith('redlock-operator.io/'))",
                "annotations of redlock-operator.io are the operator's: give yours another prefix",
            ),
            rule(
                ".extraContainers",
                "!has(self.extraContainers) || self.extraContainers.all(container, container.name != 'redis')",
                "the container of Redis is named redis: give yours another name",
            ),
        ],
    );
}

/// User and groups of the members' processes. They never run as root, and the seccomp profile is always `RuntimeDefault`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberSecurityContext {
    /// User ID of all processes. Left out: the platform's choice, or the image's user if that is not root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub run_as_user: Option<i64>,
    /// Primary group ID of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub run_as_group: Option<i64>,
    /// Group ID of the volumes. Redis reads its configuration by this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub fs_group: Option<i64>,
    /// More groups of all processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 4_294_967_294_i64)))]
    pub supplemental_groups: Vec<i64>,
}

/// A container beside Redis.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExtraContainer {
    /// Name of the container.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Its image.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Program and first arguments, in place of the image's entrypoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Environment: plain texts, since a reference would show Secrets to everyone who may create a quorum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub env: BTreeMap<String, String>,
    /// TCP ports by name, for Services and monitoring of your own. The quorum's NetworkPolicy opens none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 8,
        "additionalProperties" = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65_535}
    ))]
    pub ports: BTreeMap<String, i32>,
    /// CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}
