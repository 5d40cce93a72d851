//! DistributedLock: a claim on a key, or an election among pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::schema::{add_rules, rule};

mod rules;
mod status;
pub use status::*;

/// What a lock shall be like.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "redlock-operator.io",
    version = "v1alpha1",
    kind = "DistributedLock",
    plural = "distributedlocks",
    shortname = "dlock",
    category = "redlock",
    namespaced,
    status = "DistributedLockStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A lock that at most one holder has at a time. A claim names its holder, and several claims contend for one key. An \
           election names candidate pods, and the operator picks the holder among them.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Key", type_ = "string", json_path = ".spec.key"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.holder.identity"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Held")].reason"#),
    printcolumn(name = "Votes", type_ = "string", json_path = ".status.votes"),
    printcolumn(name = "Token", type_ = "integer", json_path = ".status.fencingToken"),
    printcolumn(name = "Valid-Until", type_ = "string", json_path = ".status.validUntil"),
    printcolumn(name = "Quorum", type_ = "string", json_path = ".spec.quorumRef.name", priority = 1),
    printcolumn(name = "Queue", type_ = "integer", json_path = ".status.queuePosition", priority = 1),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.holder.nodeName", priority = 1),
    printcolumn(name = "Transitions", type_ = "integer", json_path = ".status.transitions", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "!has(self.spec.election) || size(self.metadata.name) <= 63",
        "the name of an election becomes part of the leader label: write at most 63 characters"
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = spec_rules)]
pub struct DistributedLockSpec {
    /// The RedisQuorum that votes on this lock. Left out: the operator's default, which the
    /// chart's value `defaultQuorum` names. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum_ref: Option<QuorumRef>,

    /// What is locked. Claims with the same key contend; a claim must say it, an election uses its own name if it is left
    /// out. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9._:/-]{1,200}$"), length(min = 1, max = 200))]
    pub key: Option<String>,

    /// How long the lock outlives its last renewal, 1s up to the quorum's maxTTL. Failover after a crash takes about this
    /// long.
    pub ttl: GoDuration,

    /// Time between two renewals, at most half of ttl. Left out: a third of ttl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_interval: Option<GoDuration>,

    /// The lock is not given up earlier than this after it was taken, e.g. for a cron job that finishes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hold: Option<GoDuration>,

    /// The lock is not renewed beyond this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<GoDuration>,

    /// A claim that waited this long in vain is finished, with reason WaitTimeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_timeout: Option<GoDuration>,

    /// Extra wait before the next holder after an unclean loss. Binds lock clients outside the operator too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_delay: Option<GoDuration>,

    /// What of the validity is published in the status. `Published`: `validUntil` is written so often that about a quarter of `ttl`
    /// is always left of it. `Transitions`: only when the holder changes, so that a held lock needs no write to the API server.
    pub validity: Validity,

    /// How often the operator tries to take the lock from clients outside it.
    pub retry: Retry,

    /// Among claims on the same key: higher first, then oldest.
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: i32,

    /// How many may hold the lock at once. Cannot be changed.
    #[schemars(range(min = 1, max = 100))]
    pub slots: i32,

    /// The holder is named here. Exactly one of claim and election.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,

    /// The operator picks the holder among ready pods. Exactly one of claim and election.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election: Option<Election>,

    /// Asked by the operator before each renewal: a holder that fails it is renewed no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,

    /// A finished claim is deleted after this time. Left out: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<GoDuration>,

    /// Nobody gets the lock, and a holder is renewed no more.
    pub suspend: bool,
}

impl Default for DistributedLockSpec {
    fn default() -> Self {
        Self {
            quorum_ref: None,
            key: None,
            ttl: GoDuration::from_secs(10),
            renew_interval: None,
            min_hold: None,
            max_hold: None,
            wait_timeout: None,
            lock_delay: None,
            validity: Validity::default(),
            retry: Retry::default(),
            priority: 0,
            slots: 1,
            claim: None,
            election: None,
            liveness: None,
            ttl_after_finished: None,
            suspend: false,
        }
    }
}

