use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned, quorum_labels, quorum_selector};
use crate::api::MEMBER_LABEL;
use crate::quorum::model::plan::Plan;

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
pub(super) fn budget(plan: &Plan) -> PodDisruptionBudget {
    let names = plan.members.iter().map(|member| member.name.clone());
    let voters = LabelSelectorRequirement {
        key: MEMBER_LABEL.to_owned(),
        operator: "In".to_owned(),
        values: Some(names.filter(|name| plan.lists.counts(name)).collect()),
    };
    let unready = if plan.pod.extra_containers.is_empty() { "AlwaysAllow" } else { "IfHealthyBudget" };
    PodDisruptionBudget {
        metadata: owned(plan, plan.name.clone(), quorum_labels(plan)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(quorum_selector(plan)),
                match_expressions: Some(vec![voters]),
            }),
            unhealthy_pod_eviction_policy: Some(unready.into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
