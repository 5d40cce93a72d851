//! Clients outside the operator, and the ways to the members.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::schema::label_name;

/// A Redlock client outside the operator.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QuorumClient {
    /// Name of the client. It is part of the names of its Secret, `<quorum>-client-<name>`, and of its Redis user.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = label_name()))]
    pub name: String,
    /// Namespace of the client. The operator copies the Secret there if the chart's value `clientNamespaces` names it.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = label_name()))]
    pub namespace: String,
    /// Prefix of the keys that the client can use. It ends with a slash. With `keys: Namespaced` it begins with the
    /// namespace of the client.
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-validations" = rules::key_prefix()))]
    pub key_prefix: String,
    /// `ReadWrite`: take, extend and release locks. `Read`: read the value and the remaining time of a key. Such a
    /// client can read while members change. A change of this field gives the client another user and other
    /// passwords, and ends its connections.
    #[serde(default)]
    pub access: ClientAccess,
}

/// Rights of a client outside the operator on the keys of its prefix.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAccess {
    /// The commands of Redlock libraries.
    #[default]
    ReadWrite,
    /// `GET` and `PTTL`.
    Read,
}

/// How members can be reached from outside the cluster.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Expose {
    /// `None`: members can be reached inside the cluster only. `NodePort` or `LoadBalancer`: each member gets one
    /// Service of that type.
    #[serde(rename = "type")]
    pub type_: ExposeType,
    /// Annotations of the Services of the members. If you remove an annotation here, it stays on the Services.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 16_384}))]
    pub annotations: BTreeMap<String, String>,
    /// `host` or `host:port` by which peers outside reach the members, in the order of the members. The Secrets of
    /// clients then have these addresses, and the certificate of the members must name these hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), inner(length(min = 1, max = 253)), transform = rules::exposed_addresses)]
    pub addresses: Vec<String>,
    /// Networks from which peers outside can connect, such as `192.0.2.0/24` or `2001:db8::/32`. Default: all. With it
    /// the Services have `externalTrafficPolicy: Local`, so that members see the address of the peer. A node without
    /// the member then does not answer for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)), transform = rules::networks)]
    pub source_ranges: Vec<String>,
}

/// Kind of Service that makes a member reachable from outside.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExposeType {
    /// Inside the cluster only.
    #[default]
    None,
    /// A port on every node.
    NodePort,
    /// A load balancer for each member.
    LoadBalancer,
}
