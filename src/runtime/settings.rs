//! The settings of the operator, from the chart.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use serde_json::Value;

use super::limits::Limits;
use super::scope::Scope;
use crate::api::RedisQuorum;
use crate::api::lenient::Unreadable;

/// The settings of an installation. All its replicas have the same, except during an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The quorum of locks that name no quorum. Only the administrator of the operator can change it.
    pub default_quorum: Option<ObjectRef<RedisQuorum>>,
    /// The operator serves the quorums with this `spec.installation`.
    pub installation: String,
    /// The name of this operator for users and commands: `<namespace>/<Lease name>`.
    pub operator: String,
    /// Namespaces whose locks it serves.
    pub locks: Scope,
    /// Namespaces whose quorums it serves.
    pub quorums: Scope,
    /// Namespaces that can get copies of client Secrets. `*` means all namespaces except `left_out`.
    pub clients: BTreeSet<String>,
    /// Namespaces that other installations serve.
    pub left_out: BTreeSet<String>,
    /// Whether it takes locks for Jobs, and starts and suspends them.
    pub jobs: bool,
    /// Namespaces without the policy on Leases. With `None` no namespace has it.
    pub lease_gate_leaves_out: Option<BTreeSet<String>>,
    /// Whether each lock has its own series in the metrics.
    pub lock_metrics: bool,
    /// Maximum number of served locks and quorums in one namespace.
    pub limits: Limits,
}

impl Settings {
    /// Whether the administrator allows copies of client Secrets in this namespace.
    pub fn takes_copies(&self, namespace: &str) -> bool {
        (self.clients.contains(namespace) || self.clients.contains("*")) && !self.left_out.contains(namespace)
    }

    /// Whether a quorum has the operator's installation, and is in one of its namespaces.
    ///
    /// Neither changes while the quorum exists.
    pub fn serves(&self, quorum: &RedisQuorum) -> bool {
        self.is_ours(&quorum.namespace().unwrap_or_default(), &quorum.spec.installation)
    }

    /// Like [`Settings::serves`], for an unreadable quorum.
    pub fn serves_unreadable(&self, quorum: &Unreadable) -> bool {
        self.is_ours(quorum.metadata.namespace.as_deref().unwrap_or_default(), unreadable_installation(quorum))
    }

    /// Whether a policy refuses writes to a Lease in this namespace, except by the holder of its lock.
    pub fn gates_leases(&self, namespace: &str) -> bool {
        self.lease_gate_leaves_out.as_ref().is_some_and(|left_out| !left_out.contains(namespace))
    }

    fn is_ours(&self, namespace: &str, installation: &str) -> bool {
        self.quorums.contains(namespace) && installation == self.installation
    }
}

/// `spec.installation` of an unreadable quorum.
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
        let all_but_one = Settings { left_out: ["team".to_owned()].into(), ..settings(&["*"]) };
        assert!(all_but_one.takes_copies("web") && !all_but_one.takes_copies("team"));
        let gate = Settings { lease_gate_leaves_out: Some(["kube-system".to_owned()].into()), ..Settings::default() };
        assert!(gate.gates_leases("web") && !gate.gates_leases("kube-system"));
        assert!(!Settings::default().gates_leases("web"));
        assert!(!settings(&["web"]).takes_copies("kube-system") && !settings(&[""]).takes_copies("web"));
    }
}
