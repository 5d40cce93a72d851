use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned, quorum_labels, quorum_selector, selector};
use crate::quorum::model::expose::PORT;
use crate::quorum::model::plan::Plan;

/// The label that the API server sets on every namespace.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The labels that distinguish the operator's pods from other pods.
///
/// They are equal in every version of the chart.
const IDENTITY: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// The namespace and the labels of the operator's pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorPods {
    /// Their namespace.
    pub namespace: String,
    /// Labels that all replicas have, in this version and the next.
    pub labels: BTreeMap<String, String>,
}

impl OperatorPods {
    /// Takes the labels of one of the operator's pods.
    ///
    /// Without these labels it selects all pods of the namespace, because a policy that excludes the operator would stop every lock.
    pub fn new(namespace: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut labels = labels.clone();
        labels.retain(|key, _| IDENTITY.contains(&key.as_str()));
        Self { namespace: namespace.to_owned(), labels }
    }
}

/// Permits connections to Redis from the operator, and from pods in the namespaces of `spec.clients`.
///
/// With `expose`, clients from `sourceRanges` can connect as well. Without `sourceRanges` every client can, because a connection from
/// outside gets the address of a node on its path. TLS and passwords guard the members then. Members open no connections,
/// because they have no replicas and resolve no names.
pub(super) fn policy(plan: &Plan, operator: &OperatorPods) -> NetworkPolicy {
    let operators = NetworkPolicyPeer {
        namespace_selector: Some(namespace(&operator.namespace)),
        pod_selector: (!operator.labels.is_empty()).then(|| selector(operator.labels.clone())),
        ip_block: None,
    };
    let namespaces: BTreeSet<&str> = plan.clients.iter().map(|client| client.namespace.as_str()).collect();
    let clients = namespaces
        .into_iter()
        .map(|name| NetworkPolicyPeer { namespace_selector: Some(namespace(name)), ..NetworkPolicyPeer::default() });
    let ranges = plan.expose.iter().flat_map(|expose| &expose.source_ranges).map(|cidr| NetworkPolicyPeer {
        ip_block: Some(IPBlock { cidr: cidr.clone(), except: None }),
        ..NetworkPolicyPeer::default()
    });
    let is_for_all = plan.expose.as_ref().is_some_and(|expose| expose.source_ranges.is_empty());
    let redis = NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(PORT))),
        protocol: Some("TCP".into()),
        ..NetworkPolicyPort::default()
    };
    NetworkPolicy {
        metadata: owned(plan, plan.name.clone(), quorum_labels(plan)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(selector(quorum_selector(plan))),
            policy_types: Some(vec!["Ingress".into(), "Egress".into()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: (!is_for_all).then(|| std::iter::once(operators).chain(clients).chain(ranges).collect()),
                ports: Some(vec![redis]),
            }]),
            egress: None,
        }),
    }
}

fn namespace(name: &str) -> LabelSelector {
    selector(BTreeMap::from([(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned())]))
}
