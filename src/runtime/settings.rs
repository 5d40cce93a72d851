//! What the operator was told about its surroundings, by the chart.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::cache::Unreadable;
use super::limits::Limits;
use super::scope::Scope;
use crate::api::RedisQuorum;

/// The same for all replicas of an installation, but for the time of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The quorum of locks that name none. Only the administrator of the operator can make another one the default.
    pub default_quorum: Option<ObjectRef<RedisQuorum>>,
    /// This installation, `<namespace>/<Lease name>`.
    pub installation: String,
    /// Whose locks it looks after.
    pub locks: Scope,
    /// Whose quorums it looks after.
    pub quorums: Scope,
    /// Where copies of the Secrets of clients go. `*`: everywhere.
    pub clients: BTreeSet<String>,
    /// Whether it takes locks for Jobs, and starts and suspends them.
    pub jobs: bool,
    /// How many of them it serves in one namespace.
    pub limits: Limits,
}

impl Settings {
    /// Whether the administrator lets copies of the Secrets of clients into this namespace.
    #[must_use]
    pub fn takes_copies(&self, namespace: &str) -> bool {
        self.clients.contains(namespace) || self.clients.contains("*")
    }

    /// Whether this installation looks after a quorum: one of its namespaces, and of no other installation.
    #[must_use]
    pub fn serves(&self, quorum: &RedisQuorum) -> bool {
        let installation = quorum.status.as_ref().and_then(|status| status.installation.as_deref());
        self.is_ours(&quorum.namespace().unwrap_or_default(), installation)
    }

    /// The same of one that cannot be read.
    #[must_use]
    pub fn serves_unreadable(&self, quorum: &Unreadable) -> bool {
        let installation = quorum.status("installation").and_then(|installation| installation.as_str());
        self.is_ours(quorum.metadata.namespace.as_deref().unwrap_or_default(), installation)
    }

    fn is_ours(&self, namespace: &str, installation: Option<&str>) -> bool {
        self.quorums.contains(namespace) && installation.is_none_or(|installation| installation == self.installation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_secrets_go_only_where_the_administrator_says() {
        let settings = |names: &[&str]| Settings {
            clients: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Settings::default()
        };
        assert!(settings(&["web"]).takes_copies("web") && settings(&["*"]).takes_copies("web"));
        assert!(!settings(&["web"]).takes_copies("kube-system") && !settings(&[""]).takes_copies("web"));
    }
}
