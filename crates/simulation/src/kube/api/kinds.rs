//! The kinds that the server stores.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    Deployment,
    DistributedLock,
    Event,
    Job,
    Lease,
    Namespace,
    NetworkPolicy,
    Node,
    Pod,
    PodDisruptionBudget,
    RedisQuorum,
    ReplicaSet,
    Secret,
    Service,
    StatefulSet,
}

/// Properties of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub kind: Kind,
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub name: &'static str,
    pub namespaced: bool,
    /// Whether it has a subresource `status`, which no other write changes.
    pub has_status: bool,
    /// Whether its spec has a generation.
    pub counts: bool,
    /// Whether it can be replaced without a resource version.
    pub unconditional: bool,
}

const fn facts(kind: Kind, group: &'static str, plural: &'static str, name: &'static str, traits: &str) -> Facts {
    let version = match kind {
        Kind::DistributedLock | Kind::RedisQuorum => "v1alpha1",
        _ => "v1",
    };
    let traits = traits.as_bytes();
    Facts {
        kind,
        group,
        version,
        plural,
        name,
        namespaced: !matches!(kind, Kind::Node | Kind::Namespace),
        has_status: traits[0] == b's',
        counts: traits[1] == b'g',
        unconditional: traits[2] == b'u',
    }
}

const OURS: &str = "redlock-operator.io";

/// All kinds, in the order of [`Kind`].
///
/// The letters mean status, generation and unconditional.
const ALL: [Facts; 16] = [
    facts(Kind::ConfigMap, "", "configmaps", "ConfigMap", "--u"),
    facts(Kind::Deployment, "apps", "deployments", "Deployment", "sgu"),
    facts(Kind::DistributedLock, OURS, "distributedlocks", "DistributedLock", "sg-"),
    facts(Kind::Event, "events.k8s.io", "events", "Event", "--u"),
    facts(Kind::Job, "batch", "jobs", "Job", "sgu"),
    facts(Kind::Lease, "coordination.k8s.io", "leases", "Lease", "---"),
    facts(Kind::Namespace, "", "namespaces", "Namespace", "s-u"),
    facts(Kind::NetworkPolicy, "networking.k8s.io", "networkpolicies", "NetworkPolicy", "-gu"),
    facts(Kind::Node, "", "nodes", "Node", "s-u"),
    facts(Kind::Pod, "", "pods", "Pod", "s-u"),
    facts(Kind::PodDisruptionBudget, "policy", "poddisruptionbudgets", "PodDisruptionBudget", "sg-"),
    facts(Kind::RedisQuorum, OURS, "redisquorums", "RedisQuorum", "sg-"),
    facts(Kind::ReplicaSet, "apps", "replicasets", "ReplicaSet", "sgu"),
    facts(Kind::Secret, "", "secrets", "Secret", "--u"),
    facts(Kind::Service, "", "services", "Service", "s-u"),
    facts(Kind::StatefulSet, "apps", "statefulsets", "StatefulSet", "sgu"),
];

impl Kind {
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|facts| facts.kind)
    }

    pub fn facts(self) -> &'static Facts {
        &ALL[self as usize]
    }

    /// The `apiVersion` of the kind.
    pub fn api_version(self) -> String {
        let Facts { group, version, .. } = self.facts();
        if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") }
    }

    pub fn of_path(group: &str, version: &str, plural: &str) -> Option<Self> {
        let found = ALL.iter().find(|facts| (facts.group, facts.version, facts.plural) == (group, version, plural));
        found.map(|facts| facts.kind)
    }

    /// Finds a kind by the `apiVersion` and `kind` of an owner reference.
    pub fn named(api_version: &str, name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.facts().name == name && kind.api_version() == api_version)
    }

    /// The name in messages: `pods`, `jobs.batch`.
    pub fn resource(self) -> String {
        let Facts { group, plural, .. } = self.facts();
        if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") }
    }

    /// Whether one of our CustomResourceDefinitions describes its objects.
    pub fn is_custom(self) -> bool {
        self.facts().group == OURS
    }
}
