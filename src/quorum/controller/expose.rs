//! How members are reached from outside the cluster: what the Services have got, and Services that are no longer wanted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::{Error, Task, delete};
use crate::{
    api::QUORUM_LABEL,
    quorum::model::{
        expose::{Address, SUFFIX, balancer_host},
        facts,
        plan::{MemberPlan, Plan},
    },
};

impl Task<'_> {
    /// Where peers outside reach each member, by index.
    pub(super) fn external_addresses(&self, plan: &Plan) -> Vec<Option<Address>> {
        let Some(expose) = &plan.expose else { return Vec::new() };
        let address = |member: &MemberPlan| {
            let pod = self.leader.context.pods.named(&plan.namespace, &member.pod_name());
            let node = pod.as_deref().and_then(facts::node_name);
            let node = node.and_then(|name| self.leader.context.nodes.cluster_named(&name));
            expose.address(member.index, self.external_service(plan, member).as_deref(), node.as_deref())
        };
        plan.members.iter().map(address).collect()
    }

    /// What clients are given in place of the members' names, by index.
    pub(super) fn given_addresses(&self, plan: &Plan) -> Vec<Option<Address>> {
        let Some(expose) = &plan.expose else { return Vec::new() };
        let given = |member: &MemberPlan| expose.given(member.index, self.external_service(plan, member).as_deref());
        plan.members.iter().map(given).collect()
    }

    /// Hosts of the members' load balancers.
    pub(super) fn balancer_hosts(&self, plan: &Plan) -> Vec<String> {
        let services = plan.members.iter().filter_map(|member| self.external_service(plan, member));
        services.filter_map(|service| balancer_host(&service)).collect()
    }

    fn external_service(&self, plan: &Plan, member: &MemberPlan) -> Option<Arc<Service>> {
        self.leader.owned.services.named(&plan.namespace, &member.external_name()).filter(|_| plan.expose.is_some())
    }

    /// Removes Services of this quorum by which members are reached from outside, but for those of the plan.
    pub(super) async fn hide(&self, plan: &Plan) -> Result<(), Error> {
        let wanted = |name: &str| plan.expose.is_some() && plan.members.iter().any(|m| m.external_name() == name);
        for service in self.leader.owned.services.all() {
            let name = service.name_any();
            let ours = service.namespace().as_deref() == Some(plan.namespace.as_str())
                && service.labels().get(QUORUM_LABEL) == Some(&plan.name)
                && service.owner_references().iter().any(|owner| owner.uid == plan.uid);
            let ends = service.metadata.deletion_timestamp.is_some();
            if !ours || ends || !name.ends_with(SUFFIX) || wanted(&name) {
                continue;
            }
            if delete(&self.leader.context.client, service.as_ref()).await? {
                tracing::info!(quorum = %self.session.reference(), service = %name, "no longer exposed");
            }
        }
        Ok(())
    }
}
