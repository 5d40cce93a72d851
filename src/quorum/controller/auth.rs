//! The auth Secret: made once, written back from memory, and made anew only when no copy of it is left ([`secrets`]).

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::{Error, LONGEST_BACKOFF, Task, request};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::problems::Problem;
use crate::{
    api::FIELD_MANAGER,
    quorum::{
        model::{
            auth::Auth,
            build::{auth_secret, mounted_acl_key},
            facts,
            plan::{MemberPlan, Plan},
            secrets::{self, Found, MemberView, SecretsStep, StartedWith, View},
            status::Obstacle,
        },
        session::{auth_of, says_lost},
    },
};

/// What there is to work with.
pub(super) enum Secrets {
    /// The quorum's secrets.
    Known(Auth),
    /// None, and nothing may be done.
    Lost {
        /// What the status says.
        obstacle: Obstacle,
        /// When to look again.
        look_again: Duration,
    },
}

/// What came of a change of the secrets.
pub(super) enum Stored {
    /// The Secret has it.
    Done,
    /// The Secret belongs to somebody else.
    InTheWay,
}

impl Task<'_> {
    /// The quorum's secrets, kept or made.
    pub(super) async fn ensure_auth(&self, plan: &Plan) -> Result<Secrets, Error> {
        let api: Api<Secret> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let known = self.session.auth();
        if let Some(known) = known.clone().filter(|_| self.recently_applied(self.now()).is_some()) {
            return Ok(Secrets::Known(known));
        }
        let stored = request(api.get_opt(&plan.auth_name())).await?;
        let found = match &stored {
            None => Found::Nothing,
            Some(secret) => auth_of(secret, &plan.uid).map_or(Found::Useless, Found::Secrets),
        };
        let has_members = known.is_none() && stored.is_none() && self.has_members(plan).await?;
        let now = self.now();
        let is_missing = stored.is_none() && known.is_none() && says_lost(&self.session.quorum());
        let missing_since = self.leader.memory(self.session.uid(), |memory| {
            memory.auth_missing_since = is_missing.then(|| memory.auth_missing_since.unwrap_or(now));
            memory.auth_missing_since
        });
        let made =
            match secrets::decide(&View { found: &found, known: known.as_ref(), has_members, missing_since, now }) {
                SecretsStep::Keep(auth) => return Ok(Secrets::Known(auth)),
                SecretsStep::Overwrite(auth) => {
                    if let Some(secret) = &stored {
                        self.replace(&api, plan, secret, &auth).await?;
                    }
                    return Ok(Secrets::Known(auth));
                }
                SecretsStep::WriteBack(auth) => {
                    self.create(&api, plan, &auth).await?;
                    tracing::warn!(quorum = %plan.name, "the auth Secret was gone, written back from memory");
                    return Ok(Secrets::Known(auth));
                }
                SecretsStep::AwaitCopy { until } => {
                    return Ok(Secrets::Lost { obstacle: gone(plan), look_again: until.since(now) });
                }
                SecretsStep::AwaitPerson => {
                    return Ok(Secrets::Lost { obstacle: useless(plan), look_again: LONGEST_BACKOFF });
                }
                SecretsStep::Adopt(stored) => stored,
                SecretsStep::MakeFirst => self.make(&api, plan, Auth::random()).await?,
                SecretsStep::MakeAnew => {
                    let anew = self.make(&api, plan, Auth::anew(self.leader.context.api_now())).await?;
                    self.say_made_anew(plan).await;
                    anew
                }
            };
        self.session.set_auth(made.clone());
        Ok(Secrets::Known(made))
    }

    async fn make(&self, api: &Api<Secret>, plan: &Plan, auth: Auth) -> Result<Auth, Error> {
        self.create(api, plan, &auth).await.map(|()| auth)
    }

    async fn say_made_anew(&self, plan: &Plan) {
        self.tell(QuorumEvent::AuthLost { secret: plan.auth_name() }).await;
    }

    /// What the status says while members run with lost secrets.
    pub(super) fn loss(&self, plan: &Plan, auth: &Auth) -> Option<String> {
        let view = |member: &MemberPlan| MemberView {
            started_with: self.started_with(plan, auth, member),
            answers: self.session.link(&member.name).is_some_and(|link| link.is_seen()),
        };
        let members: Vec<MemberView> = plan.members.iter().map(view).collect();
        secrets::loss(auth, says_lost(&self.session.quorum()), &members, self.progress(plan).as_ref())
    }

    /// Which secrets the first process of a member's pod was started with.
    pub(super) fn started_with(&self, plan: &Plan, auth: &Auth, member: &MemberPlan) -> StartedWith {
        match self.leader.context.pods.named(&plan.namespace, &member.pod_name()) {
            Some(pod) if pod.metadata.deletion_timestamp.is_none() => {
                let same = facts::acl_key(&pod) == Some(mounted_acl_key(auth, member).as_str());
                if same { StartedWith::These } else { StartedWith::Others }
            }
            _ => StartedWith::Nothing,
        }
    }

    /// Whether the member's process was started with secrets that are lost, and refuses those that took their place: nobody can do
    /// anything to it, and its pod is going to be replaced.
    pub(super) fn is_lost(&self, plan: &Plan, auth: &Auth, member: &MemberPlan) -> bool {
        let pod = self.leader.context.pods.named(&plan.namespace, &member.pod_name());
        let uid = pod.and_then(|pod| pod.uid());
        let refuses = self.session.link(&member.name).is_some_and(|link| link.view().is_refused_by(uid.as_deref()));
        refuses && self.started_with(plan, auth, member) == StartedWith::Others
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
            tracing::warn!(quorum = %plan.name, "the auth Secret does not belong to this RedisQuorum");
            return Ok(());
        }
        self.write_auth(api, plan, found, auth).await
    }

    /// A change of the secrets: to the Secret first, and only over the state that this was decided on. A conflict is another state: the
    /// next reconciliation begins with that.
    pub(super) async fn store_auth(&self, plan: &Plan, known: &Auth, next: Auth) -> Result<Stored, Error> {
        let api: Api<Secret> = Api::namespaced(self.leader.context.client.clone(), &plan.namespace);
        let found = request(api.get_opt(&plan.auth_name())).await?;
        let stored = found.as_ref().and_then(|found| auth_of(found, &plan.uid));
        match found {
            Some(found) if stored.as_ref() == Some(known) => {
                self.write_auth(&api, plan, &found, &next).await?;
                self.session.set_auth(next);
                Ok(Stored::Done)
            }
            Some(found) if !found.owner_references().iter().any(|owner| owner.uid == plan.uid) => Ok(Stored::InTheWay),
            _ => {
                // An earlier write of ours whose outcome was unknown, or another leader's.
                if let Some(stored) = stored.filter(|stored| stored.supersedes(known)) {
                    self.session.set_auth(stored);
                }
                self.leader.memory(self.session.uid(), |memory| memory.applied = None);
                Err(Error::Conflict)
            }
        }
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

/// What the status says while a copy is waited for.
fn gone(plan: &Plan) -> Obstacle {
    Obstacle::of(&Problem::PasswordsGone { secret: plan.auth_name() })
}

/// What the status says when there is a Secret, of no use.
fn useless(plan: &Plan) -> Obstacle {
    Obstacle::of(&Problem::PasswordsUnusable { secret: plan.auth_name() })
}
