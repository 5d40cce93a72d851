//! RedisQuorum: independent Redis masters that vote on locks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::schema::label_name;

mod accessors;
mod outside;
mod pod;
mod rules;
mod status;
pub use outside::*;
pub use pod::*;
pub use status::*;

/// The members' image where a quorum names none.
pub const DEFAULT_IMAGE: &str = "docker.io/valkey/valkey:8.1.7";

/// The quorum of Redis masters that you want.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "redlock-operator.io",
    version = "v1alpha1",
    kind = "RedisQuorum",
    plural = "redisquorums",
    shortname = "rq",
    category = "redlock",
    namespaced,
    status = "RedisQuorumStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Independent Redis masters that vote on locks. The holder with a majority of their votes has the lock. A restarted \
           member has lost its locks, so the operator keeps it from voting for longer than any lock can live.",
    annotation("helm.sh/resource-policy", "keep"),
    annotation("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Quorum", type_ = "integer", json_path = ".status.quorum"),
    printcolumn(name = "MaxTTL", type_ = "string", json_path = ".spec.maxTTL"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1),
    printcolumn(name = "Epoch", type_ = "integer", json_path = ".status.membershipEpoch", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "!has(self.spec.external) || self.spec.external.all(e, !e.name.startsWith(self.metadata.name + '-') || \
         !e.name.substring(size(self.metadata.name) + 1).matches('^[0-9]$'))",
        "the operator's own members are named <quorum>-0, <quorum>-1 and so on: give the external member another name"
    ),
    validation = (
        "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "the name becomes part of Service names: use at most 40 of a-z, 0-9 and -, beginning with a letter"
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules::spec)]
pub struct RedisQuorumSpec {
    /// Which operator serves this quorum: the one whose chart value `installation` is this name. Immutable.
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = rules::installation()))]
    pub installation: String,

    /// Number of Redis masters that the operator runs. Together with `external` it must be an odd number from 1 to 9.
    /// Three members survive the loss of one, five the loss of two. One member is for trials, and is reported as not
    /// fault tolerant.
    #[schemars(range(min = 0, max = 9))]
    pub members: i32,

    /// The longest `ttl` of a lock on this quorum, from 1s to 1h. A member that starts waits a little longer than this
    /// before it can vote, so a smaller value means a quicker recovery.
    #[serde(rename = "maxTTL")]
    pub max_ttl: GoDuration,

    /// Container image of the members, with its registry: Redis from 7.2.11, 7.4.6, 8.0.4 or 8.2.2, or Valkey from
    /// 8.0.6 or 8.1.4. Earlier patch levels lack fixes for scripts of clients. With a digest, all members run the same
    /// build.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,

    /// How long one command to one member can take before its vote counts as missing, from 5ms to 5s. The `ttl` of a
    /// lock must be at least ten times as long. Immutable.
    pub node_timeout: GoDuration,

    /// How far two clocks can run apart. The validity of a lock is shorter than its `ttl` by `ttl` x `ppm` / 1000000 +
    /// `floor`. Immutable.
    pub clock_drift: ClockDrift,

    /// How the operator makes the keys in Redis. `Namespaced`: `<namespace>/<spec.key>`, so that namespaces cannot take
    /// each other's locks. `Verbatim`: `<spec.key>`, the same for all namespaces that can use the quorum. Immutable.
    pub keys: KeyLayout,

    /// Which namespaces can have locks on this quorum.
    pub allowed_namespaces: AllowedNamespaces,

    /// Redlock clients outside the operator. Each gets a Redis user for its key prefix, and a Secret with the user, the
    /// passwords and the addresses of the members.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clients: Vec<QuorumClient>,

    /// How peers outside the cluster can reach the members. Needs TLS.
    pub expose: Expose,

    /// Encryption of the connections to the members that the operator runs. A quorum that is created without it gets
    /// `mode: Managed`.
    pub tls: QuorumTls,

    /// Redis masters outside the operator that vote, together with `members` or alone (`members: 0`). Several operators
    /// can share them. All of them must list the same members by the same addresses, and agree on `maxTTL`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub external: Vec<ExternalMember>,

    /// Settings of the pods of the members that the operator runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<MemberPod>,
}

