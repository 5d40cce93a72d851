use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{member_labels, owned};
use crate::api::MEMBER_LABEL;
use crate::quorum::model::expose::{ExposePlan, PORT};
use crate::quorum::model::plan::{MemberPlan, Plan};

/// The Service with the name of one member.
///
/// It publishes addresses that are not ready. A fenced member replies "no permission" to its clients, which count it as a
/// missing vote. Many clients cannot start at all if a name does not resolve.
pub(super) fn headless(plan: &Plan, member: &MemberPlan) -> Service {
    Service {
        metadata: owned(plan, member.name.clone(), member_labels(plan, member)),
        spec: Some(ServiceSpec { cluster_ip: Some("None".into()), ..to_member(member) }),
        status: None,
    }
}

/// The Service by which clients outside the cluster reach one member, even if it is not ready.
pub(super) fn external(plan: &Plan, expose: &ExposePlan, member: &MemberPlan) -> Service {
    let mut metadata = owned(plan, member.external_name(), member_labels(plan, member));
    metadata.annotations = (!expose.annotations.is_empty()).then(|| expose.annotations.clone());
    let ranges = Some(&expose.source_ranges).filter(|ranges| !ranges.is_empty());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(expose.type_.into()),
            // Otherwise a connection has the address of the node on its path, and the ranges have no effect.
            external_traffic_policy: ranges.map(|_| "Local".into()),
            // The API server accepts the field for this type only.
            load_balancer_source_ranges: ranges.filter(|_| expose.type_ == "LoadBalancer").cloned(),
            ..to_member(member)
        }),
        status: None,
    }
}

fn to_member(member: &MemberPlan) -> ServiceSpec {
    ServiceSpec {
        publish_not_ready_addresses: Some(true),
        selector: Some(BTreeMap::from([(MEMBER_LABEL.to_owned(), member.name.clone())])),
        ports: Some(vec![ServicePort {
            name: Some("redis".into()),
            port: i32::from(PORT),
            target_port: Some(IntOrString::String("redis".into())),
            protocol: Some("TCP".into()),
            ..ServicePort::default()
        }]),
        ..ServiceSpec::default()
    }
}
