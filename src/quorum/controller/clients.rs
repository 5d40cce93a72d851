//! Clients outside the operator: their users on running members, and their Secrets in other namespaces.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};

use super::{Error, Task, request};
use crate::api::{ACCEPT_CLIENTS_ANNOTATION, CLIENT_LABEL, FIELD_MANAGER, QUORUM_LABEL, QUORUM_NAMESPACE_LABEL};
use crate::quorum::auth::Auth;
use crate::quorum::build::{Transport, client_secret, users_acl};
use crate::quorum::membership::{Lists, is_closed};
use crate::quorum::plan::{ClientPlan, MemberPlan, Plan};
use crate::quorum::secrets::StartedWith;
use crate::quorum::session::{ActError, MemberLink};
use crate::quorum::status::admitted_run_id;
use crate::redis_member::acl::{KeyPrefix, UserRule};

/// What the ACL files of two plans differ in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Users that are no more.
    removed: Vec<String>,
    /// Users with other rules.
    changed: Vec<String>,
}

impl Task<'_> {
    /// Opens the users that their member lacks: of clients that were added after it was admitted, or that waited for the end of a
    /// change of the members. Guarded by the epoch, and only on the process
    /// that is admitted: it has been open all along, so nothing is waited for.
    pub(super) async fn open_new_clients(&self, plan: &Plan, auth: &Auth) {
        let quorum = self.session.quorum();
        if Lists::of(&quorum) != plan.lists {
            return;
        }
        let locker = UserRule::locker_name(plan.lists.epoch);
        for (member, link) in self.linked(plan) {
            let view = link.view();
            let Some(observation) = view.observation.filter(|_| link.is_seen()) else { continue };
            let admitted = admitted_run_id(&quorum, &member.name).filter(|run_id| *run_id == observation.run_id);
            let is_open = |user: &str| observation.open_users.iter().any(|open| open == user);
            let locker_open = is_open(&locker);
            let raised = view.raised == Some(self.leader.term.epoch);
            let (Some(run_id), true, true) = (admitted, locker_open, raised) else { continue };
            let mut missing = plan.open_rules(auth, &member.name);
            let shut_out = link.shut_out();
            let is_shut_out = |user: &str| shut_out.iter().any(|shut_out| shut_out.user == user);
            missing.retain(|rule| !is_open(rule.name()) && !is_shut_out(rule.name()));
            if missing.is_empty() {
                continue;
            }
            let opened = async { link.turn(&run_id).await?.open_more(self.leader.term.epoch, &missing).await };
            if let Err(error) = opened.await {
                tracing::info!(member = %member.name, %error, "clients not opened yet");
            }
        }
    }

    /// Before the ACL files change: takes the rights of clients that were removed, and gives those that changed their new ones,
    /// on every admitted member. Says what is in the way; the files must stay as they are until nothing is, since they are the
    /// memory of who has rights.
    pub(super) async fn change_clients(&self, plan: &Plan, auth: &Auth) -> Result<Vec<String>, Error> {
        let api = self.secrets(&plan.namespace);
        let Some(config) = request(api.get_opt(&plan.config_name())).await? else { return Ok(Vec::new()) };
        let quorum = self.session.quorum();
        // Who does not run with these secrets is closed by its restart, which needs the files.
        let closed = |member: &MemberPlan| {
            let is_restarted = || self.started_with(plan, auth, member) != StartedWith::These;
            is_closed(&quorum, &member.name, &plan.lists) || (auth.id().is_some() && is_restarted())
        };
        if plan.lists.is_joint() && !plan.members.iter().all(closed) {
            return Ok(vec!["users of the list before are being closed".to_owned()]);
        }
        let (mut waiting, mut gone) = (Vec::new(), Vec::new());
        for (member, link) in self.linked(plan) {
            let mut difference = difference(&acl_file(&config, member), &users_acl(plan, auth, member));
            gone.extend(difference.removed.iter().cloned());
            // Those of earlier epochs were closed when the list was changed.
            difference
                .removed
                .retain(|user| UserRule::split_name(user).is_none_or(|(_, epoch)| epoch >= plan.lists.epoch));
            let votes = admitted_run_id(&quorum, &member.name).is_some() && !self.is_lost(plan, auth, member);
            if difference == Difference::default() || !votes {
                continue;
            }
            if let Err(error) = self.change_on(plan, auth, member, &link, &difference).await {
                waiting.push(format!("{} still has the old rights of clients: {error}", member.name));
            }
        }
        if waiting.is_empty() {
            self.delete_secrets_of(plan, &gone).await?;
        }
        Ok(waiting)
    }

    /// The users of earlier epochs that the ACL files remember, closed, by member.
    pub(super) async fn former_users_on_file(
        &self,
        plan: &Plan,
        auth: &Auth,
    ) -> Result<HashMap<String, Vec<UserRule>>, Error> {
        let config = request(self.secrets(&plan.namespace).get_opt(&plan.config_name())).await?.unwrap_or_default();
        let of_member = |member: &MemberPlan| {
            let text = acl_file(&config, member);
            let users = users_of(&text)
                .into_keys()
                .filter(|user| UserRule::split_name(user).is_some_and(|(_, epoch)| epoch < plan.lists.epoch));
            users.filter_map(|user| closed_rule(auth, &member.name, user)).collect()
        };
        Ok(plan.members.iter().map(|member| (member.name.clone(), of_member(member))).collect())
    }

    async fn change_on(
        &self,
        plan: &Plan,
        auth: &Auth,
        member: &MemberPlan,
        link: &MemberLink,
        difference: &Difference,
    ) -> Result<(), ActError> {
        let run_id = admitted_run_id(&self.session.quorum(), &member.name).ok_or(ActError::OtherProcess)?;
        let epoch = self.leader.term.epoch;
        let mut changed = plan.user_rules(auth, &member.name);
        changed.retain(|rule| difference.changed.iter().any(|name| name == rule.name()));
        let removed: Vec<UserRule> =
            difference.removed.iter().filter_map(|user| closed_rule(auth, &member.name, user)).collect();
        let mut turn = link.turn(&run_id).await?;
        if !removed.is_empty() {
            turn.close_some(epoch, &removed).await?;
        }
        if changed.is_empty() { Ok(()) } else { turn.open_more(epoch, &changed).await }
    }

    async fn delete_secrets_of(&self, plan: &Plan, users: &[String]) -> Result<(), Error> {
        let api = self.secrets(&plan.namespace);
        for user in users {
            let Some((client, _)) = UserRule::split_name(user) else { continue };
            if plan.clients.iter().any(|known| known.name == client) {
                continue;
            }
            let name = format!("{}-client-{client}", plan.name);
            let ours = |secret: &Secret| secret.owner_references().iter().any(|owner| owner.uid == plan.uid);
            if request(api.get_opt(&name)).await?.as_ref().is_some_and(ours) {
                request(api.delete(&name, &DeleteParams::default())).await?;
            }
        }
        Ok(())
    }

    /// The Secrets of clients in their own namespaces, where those accept them; says what is in the way.
    pub(super) async fn apply_client_copies(
        &self,
        plan: &Plan,
        auth: &Auth,
        transport: &Transport,
    ) -> Result<Vec<String>, Error> {
        let mut blocked = Vec::new();
        for client in plan.clients.iter().filter(|client| self.accepts(plan, client)) {
            let desired = client_secret(plan, auth, transport, client, &client.namespace);
            let api = self.secrets(&client.namespace);
            let name = desired.name_any();
            if request(api.get_opt(&name)).await?.is_some_and(|found| !is_copy(&found, plan, client)) {
                blocked.push(format!("Secret {}/{name} exists and belongs to somebody else", client.namespace));
                continue;
            }
            let params = PatchParams::apply(FIELD_MANAGER).force();
            if let Err(error) = request(api.patch(&name, &params, &Patch::Apply(&desired))).await {
                blocked.push(format!("Secret {}/{name} was not written: {error}", client.namespace));
            }
        }
        Ok(blocked)
    }

    /// Copies have no owner that would collect them.
    pub(super) async fn delete_client_copies(&self, plan: &Plan) -> Result<(), Error> {
        for client in plan.clients.iter().filter(|client| client.namespace != plan.namespace) {
            let api = self.secrets(&client.namespace);
            let name = plan.client_secret_name(client);
            if request(api.get_opt(&name)).await?.is_some_and(|found| is_copy(&found, plan, client)) {
                request(api.delete(&name, &DeleteParams::default())).await?;
            }
        }
        Ok(())
    }

    /// Whether the client's namespace takes Secrets of this quorum: nobody may plant Secrets in another's namespace.
    fn accepts(&self, plan: &Plan, client: &ClientPlan) -> bool {
        let namespace = self.leader.context.namespaces.cluster_named(&client.namespace);
        let own = format!("{}/{}", plan.namespace, plan.name);
        client.namespace != plan.namespace
            && namespace.is_some_and(|namespace| {
                namespace.metadata.deletion_timestamp.is_none()
                    && namespace.annotations().get(ACCEPT_CLIENTS_ANNOTATION) == Some(&own)
            })
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.leader.context.client.clone(), namespace)
    }
}

