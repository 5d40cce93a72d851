//! Builds the objects of a plan, without IO: one builder per kind. The objects do not depend on the time or on the operator's version, so an
//! upgrade of the operator alone changes no pod template.

mod config;
mod network;
mod secret;
mod stateful_set;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::auth::Auth;
use super::expose::Address;
use super::plan::Plan;
use crate::api::{MEMBER_LABEL, QUORUM_LABEL};

pub use config::{TLS_DIRECTORY, max_memory, memory_settings, mounted_acl_key, redis_conf, users_acl};
pub use network::operator_pods;
pub use secret::{auth_secret, certificate_data, client_secret, own_secret};
pub use stateful_set::{ACL_FILE, CONFIG_VOLUME, TLS_VOLUME};

/// Name of the container whose end is the end of a member's process.
pub const REDIS_CONTAINER: &str = "redis";

/// The current connections to members, which differ from the specification during an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Whether the pod of each member uses TLS, by index.
    pub tls: Vec<bool>,
    /// The trusted authorities, in PEM.
    pub authorities: Option<String>,
    /// Addresses that clients get instead of the members' names, by index.
    pub addresses: Vec<Option<Address>>,
}

/// All objects of a quorum in its own namespace, except the auth Secret.
///
/// The auth Secret is made once, and never applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// redis.conf and ACL files.
    pub config: Secret,
    /// One headless Service per member, and a second one with `expose`.
    pub services: Vec<Service>,
    /// One budget for all members. `None` if all members are external.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// The policy for connections to the members. `None` if all members are external.
    pub network_policy: Option<NetworkPolicy>,
    /// One Secret per client.
    pub clients: Vec<Secret>,
    /// One StatefulSet per member, by index.
    pub stateful_sets: Vec<StatefulSet>,
}

/// Builds all objects of a quorum.
pub fn build(plan: &Plan, auth: &Auth, operators: NetworkPolicyPeer, transport: &Transport) -> Objects {
    let has_members = !plan.members.is_empty();
    let client = |client| client_secret(plan, auth, transport, client, &plan.namespace);
    Objects {
        config: config::config_secret(plan, auth, transport),
        services: services(plan),
        disruption_budget: has_members.then(|| disruption_budget(plan)),
        network_policy: has_members.then(|| network::policy(plan, operators)),
        clients: plan.clients.iter().map(client).collect(),
        stateful_sets: plan.members.iter().map(|member| stateful_set::member(plan, auth, member)).collect(),
    }
}

fn services(plan: &Plan) -> Vec<Service> {
    let headless = plan.members.iter().map(|member| network::headless(plan, member));
    let exposed = plan.expose.iter().flat_map(|expose| plan.members.iter().map(move |member| (expose, member)));
    headless.chain(exposed.map(|(expose, member)| network::exposed(plan, expose, member))).collect()
}

/// Allows at most one absent member.
///
/// Readiness follows admission, so a fenced member counts as absent already.
///
/// Members that join or leave have no vote to lose, so the budget does not cover them.
///
/// `AlwaysAllow` is set because a member that is not ready has no vote to lose, so its eviction only restarts its wait. With the other
/// policy, members that can never become ready (a bad image, a dead node) would block every drain.
///
/// Extra containers can make the pod of a voting member unready, so with them the other policy applies.
fn disruption_budget(plan: &Plan) -> PodDisruptionBudget {
    let names = plan.members.iter().map(|member| member.name.clone());
    let values = Some(names.filter(|name| plan.lists.counts(name)).collect());
    let voters = LabelSelectorRequirement { key: MEMBER_LABEL.to_owned(), operator: "In".to_owned(), values };
    let unready = if plan.pod.extra_containers.is_empty() { "AlwaysAllow" } else { "IfHealthyBudget" };
    let selector = LabelSelector { match_expressions: Some(vec![voters]), ..selector(QUORUM_LABEL, &plan.name) };
    let spec = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(selector),
        unhealthy_pod_eviction_policy: Some(unready.into()),
        ..PodDisruptionBudgetSpec::default()
    };
    PodDisruptionBudget { metadata: owned(plan, plan.name.clone(), &[]), spec: Some(spec), status: None }
}

const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// The labels of all objects of a quorum, and these additional ones.
fn labels(plan: &Plan, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all: [(&str, &str); 4] = [
        ("app.kubernetes.io/name", "redis"),
        (INSTANCE_LABEL, &plan.name),
        ("app.kubernetes.io/managed-by", "redlock-operator"),
        (QUORUM_LABEL, &plan.name),
    ];
    all.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The metadata of an object of the quorum, with these labels in addition to those of all objects.
fn owned(plan: &Plan, name: String, more: &[(&str, &str)]) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(plan.namespace.clone()),
        labels: Some(labels(plan, more)),
        owner_references: Some(vec![plan.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Selects objects by one label.
fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector { match_labels: Some([(key.to_owned(), value.to_owned())].into()), ..LabelSelector::default() }
}

#[cfg(test)]
mod tests;
