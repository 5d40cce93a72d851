use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{owned, quorum_labels, quorum_selector};
use crate::quorum::plan::Plan;

/// At most one member away at a time. Readiness follows admission, so a fenced member counts as away already.
///
/// `AlwaysAllow`: a member that is not ready has no vote to lose, so evicting it only starts its wait again. The other policy
/// would let members that can never become ready (a bad image, a dead node) block every drain.
pub(super) fn budget(plan: &Plan) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: owned(plan, plan.name.clone(), quorum_labels(plan)),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector { match_labels: Some(quorum_selector(plan)), ..LabelSelector::default() }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