fn is_copy(secret: &Secret, plan: &Plan, client: &ClientPlan) -> bool {
    let has = |label: &str, value: &str| secret.labels().get(label).is_some_and(|found| found == value);
    has(QUORUM_LABEL, &plan.name) && has(QUORUM_NAMESPACE_LABEL, &plan.namespace) && has(CLIENT_LABEL, &client.name)
}

/// The ACL file of a member as the Secret has it; empty without one.
fn acl_file(config: &Secret, member: &MemberPlan) -> String {
    let text = config.data.as_ref().and_then(|data| data.get(&member.acl_key()));
    text.map(|text| String::from_utf8_lossy(&text.0).into_owned()).unwrap_or_default()
}

fn difference(old: &str, new: &str) -> Difference {
    let (old, new) = (users_of(old), users_of(new));
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (*name).to_owned());
    let changed = new.iter().filter(|(name, rule)| old.get(*name).is_some_and(|old| old != *rule));
    Difference { removed: removed.collect(), changed: changed.map(|(name, _)| (*name).to_owned()).collect() }
}

/// The users of an ACL file that can vote, and their rules without passwords, which are rotated in an order of their own.
fn users_of(acl: &str) -> BTreeMap<&str, Vec<&str>> {
    acl.lines()
        .filter_map(|line| line.strip_prefix("user ")?.split_once(' '))
        .filter(|(name, _)| UserRule::split_name(name).is_some())
        .map(|(name, rules)| (name, rules.split(' ').filter(|rule| !rule.starts_with('#')).collect()))
        .collect()
}

