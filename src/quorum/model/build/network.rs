//! How peers reach the members: Services and the NetworkPolicy.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned, selector};
use crate::api::{MEMBER_LABEL, QUORUM_LABEL};
use crate::quorum::model::expose::{ExposePlan, PORT};
use crate::quorum::model::plan::{MemberPlan, Plan};

/// The Service with the name of one member.
///
/// It publishes addresses that are not ready. A fenced member replies "no permission" to its clients, which count it as a
/// missing vote. Many clients cannot start at all if a name does not resolve.
pub(super) fn headless(plan: &Plan, member: &MemberPlan) -> Service {
    let metadata = owned(plan, member.name.clone(), &[(MEMBER_LABEL, &member.name)]);
    let spec = ServiceSpec { cluster_ip: Some("None".into()), ..to_member(member) };
    Service { metadata, spec: Some(spec), status: None }
}

/// The Service by which clients outside the cluster reach one member, even if it is not ready.
pub(super) fn exposed(plan: &Plan, expose: &ExposePlan, member: &MemberPlan) -> Service {
    let mut metadata = owned(plan, member.external_name(), &[(MEMBER_LABEL, &member.name)]);
    metadata.annotations = (!expose.annotations.is_empty()).then(|| expose.annotations.clone());
    let ranges = Some(&expose.source_ranges).filter(|ranges| !ranges.is_empty());
    let spec = ServiceSpec {
        type_: Some(expose.type_.into()),
        // Otherwise a connection has the address of the node on its path, and the ranges have no effect.
        external_traffic_policy: ranges.map(|_| "Local".into()),
        // The API server accepts the field for this type only.
        load_balancer_source_ranges: ranges.filter(|_| expose.type_ == "LoadBalancer").cloned(),
        ..to_member(member)
    };
    Service { metadata, spec: Some(spec), status: None }
}

fn to_member(member: &MemberPlan) -> ServiceSpec {
    let port = ServicePort {
        name: Some("redis".into()),
        port: i32::from(PORT),
        target_port: Some(IntOrString::String("redis".into())),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    };
    ServiceSpec {
        publish_not_ready_addresses: Some(true),
        selector: Some(BTreeMap::from([(MEMBER_LABEL.to_owned(), member.name.clone())])),
        ports: Some(vec![port]),
        ..ServiceSpec::default()
    }
}

/// The label that the API server sets on every namespace.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The labels that distinguish the operator's pods from other pods.
///
/// They are equal in every version of the chart.
const IDENTITY: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// Selects the operator's pods, by labels that all replicas have, in this version and the next.
///
/// Without these labels it selects all pods of the namespace, because a policy that excludes the operator would stop every lock.
pub fn operator_pods(name: &str, labels: &BTreeMap<String, String>) -> NetworkPolicyPeer {
    let mut labels = labels.clone();
    labels.retain(|key, _| IDENTITY.contains(&key.as_str()));
    let identity = Some(labels).filter(|labels| !labels.is_empty());
    let pod_selector = identity.map(|labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
    NetworkPolicyPeer { pod_selector, ..namespace(name) }
}

/// Permits connections to Redis from the operator, and from pods in the namespaces of `spec.clients`.
///
/// With `expose`, clients from `sourceRanges` can connect as well. Without `sourceRanges` every client can, because a connection from
/// outside gets the address of a node on its path. TLS and passwords guard the members then. Members open no connections,
/// because they have no replicas and resolve no names.
pub(super) fn policy(plan: &Plan, operators: NetworkPolicyPeer) -> NetworkPolicy {
    let namespaces: BTreeSet<&str> = plan.clients.iter().map(|client| client.namespace.as_str()).collect();
    let clients = namespaces.into_iter().map(namespace);
    let ranges = plan.expose.iter().flat_map(|expose| &expose.source_ranges).map(|cidr| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.clone(), except: None }),
        ..NetworkPolicyPeer::default()
    });
    let is_for_all = plan.expose.as_ref().is_some_and(|expose| expose.source_ranges.is_empty());
    let port = Some(IntOrString::Int(i32::from(PORT)));
    let redis = NetworkPolicyPort { port, protocol: Some("TCP".into()), end_port: None };
    let from = (!is_for_all).then(|| std::iter::once(operators).chain(clients).chain(ranges).collect());
    let spec = NetworkPolicySpec {
        pod_selector: Some(selector(QUORUM_LABEL, &plan.name)),
        policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
        ingress: Some(vec![NetworkPolicyIngressRule { from, ports: Some(vec![redis]) }]),
        egress: None,
    };
    NetworkPolicy { metadata: owned(plan, plan.name.clone(), &[]), spec: Some(spec) }
}

/// Selects all pods of a namespace.
fn namespace(name: &str) -> NetworkPolicyPeer {
    let namespace_selector = Some(selector(NAMESPACE_NAME_LABEL, name));
    NetworkPolicyPeer { namespace_selector, ..NetworkPolicyPeer::default() }
}