impl Default for RedisQuorumSpec {
    fn default() -> Self {
        Self {
            installation: String::new(),
            members: 3,
            max_ttl: GoDuration::from_secs(30),
            image: DEFAULT_IMAGE.into(),
            node_timeout: GoDuration::from_millis(50),
            clock_drift: ClockDrift::default(),
            keys: KeyLayout::default(),
            allowed_namespaces: AllowedNamespaces::default(),
            clients: Vec::new(),
            expose: Expose::default(),
            tls: QuorumTls::default(),
            external: Vec::new(),
            pod: None,
        }
    }
}

/// How far two clocks can run apart: validity is shortened by ttl x ppm / 1000000 + floor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClockDrift {
    /// Relative drift of two clocks in millionths. The default of 10000 is 1 %.
    #[schemars(range(min = 0, max = 100_000))]
    pub ppm: i32,
    /// Fixed part of the drift, for the resolution of clocks. At most 1s.
    pub floor: GoDuration,
}

impl Default for ClockDrift {
    fn default() -> Self {
        Self { ppm: 10_000, floor: GoDuration::from_millis(2) }
    }
}

/// How Redis keys are made. `Namespaced`: the key is `<namespace>/<spec.key>`, so that namespaces cannot take each other's
/// locks. `Verbatim`: the key is `<spec.key>`, the same for all namespaces that can use the quorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyLayout {
    /// `<namespace>/<spec.key>`.
    #[default]
    Namespaced,
    /// `<spec.key>`.
    Verbatim,
}

/// Which namespaces can use this quorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedNamespaces {
    /// `Same`: the quorum's own namespace. `All`: every namespace. `Selector`: namespaces with the labels in `selector`.
    pub from: NamespacesFrom,
    /// Labels of the namespaces that can use the quorum, with `from: Selector`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Source of the namespaces that can use a quorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespacesFrom {
    /// The quorum's own namespace.
    #[default]
    Same,
    /// Every namespace.
    All,
    /// Namespaces with certain labels.
    Selector,
}

/// Encryption between clients and members.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct QuorumTls {
    /// `Managed`: the operator makes the certificates with a CA of its own. `Secret`: the certificate in `secretRef`.
    /// `Disabled`: plain TCP, so any user with access to the network can read passwords and the values of locks.
    pub mode: TlsMode,
    /// Secret with `tls.crt`, `tls.key` and `ca.crt`, as cert-manager makes it. Only with `mode: Secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// Where the members' certificates come from.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// No TLS.
    Disabled,
    /// A Secret from the user.
    Secret,
    /// The operator's own CA.
    #[default]
    Managed,
}

/// A Secret in the same namespace, with the label `redlock-operator.io/quorum: <name of the RedisQuorum>`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A Redis master outside the operator.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMember {
    /// Name of the member in the status. It must not be `<quorum>-<digit>`, as the operator names its own members.
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = label_name()))]
    pub name: String,
    /// `host:port`, or `[address]:port` for IPv6. The operator looks a name up at each connect, and it must lead to one
    /// process at a time. Operators that share this master compare their members by this text, so all of them must set
    /// the same.
    #[schemars(
        length(min = 3, max = 262),
        extend("x-kubernetes-validations" = rules::address())
    )]
    pub address: String,
    /// Secret with `username` and `password` of a Redis user, which needs the rights that docs/external.md lists.
    /// The Secret must
    /// have the label `redlock-operator.io/quorum: <name of the RedisQuorum>`. Default: no password is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Set it, for example to `{}`, to speak TLS to this member. Default: plain TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

/// TLS to a Redis master outside the operator.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalTls {
    /// Secret with the `ca.crt` to trust. Default: the public authorities in the operator's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Name that the certificate must have. Default: the host in `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}
