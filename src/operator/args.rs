//! Command line of `redlock operator`. The chart sets every flag by an environment variable.

use std::net::SocketAddr;

use ipnet::IpNet;
use kube::runtime::reflector::ObjectRef;

use crate::api::RedisQuorum;
use crate::redis_member::network;
use crate::runtime::limits::Limits;
use crate::runtime::scope::Scope;
use crate::runtime::settings::Settings;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Quorums and namespaces that an installation serves.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Scopes {
    /// Quorums with this `spec.installation` are served, and the locks on them.
    #[arg(long, env = "REDLOCK_INSTALLATION", default_value = "")]
    pub installation: String,
    /// Namespaces whose locks are served, separated by commas. Empty: all.
    #[arg(long, env = "REDLOCK_WATCH_NAMESPACES", value_delimiter = ',', default_value = "")]
    pub watch_namespaces: Vec<String>,
    /// Namespaces whose quorums are served, separated by commas. Empty: all.
    #[arg(long, env = "REDLOCK_QUORUM_NAMESPACES", value_delimiter = ',', default_value = "")]
    pub quorum_namespaces: Vec<String>,
    /// Namespaces that get copies of the Secrets of clients, separated by commas. `*`: all.
    #[arg(long, env = "REDLOCK_CLIENT_NAMESPACES", value_delimiter = ',', default_value = "")]
    pub client_namespaces: Vec<String>,
    /// Namespaces that are left to other installations, separated by commas.
    #[arg(long, env = "REDLOCK_LEAVE_OUT_NAMESPACES", value_delimiter = ',', default_value = "")]
    pub leave_out_namespaces: Vec<String>,
}

impl Scopes {
    /// Namespaces whose locks are served.
    pub fn locks(&self) -> Scope {
        Scope::of(&self.watch_namespaces, &self.leave_out_namespaces)
    }

    /// Namespaces whose quorums are served.
    pub fn quorums(&self) -> Scope {
        Scope::of(&self.quorum_namespaces, &self.leave_out_namespaces)
    }
}

/// Settings of the operator process.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArgs {
    /// Namespace that the operator runs in; its leader Lease lives there.
    #[arg(long, env = "POD_NAMESPACE", default_value = "redlock-system")]
    pub namespace: String,
    /// Unique name of this replica.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: String,
    /// Address of /healthz, /readyz and /metrics. The IPv6 wildcard also takes IPv4.
    #[arg(long, env = "REDLOCK_LISTEN", default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// Spec of the default RedisQuorum as JSON; it is created when absent. Empty: none.
    #[arg(long, env = "REDLOCK_DEFAULT_QUORUM", default_value = "")]
    pub default_quorum: String,
    /// Namespace of the default RedisQuorum. Empty: the operator's.
    #[arg(long, env = "REDLOCK_DEFAULT_QUORUM_NAMESPACE", default_value = "")]
    pub default_quorum_namespace: String,
    /// Name of the default RedisQuorum, the one of locks that name none. Empty: there is no default.
    #[arg(long, env = "REDLOCK_DEFAULT_QUORUM_NAME", default_value = "main")]
    pub default_quorum_name: String,
    /// Name of the leader Lease.
    #[arg(long, env = "REDLOCK_LEASE", default_value = "redlock-operator")]
    pub lease: String,
    /// Quorums and namespaces that it serves.
    #[command(flatten)]
    pub scopes: Scopes,
    /// Ranges of addresses in which no external master can be, separated by commas.
    #[arg(long, env = "REDLOCK_REFUSED_NETWORKS", value_delimiter = ',', value_parser = network)]
    pub refused_networks: Vec<IpNet>,
    /// Addresses of this pod, separated by commas. No external master can have them.
    #[arg(long, env = "POD_IPS", value_delimiter = ',', value_parser = network)]
    pub pod_ips: Vec<IpNet>,
    /// Locks of one namespace that are served. 0: any number.
    #[arg(long, env = "REDLOCK_MAX_LOCKS_PER_NAMESPACE", default_value_t = 10_000)]
    pub max_locks_per_namespace: usize,
    /// Quorums of one namespace that are served. 0: any number.
    #[arg(long, env = "REDLOCK_MAX_QUORUMS_PER_NAMESPACE", default_value_t = 20)]
    pub max_quorums_per_namespace: usize,
    /// Whether it takes locks for Jobs, starts them, and suspends them.
    #[arg(long, env = "REDLOCK_JOBS", action = clap::ArgAction::Set, default_value_t = false)]
    pub jobs: bool,
    /// Whether a policy admits to the Leases of elections only the holders of their locks. The operator then keeps these Leases true.
    #[arg(long, env = "REDLOCK_LEASE_GATE", action = clap::ArgAction::Set, default_value_t = false)]
    pub lease_gate: bool,
    /// Namespaces without that policy, separated by commas.
    #[arg(long, env = "REDLOCK_LEASE_GATE_LEAVES_OUT", value_delimiter = ',', default_value = "")]
    pub lease_gate_leaves_out: Vec<String>,
    /// Give each lock series of its own on /metrics.
    #[arg(long, env = "REDLOCK_LOCK_METRICS", action = clap::ArgAction::Set, default_value_t = false)]
    pub lock_metrics: bool,
    /// Log filter, e.g. "info" or "info,redlock_operator=debug".
    #[arg(long, env = "REDLOCK_LOG", default_value = "info")]
    pub log: String,
    /// Log format.
    #[arg(long, env = "REDLOCK_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