/// A rule that closes a user of whom nothing but the name is known any more.
fn closed_rule(auth: &Auth, member: &str, user: &str) -> Option<UserRule> {
    let (client, epoch) = UserRule::split_name(user)?;
    let none = KeyPrefix::parse("removed/").ok()?;
    Some(UserRule::client(client, epoch, &none, &auth.password(member, user)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acl_files_tell_whose_rights_have_changed() {
        let old = "user default off\nuser probe on nopass\nuser operator on #1\nuser locker-e1 on #2 ~*\n\
                   user a-e1 on #3 ~a/*\nuser b-e1 on #4 ~b/*\n";
        let new = "user default off\nuser probe on\nuser operator on #9\nuser locker-e1 on #2 ~*\n\
                   user b-e1 on #4 ~b/c/*\nuser c-e1 on #5 ~c/*\n";
        assert_eq!(difference(old, &old.replace("#4", "#4 #7")), Difference::default());
        let expected = Difference { removed: vec!["a-e1".into()], changed: vec!["b-e1".into()] };
        assert_eq!(difference(old, new), expected);
        assert_eq!(difference(old, old), Difference::default());
        assert_eq!(difference("", new), Difference::default());
    }

    #[test]
    fn users_are_split_at_the_last_epoch() {
        assert_eq!(UserRule::split_name("shop-e7"), Some(("shop", 7)));
        assert_eq!(UserRule::split_name("x-e1-e12"), Some(("x-e1", 12)));
        assert_eq!(UserRule::split_name("operator"), None);
        assert_eq!(UserRule::split_name("a-eb"), None);
    }
}
