//! DistributedLock: a claim on a key, or an election among pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::schema::{add_rules, rule};

mod accessors;
mod lenient;
mod liveness;
mod rules;
mod status;
pub use liveness::*;
pub use status::*;

/// Desired behaviour of the lock.
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
    doc = "A lock with one holder at a time, or with several if `slots` is above 1. A claim names its holder, and several claims can compete for one key. An \
           election selects candidate pods, and the operator picks the leader among them.",
    annotation("helm.sh/resource-policy", "keep"),
    annotation("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    printcolumn(name = "Key", type_ = "string", json_path = ".status.key"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.holder.identity"),
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Votes", type_ = "string", json_path = ".status.votes"),
    printcolumn(name = "Token", type_ = "integer", json_path = ".status.fencingToken"),
    printcolumn(name = "Valid-Until", type_ = "string", json_path = ".status.validUntil"),
    printcolumn(name = "Quorum", type_ = "string", json_path = ".status.holder.quorum.name", priority = 1),
    printcolumn(name = "Queue", type_ = "integer", json_path = ".status.queuePosition", priority = 1),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.holder.nodeName", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#, priority = 1),
    printcolumn(name = "Transitions", type_ = "integer", json_path = ".status.transitions", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = (
        "!has(self.spec.election) || size(self.metadata.name) <= 63",
        "the name of an election becomes part of a label: use at most 63 characters"
    )
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules::spec)]
pub struct DistributedLockSpec {
    /// The RedisQuorum that stores this lock. Default: the operator's default quorum (chart value `defaultQuorum`). Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum_ref: Option<QuorumRef>,

    /// The name of the locked resource. Claims with the same key compete for it. Required for a claim. An election uses its own name by
    /// default. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-validations" = rules::key()))]
    pub key: Option<String>,

    /// How long the lock lives without a renewal, from 1s to the quorum's `maxTTL`.
    pub ttl: GoDuration,

    /// Time between two renewals, from a tenth to half of `ttl`. Default: a third of `ttl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_interval: Option<GoDuration>,

    /// Minimum time to keep the lock once acquired, even if the holder finishes earlier. Claims only, at most 24h. Useful for cron jobs
    /// that complete almost instantly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hold: Option<GoDuration>,

    /// Maximum time to hold the lock. The operator then stops renewing it. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<GoDuration>,

    /// Maximum time to wait for the lock, counted from the first status of the claim, or from the end of its last suspension. A claim that
    /// does not get the lock in this time is finished with reason `WaitTimeout`. So is a claim that no operator observed in this time after
    /// its creation. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_timeout: Option<GoDuration>,

    /// Extra wait before the next holder when a holder has lost the lock without releasing it. Redlock clients outside the operator
    /// wait for it. `ttl` and `lockDelay` together must not exceed the quorum's `maxTTL`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_delay: Option<GoDuration>,

    /// How often the operator updates `status.validUntil`. `Published`: so often that at least about a quarter of `ttl` remains.
    /// `Transitions`: only when the holder changes, so a held lock causes no writes to the API server. Use it only if nothing reads
    /// `validUntil`.
    pub validity: Validity,

    /// How often the operator retries while a Redlock client outside the operator holds the key.
    pub retry: Retry,

    /// Order of the claims that wait for the same key: higher numbers first, then older claims first.
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: i32,

    /// Number of holders that can have the lock at the same time. All locks and clients that use the same key must use the same number. Immutable.
    #[schemars(range(min = 1, max = 100))]
    pub slots: i32,

    /// Names the holder. Set exactly one of `claim` and `election`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,

    /// Selects candidate pods. The operator picks the leader among those that are ready. Set exactly one of `claim` and `election`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election: Option<Election>,

    /// Health check that the operator runs before each renewal, with a timeout of 1s (a quarter of `ttl` if that is less). After
    /// `failureThreshold` failures in a row it stops renewing the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Liveness>,

    /// Time after which the operator deletes a finished claim. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<GoDuration>,

    /// Pauses the lock: the operator grants it to no one and stops renewing the current hold.
    pub suspend: bool,

    /// Why the object cannot be read as a whole. A field that cannot be read is absent then.
    #[serde(skip)]
    pub unreadable: Option<String>,
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
            unreadable: None,
        }
    }
}

impl DistributedLock {
    /// The locked key: `spec.key`, or the object's name without one.
    #[must_use]
    pub fn key(&self) -> String {
        self.spec.key.clone().unwrap_or_else(|| self.name_any())
    }

    /// The name of the Lease that belongs to the lock.
    #[must_use]
    pub fn lease(&self) -> Option<&str> {
        Some(&*self.spec.election.as_ref()?.lease.as_ref()?.name)
    }
}

/// Reference to a RedisQuorum.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct QuorumRef {
    /// Name of the RedisQuorum.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
    /// Namespace of the RedisQuorum. Default: the namespace of the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// The quorum in a text of the form `name` or `namespace/name`.
