//! Settings of the pods of members.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::schema::{add_rules, label_name, rule};

/// Settings of the members' pods. Members are spread over nodes and zones whatever stands here.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = pod_rules)]
pub struct MemberPod {
    /// Additional labels of the pods, for example one that keeps them out of a service mesh.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 16_384}))]
    pub annotations: BTreeMap<String, String>,
    /// CPU and memory of the container `redis`. Default: requests of 100m and 64Mi, and a memory limit of 128Mi.
    /// Without `limits.memory` that limit applies, or `requests.memory` if it is larger. Redis' own limits follow from
    /// the memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a node must have for members to run on it.
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
    /// Runtime class of the members, for example a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
    /// User and groups of the pods. Default: 999, the user `redis` of the official images. With `{}` no user is set,
    /// and the platform must choose one, as OpenShift does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<MemberSecurityContext>,
    /// Secrets for pulling the images of the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Additional containers, for example an agent of a platform. They run with the restrictions of the container
    /// `redis` and mount nothing. While one of them is not ready, the member counts as absent for drains, even if it votes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_containers: Vec<ExtraContainer>,
}

fn pod_rules(schema: &mut Schema) {
    add_rules(
        schema,
        [
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
                ".resources",
                "!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || \
                 (isQuantity(string(self.resources.limits['memory'])) && \
                  !quantity(string(self.resources.limits['memory'])).isLessThan(quantity('32Mi')))",
                "Redis does not start with less than 32Mi: set a larger limits.memory, e.g. 256Mi",
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
    /// User ID of all processes. Default: the choice of the platform, or the user of the image if that is not root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub run_as_user: Option<i64>,
    /// Primary group ID of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub run_as_group: Option<i64>,
    /// Group ID of the volumes. Redis reads its configuration as a member of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_294_i64))]
    pub fs_group: Option<i64>,
    /// Additional group IDs of all processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 4_294_967_294_i64)))]
    pub supplemental_groups: Vec<i64>,
}

/// A container in the pod of a member, in addition to Redis.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExtraContainer {
    /// Name of the container.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = label_name()))]
    pub name: String,
    /// Image of the container.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Program and its first arguments. Default: the entrypoint of the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Environment variables, as plain text only: a reference would show Secrets to any user who can create a quorum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub env: BTreeMap<String, String>,
    /// TCP ports by name, for your own Services and monitoring. The NetworkPolicy of the quorum opens none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 8,
        "additionalProperties" = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65_535}
    ))]
    pub ports: BTreeMap<String, i32>,
    /// CPU and memory of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}
