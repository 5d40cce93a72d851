//! What the operator was told about its surroundings, by the chart.

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{args::OperatorArgs, cache::Unreadable, limits::Limits, scope::Scope};
use crate::api::RedisQuorum;

/// The same for all replicas of an installation, but for the time of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The quorum of locks that name none. Nobody can make another one the default but who runs the operator.
    pub default_quorum: Option<ObjectRef<RedisQuorum>>,
    /// This installation, `<namespace>/<Lease name>`.
    pub installation: String,
    /// Whose locks it looks after.
    pub locks: Scope,
    /// Whose quorums it looks after.
    pub quorums: Scope,
    /// How many of them it serves in one namespace.
    pub limits: Limits,
}

impl Settings {
    /// Of the command line.
    #[must_use]
    pub fn of(args: &OperatorArgs) -> Self {
        Self {
            default_quorum: default_quorum(args),
            installation: format!("{}/{}", args.namespace, args.lease),
            locks: Scope::of(&args.watch_namespaces, &args.leave_out_namespaces),
            quorums: Scope::of(&args.quorum_namespaces, &args.leave_out_namespaces),
            limits: Limits::new(args.max_locks_per_namespace, args.max_quorums_per_namespace),
        }
    }
}

impl Settings {
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

fn default_quorum(args: &OperatorArgs) -> Option<ObjectRef<RedisQuorum>> {
    let namespace = Some(&args.default_quorum_namespace).filter(|namespace| !namespace.is_empty());
    let reference = || ObjectRef::new(&args.default_quorum_name).within(namespace.unwrap_or(&args.namespace));
    (!args.default_quorum_name.is_empty()).then(reference)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: OperatorArgs,
    }

    fn settings(arguments: &[&str]) -> Settings {
        let line = ["redlock", "--namespace", "control", "--pod-name", "a"].iter().chain(arguments);
        Settings::of(&Line::parse_from(line).args)
    }

    #[test]
    fn the_default_quorum_is_in_the_operators_namespace_unless_it_is_told_otherwise() {
        let default = |arguments: &[&str]| settings(arguments).default_quorum.map(|quorum| quorum.to_string());
        assert!(default(&[]).is_some_and(|name| name.contains("main.control")), "{:?}", default(&[]));
        let elsewhere = ["--default-quorum-namespace", "redis", "--default-quorum-name", "big"];
        assert!(default(&elsewhere).is_some_and(|name| name.contains("big.redis")), "{:?}", default(&elsewhere));
        assert_eq!(default(&["--default-quorum-name", ""]), None);
    }

    #[test]
    fn an_installation_serves_the_quorums_of_its_namespaces_that_no_other_has() {
        let quorum = |namespace: &str, installation: serde_json::Value| -> RedisQuorum {
            serde_json::from_value(
                serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
                "metadata": {"name": "q", "namespace": namespace}, "spec": {}, "status": installation}),
            )
            .unwrap()
        };
        let (own, other) =
            (serde_json::json!({"installation": "control/mine"}), serde_json::json!({"installation": "a/b"}));
        let all = settings(&["--lease", "mine", "--leave-out-namespaces", "a,b"]);
        assert_eq!(all.installation, "control/mine");
        assert!(all.serves(&quorum("c", own.clone())) && all.serves(&quorum("c", serde_json::json!({}))));
        assert!(!all.serves(&quorum("c", other)) && !all.serves(&quorum("a", own.clone())));
        let some = settings(&["--lease", "mine", "--quorum-namespaces", "a", "--watch-namespaces", "b"]);
        assert!(some.serves(&quorum("a", own.clone())) && !some.serves(&quorum("b", own)));
        assert!(some.locks.contains("b") && !some.locks.contains("a"));
    }
}