impl From<&str> for QuorumRef {
    fn from(text: &str) -> Self {
        let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
        Self { name: name.to_owned(), namespace: namespace.map(str::to_owned) }
    }
}

/// How often `status.validUntil` is updated.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// Often enough that at least about a quarter of `ttl` remains.
    #[default]
    Published,
    /// Only when the holder changes.
    Transitions,
}

/// Pause between two attempts while a client outside the operator holds the key: `delay`, plus or minus up to `jitter`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// Mean pause, from 10ms to 1m.
    pub delay: GoDuration,
    /// Random part of the pause, at most `delay`.
    pub jitter: GoDuration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { delay: GoDuration::from_millis(200), jitter: GoDuration::from_millis(100) }
    }
}

/// A named holder. Set exactly one of `identity`, `podName` and `jobName`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules::claim)]
pub struct Claim {
    /// Free text that names the holder. The claim holds the lock until you delete it, or until `heartbeat` or `maxHold` ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub identity: Option<String>,
    /// A pod in the namespace of the lock. The claim is bound to one container of this pod: when that container terminates, the lock is
    /// released.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub pod_name: Option<String>,
    /// UID of the pod. A later pod of the same name then does not get the lock.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub pod_uid: Option<String>,
    /// The container that holds the lock, which can be an init container. Default: the only container of the pod, or the one that its
    /// annotation `kubectl.kubernetes.io/default-container` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// A Job in the namespace of the lock that was created with `suspend: true`, and with the annotation `redlock-operator.io/lock`. The
    /// operator starts the Job when it has the lock. It suspends the Job before it ends the hold, or after the lock was lost. When the Job
    /// has finished and its pods have ended, the lock is released. Needs the chart's value `jobs.enabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub job_name: Option<String>,
    /// UID of the Job. A later Job of the same name then does not get the lock.
    #[serde(rename = "jobUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub job_uid: Option<String>,
    /// The holder must renew a coordination.k8s.io Lease with the name of the claim at least this often, from 1s to half of `ttl`. If the
    /// holder stops, it loses the lock at most `ttl` plus `renewInterval` plus 1s after its last renewal, or after the grant if that is later. Renew the
    /// Lease three times as often as this, also while the claim waits. A claim whose Lease is missing or has not changed for one `ttl` does
    /// not get the lock. A new claim has one `ttl` for its first renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<GoDuration>,
}

/// Candidates for leadership.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = election_rules)]
pub struct Election {
    /// Labels of the candidate pods in the namespace of the lock.
    pub selector: LabelSelector,
    /// The container that leads. When it restarts, the pod loses leadership. Default: the only container of the pod, or the one that its
    /// annotation `kubectl.kubernetes.io/default-container` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// Which ready candidate becomes the leader. A leader that is alive is never replaced by a preferred candidate. Candidates on nodes
    /// that are cordoned come last. `Oldest`: the pod that was created first. `Newest`: the pod that was created last, so that a rolling
    /// update hands the lock over once. `LowestOrdinal`: the lowest number at the end of the pod's name, as in a StatefulSet.
    /// `Priority`: the highest value of the annotation `redlock-operator.io/priority`.
    #[serde(default)]
    pub preference: Preference,
    /// Set the label `leader.redlock-operator.io/<lock name>: "true"` on the leader, so that a Service can select it. The leader also gets
    /// the annotation `controller.kubernetes.io/pod-deletion-cost`, so that a scaled-down ReplicaSet deletes other pods first.
    #[serde(default = "yes")]
    pub leader_label: bool,
    /// The Lease in the namespace of the lock by which the candidates elect with client-go (flag `--leader-elect`). Only the pod that holds the
    /// lock can write its name into this Lease. Needs the chart's value `leaseGate.enabled`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<ElectionLease>,
}

impl Default for Election {
    fn default() -> Self {
        Self {
            selector: LabelSelector::default(),
            container: None,
            preference: Preference::default(),
            leader_label: true,
            lease: None,
        }
    }
}

/// The Lease of an election.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ElectionLease {
    /// Name of the Lease.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::lease_name()))]
    pub name: String,
}

fn yes() -> bool {
    true
}

fn election_rules(schema: &mut Schema) {
    add_rules(
        schema,
        [rule(
            ".selector",
            "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
             (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
            "an empty selector makes every pod a candidate: set one, e.g. selector: {matchLabels: {app: scheduler}}",
        )],
    );
}

/// Which ready candidate becomes the leader.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The pod that was created first.
    #[default]
    Oldest,
    /// The pod that was created last.
    Newest,
    /// The lowest number at the end of the pod's name.
    LowestOrdinal,
    /// The highest value of the annotation `redlock-operator.io/priority`.
    Priority,
}
