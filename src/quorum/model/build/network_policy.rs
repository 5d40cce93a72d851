use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned, quorum_labels, quorum_selector, selector};
use crate::quorum::model::expose::PORT;
use crate::quorum::model::plan::Plan;

/// The label that the API server itself puts on every namespace.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The labels that distinguish the operator's pods from others, the same in every version of the chart.
const IDENTITY: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// Where the operator's own pods are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorPods {
    /// Their namespace.
    pub namespace: String,
    /// Labels that all replicas have, of this version and of the next.
    pub labels: BTreeMap<String, String>,
}

impl OperatorPods {
    /// From the labels of one of them. With neither label known, all pods of the namespace are meant: a policy that shut the
    /// operator out would stop every lock.
    pub fn new(namespace: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut labels = labels.clone();
        labels.retain(|key, _| IDENTITY.contains(&key.as_str()));
        Self { namespace: namespace.to_owned(), labels }
    }
}

/// Lets only the operator, and pods in the namespaces of `spec.clients`, reach Redis.
///
/// With `expose`, peers from `sourceRanges` reach it, too. Without `sourceRanges` everyone does: a connection from
/// outside gets the address of the node on its way. TLS and passwords guard the members then. Members make no calls:
/// they have no replicas, and no names to look up.
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