impl OperatorArgs {
    /// The settings that the rest of the operator reads.
    pub fn settings(&self) -> Settings {
        Settings {
            default_quorum: self.default_quorum(),
            installation: self.scopes.installation.clone(),
            operator: format!("{}/{}", self.namespace, self.lease),
            locks: self.scopes.locks(),
            quorums: self.scopes.quorums(),
            clients: self.scopes.client_namespaces.iter().cloned().collect(),
            left_out: self.scopes.leave_out_namespaces.iter().cloned().collect(),
            jobs: self.jobs,
            lock_metrics: self.lock_metrics,
            lease_gate_leaves_out: self.lease_gate.then(|| self.lease_gate_leaves_out.iter().cloned().collect()),
            limits: Limits::new(self.max_locks_per_namespace, self.max_quorums_per_namespace),
        }
    }

    fn default_quorum(&self) -> Option<ObjectRef<RedisQuorum>> {
        let namespace = Some(&self.default_quorum_namespace).filter(|namespace| !namespace.is_empty());
        let reference = || ObjectRef::new(&self.default_quorum_name).within(namespace.unwrap_or(&self.namespace));
        (!self.default_quorum_name.is_empty()).then(reference)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::tests::arguments;

    fn settings(more: &[&str]) -> Settings {
        let line = [&["--namespace", "control", "--pod-name", "a"], more].concat();
        arguments::<OperatorArgs>(&line).settings()
    }

    #[test]
    fn the_default_quorum_is_by_default_in_the_operators_namespace() {
        let default = |arguments: &[&str]| settings(arguments).default_quorum.map(|quorum| quorum.to_string());
        assert!(default(&[]).is_some_and(|name| name.contains("main.control")), "{:?}", default(&[]));
        let elsewhere = ["--default-quorum-namespace", "redis", "--default-quorum-name", "big"];
        assert!(default(&elsewhere).is_some_and(|name| name.contains("big.redis")), "{:?}", default(&elsewhere));
        assert_eq!(default(&["--default-quorum-name", ""]), None);
    }

    #[test]
    fn an_operator_serves_quorums_of_its_namespaces() {
        let quorum = |namespace: &str, installation: &str| {
            let metadata = json!({"name": "q", "namespace": namespace});
            parsed::<RedisQuorum>(json!({"metadata": metadata, "spec": {"installation": installation}}))
        };
        let all = settings(&["--lease", "mine", "--leave-out-namespaces", "a,b", "--client-namespaces", "*"]);
        assert_eq!(all.operator, "control/mine");
        assert!(all.takes_copies("c") && !all.takes_copies("a"));
        assert!(all.serves(&quorum("c", "")) && !all.serves(&quorum("c", "team")) && !all.serves(&quorum("a", "")));
        let some = settings(&["--installation", "team", "--quorum-namespaces", "a", "--watch-namespaces", "b"]);
        assert!(some.serves(&quorum("a", "team")) && !some.serves(&quorum("b", "team")));
        assert!(!some.serves(&quorum("a", "")) && !some.serves(&quorum("a", "other")));
        assert!(some.locks.contains("b") && !some.locks.contains("a"));
    }
}
