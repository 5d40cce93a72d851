//! The auth Secret: made once, written back from memory, never made anew under running members.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::{Error, Task, request};
use crate::api::FIELD_MANAGER;
use crate::api::conditions::CommonReason;
use crate::quorum::auth::Auth;
use crate::quorum::build::auth_secret;
use crate::quorum::plan::Plan;
use crate::quorum::session::auth_of;
use crate::quorum::status::Obstacle;

impl Task<'_> {
    /// The quorum's secrets; `None` if they are lost, and nothing may be done.
    pub(super) async fn ensure_auth(&self, plan: &Plan) -> Result<Option<Auth>, Error> {
        let api: Api<Secret> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let known = self.session.auth();
        if known.is_some() && self.recently_applied(self.now()).is_some() {
            return Ok(known);
        }
        let found = request(api.get_opt(&plan.auth_name())).await?;
        match (&found, known) {
            (Some(secret), known) => match (auth_of(secret, &plan.uid), known) {
                (Some(stored), None) => {
                    self.session.set_auth(stored.clone());
                    Ok(Some(stored))
                }
                (Some(stored), Some(known)) if stored == known => Ok(Some(known)),
                // Another leader was further with a rotation.
                (Some(stored), Some(known)) if stored.supersedes(&known) => {
                    self.session.set_auth(stored.clone());
                    Ok(Some(stored))
                }
                // Edited, or somebody else's: the members run with what is in memory.
                (_, Some(known)) => {
                    self.replace(&api, plan, secret, &known).await?;
                    Ok(Some(known))
                }
                (None, None) => Ok(None),
            },
            (None, Some(known)) => {
                self.create(&api, plan, &known).await?;
                tracing::warn!(quorum = %plan.name, "the auth Secret was gone, written back from memory");
                Ok(Some(known))
            }
            (None, None) if self.has_members(plan).await? => Ok(None),
            (None, None) => {
                let fresh = Auth::random();
                self.create(&api, plan, &fresh).await?;
                self.session.set_auth(fresh.clone());
                Ok(Some(fresh))
            }
        }
    }

    /// Fails with a conflict if somebody else was quicker; the next reconciliation reads what they made.
    async fn create(&self, api: &Api<Secret>, plan: &Plan, auth: &Auth) -> Result<(), Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        request(api.create(&params, &auth_secret(plan, auth))).await.map(drop)
    }

    /// A Secret that is ours gets its seed back. One that is not ours is not touched: what is in memory suffices until its
    /// owner takes it away.
    async fn replace(&self, api: &Api<Secret>, plan: &Plan, found: &Secret, auth: &Auth) -> Result<(), Error> {
        if !found.owner_references().iter().any(|owner| owner.uid == plan.uid) {
            tracing::warn!(quorum = %plan.name, "the auth Secret belongs to somebody else");
            return Ok(());
        }
        self.write_auth(api, plan, found, auth).await
    }

    /// In place of what was found, and of nothing newer.
    pub(super) async fn write_auth(
        &self,
        api: &Api<Secret>,
        plan: &Plan,
        found: &Secret,
        auth: &Auth,
    ) -> Result<(), Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut secret = auth_secret(plan, auth);
        secret.metadata.resource_version = found.resource_version();
        // It cannot be changed.
        secret.type_.clone_from(&found.type_);
        request(api.replace(&plan.auth_name(), &params, &secret)).await.map(drop)
    }

    /// Whether members exist that were started with secrets: then new ones would only lock the operator out.
    async fn has_members(&self, plan: &Plan) -> Result<bool, Error> {
        if self.session.quorum().status.as_ref().is_some_and(|status| status.membership_epoch.is_some()) {
            return Ok(true);
        }
        let api: Api<StatefulSet> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let Some(first) = plan.members.first() else { return Ok(false) };
        let found = request(api.get_opt(&first.name)).await?;
        Ok(found.is_some_and(|set| set.owner_references().iter().any(|owner| owner.uid == plan.uid)))
    }
}

/// What the status says when the secrets are lost.
pub(super) fn lost(plan: &Plan) -> Obstacle {
    Obstacle {
        reason: CommonReason::AuthLost,
        message: format!(
            "the Secret {} is gone or is not this quorum's, and no operator replica has a copy: restore it from a backup, or \
             delete this RedisQuorum and create it again",
            plan.auth_name()
        ),
    }
}
