//! Members that are in no list any more: closed for good, then their objects are removed, and the status forgets them when nothing
//! that they promised, and no process of theirs, can matter any more.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::{Error, RESYNC, Task, decommission::Standing, delete, publish::Publisher, request};
use crate::quorum::model::plan::Plan;

/// Between two looks at a member that leaves: the end of its objects wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Task<'_> {
    /// Carries the members that leave as far as they go; how long nothing has to be done unless something happens. They wait for
    /// nobody, and nobody waits for them.
    pub(super) async fn settle_leavers(&self, plan: &Plan, publisher: &Publisher<'_>) -> Result<Duration, Error> {
        let mut wake = RESYNC;
        for link in self.session.links().iter() {
            let name = link.name().as_str();
            if plan.member(name).is_some() {
                continue;
            }
            let standing = self.end_member(Some(plan), link, false).await?;
            // Its record is what tells of these objects, so they go first. A master that others run has none.
            let removed = link.plan().is_external()
                || (self.remove::<StatefulSet>(plan, name).await? & self.remove::<Service>(plan, name).await?);
            match standing {
                Standing::Ended if removed => {
                    publisher.write(|status| status.members.retain(|member| member.name != name)).await?;
                    self.forget_end_of_external(name);
                    tracing::info!(quorum = %self.session.reference(), member = name, "member has left");
                }
                Standing::Ended => wake = wake.min(LOOK_AGAIN),
                Standing::Waits(until, _) => {
                    wake = wake.min(until.map_or(LOOK_AGAIN, |until| until.since(self.now())));
                }
            }
        }
        Ok(wake)
    }

    /// Deletes an object of a member, if it is ours; whether there is none any more. Asked of the API server: a watch that has
    /// just begun knows of nothing.
    pub(super) async fn remove<K>(&self, plan: &Plan, name: &str) -> Result<bool, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let Some(found) = request(api.get_opt(name)).await? else { return Ok(true) };
        if !found.owner_references().iter().any(|owner| owner.uid == plan.uid) {
            return Ok(true);
        }
        if found.meta().deletion_timestamp.is_none() {
            self.forget_settled::<K>(name);
            delete(&self.leader.context.client, &found).await?;
        }
        Ok(false)
    }
}