impl DistributedLock {
    /// What is locked: what is written, else the object's name.
    #[must_use]
    pub fn key(&self) -> String {
        self.spec.key.clone().unwrap_or_else(|| self.name_any())
    }
}

fn spec_rules(schema: &mut Schema) {
    add_rules(schema, &rules::spec());
}

/// A RedisQuorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QuorumRef {
    /// Name of the RedisQuorum.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
    /// Its namespace. Left out: the lock's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// What of the validity is published.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// At renewals.
    #[default]
    Published,
    /// When the holder changes.
    Transitions,
}

/// Pause between two attempts while a client outside the operator holds the key: delay, plus or minus up to jitter.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// Mean pause, 10ms to 1m.
    pub delay: GoDuration,
    /// Random part, at most delay.
    pub jitter: GoDuration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { delay: GoDuration::from_millis(200), jitter: GoDuration::from_millis(100) }
    }
}

/// A named holder. Exactly one of identity and podName.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = claim_rules)]
pub struct Claim {
    /// Free text that names the holder. It holds the lock until this object is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub identity: Option<String>,
    /// A pod in the lock's namespace. The claim is bound to that pod's UID and container: a restart loses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pod_name: Option<String>,
    /// UID of that pod: a pod made later under the same name does not hold the lock.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub pod_uid: Option<String>,
    /// The container that holds the lock, an init container for instance: the hold ends with it. Left out: the pod's only
    /// container, or the one in its annotation `kubectl.kubernetes.io/default-container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// The holder renews a coordination.k8s.io Lease of the claim's name at least this often, 1s up to half of ttl, or loses the lock
    /// one ttl after the last renewal. A holder that wants to keep the lock renews the Lease three times as often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<GoDuration>,
}

fn claim_rules(schema: &mut Schema) {
    add_rules(schema, &rules::claim());
}

/// Candidates for leadership.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = election_rules)]
pub struct Election {
    /// Labels of the candidate pods, in the lock's namespace.
    pub selector: LabelSelector,
    /// The container that leads: when it restarts, leadership is lost. Left out: the pod's only container, or the one in
    /// its annotation `kubectl.kubernetes.io/default-container`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// Which ready candidate is taken. A living leader is never replaced by a preferred candidate.
    #[serde(default)]
    pub preference: Preference,
    /// Label the leader `leader.redlock-operator.io/<lock name>: "true"`, for a Service to select it.
    #[serde(default = "yes")]
    pub leader_label: bool,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            selector: LabelSelector::default(),
            container: None,
            preference: Preference::default(),
            leader_label: true,
        }
    }
}

fn yes() -> bool {
    true
}

fn election_rules(schema: &mut Schema) {
    add_rules(
        schema,
        &[rule(
            ".selector",
            "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
             (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
            "an empty selector makes every pod a candidate: say which, e.g. selector: {matchLabels: {app: scheduler}}",
        )],
    );
}

/// Which ready candidate is taken. `Oldest`: ready for the longest time. `LowestOrdinal`: the lowest number at the end of
/// the pod's name, as in a StatefulSet. `Priority`: the highest annotation `redlock-operator.io/priority`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Ready for the longest time.
    #[default]
    Oldest,
    /// The lowest number at the end of the name.
    LowestOrdinal,
    /// The highest annotation `redlock-operator.io/priority`.
    Priority,
}

/// A check of the holder. Exactly one of httpGet and tcpSocket.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = liveness_rules)]
pub struct Liveness {
    /// Must answer with a status from 200 to 399.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpGet>,
    /// Must accept a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpSocket>,
    /// How many failures in a row end the hold.
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: i32,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { http_get: None, tcp_socket: None, failure_threshold: 1 }
    }
}

fn liveness_rules(schema: &mut Schema) {
    add_rules(
        schema,
        &[rule(".httpGet", "has(self.httpGet) != has(self.tcpSocket)", "write exactly one of httpGet and tcpSocket")],
    );
}

/// An HTTP request to the holder's pod.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpGet {
    /// Path, e.g. `/healthz`.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/"))]
    pub path: String,
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A connection to the holder's pod.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TcpSocket {
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}
