//! The settings of the operator, from the chart.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use super::limits::Limits;
use super::scope::Scope;
use crate::api::RedisQuorum;
use crate::api::lenient::Unreadable;

/// The same for all replicas of an installation, but for the time of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The quorum of locks that name none. Only the administrator of the operator can make another one the default.
    pub default_quorum: Option<ObjectRef<RedisQuorum>>,
    /// It serves the quorums whose `spec.installation` is this one.
    pub installation: String,
    /// This operator, `<namespace>/<Lease name>`, for people and commands.
    pub operator: String,
    /// Namespaces whose locks it serves.
    pub locks: Scope,
    /// Namespaces whose quorums it serves.
    pub quorums: Scope,
    /// Where copies of the Secrets of clients go. `*`: everywhere.
    pub clients: BTreeSet<String>,
    /// Whether it takes locks for Jobs, and starts and suspends them.
    pub jobs: bool,
    /// Where the chart's policy does not compare Leases with locks. `None`: nowhere does it.
    pub lease_gate_leaves_out: Option<BTreeSet<String>>,
    /// Whether each lock has series of its own among the metrics.
    pub lock_metrics: bool,
    /// How many of them it serves in one namespace.
    pub limits: Limits,
}

impl Settings {
    /// Whether the administrator lets copies of the Secrets of clients into this namespace.
    #[must_use]
    pub fn takes_copies(&self, namespace: &str) -> bool {
        self.clients.contains(namespace) || self.clients.contains("*")
    }

    /// Whether this operator serves a quorum: one of its namespaces and of its installation. Neither changes while the quorum exists.
    #[must_use]
    pub fn serves(&self, quorum: &RedisQuorum) -> bool {
        self.is_ours(&quorum.namespace().unwrap_or_default(), &quorum.spec.installation)
    }

    /// The same of one that cannot be read.
    #[must_use]
    pub fn serves_unreadable(&self, quorum: &Unreadable) -> bool {
        self.is_ours(quorum.metadata.namespace.as_deref().unwrap_or_default(), unreadable_installation(quorum))
    }

    /// Whether a policy admits to a Lease of this namespace only the holder of its lock.
    #[must_use]
    pub fn gates_leases(&self, namespace: &str) -> bool {
        self.lease_gate_leaves_out.as_ref().is_some_and(|left_out| !left_out.contains(namespace))
    }

    fn is_ours(&self, namespace: &str, installation: &str) -> bool {
        self.quorums.contains(namespace) && installation == self.installation
    }
}

/// `spec.installation` of a quorum that cannot be read.
#[must_use]
pub fn unreadable_installation(quorum: &Unreadable) -> &str {
    quorum.spec("installation").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_copies_and_the_lease_gate_need_an_administrator() {
        let settings = |names: &[&str]| Settings {
            clients: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Settings::default()
        };
        assert!(settings(&["web"]).takes_copies("web") && settings(&["*"]).takes_copies("web"));
        let gate = Settings { lease_gate_leaves_out: Some(["kube-system".to_owned()].into()), ..Settings::default() };
        assert!(gate.gates_leases("web") && !gate.gates_leases("kube-system"));
        assert!(!Settings::default().gates_leases("web"));
        assert!(!settings(&["web"]).takes_copies("kube-system") && !settings(&[""]).takes_copies("web"));
    }
}
