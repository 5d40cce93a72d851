//! Clients outside the operator: their grants, and their users on running members.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Secret;

use super::auth;
use super::cluster::Cluster;
use super::error::Result;
use super::memory::AuthWrite;
use super::observe::{Observed, Observer};
use super::snapshot::Sources;
use crate::api::requests::is_ours;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::blocked::Blocked;
use crate::quorum::model::member::{MemberSummary, StartedWith};
use crate::quorum::model::plan::{MemberPlan, Plan, config_name};
use crate::quorum::model::{build, membership, record};
use crate::quorum::session::ActError;
use crate::redis_member::acl::UserRule;

/// The difference between the ACL files of two plans.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Users that no longer exist.
    removed: Vec<String>,
    /// Users with other rules, or users of another client, which have none of the earlier passwords.
    changed: Vec<String>,
}

/// Grants passwords in the secrets to the clients of the plan.
///
/// This precedes the creation of anything from these secrets. If a grant cannot be stored, a new client gets no grant, and the
/// plan continues without it.
pub(super) async fn grant(sources: &Sources<'_>, mut plan: Plan, auth: Auth) -> Result<(Auth, Plan)> {
    let Some(next) = auth.granting(&plan.clients) else {
        sources.memory.record_auth_refusal(AuthWrite::Grant, None);
        return Ok((auth, plan));
    };
    let obstacle = auth::store(sources, &plan, &auth, next.clone()).await?;
    let is_stored = obstacle.is_none();
    sources.memory.record_auth_refusal(AuthWrite::Grant, obstacle);
    if is_stored {
        return Ok((next, plan));
    }
    plan.clients.retain(|client| auth.grants(client));
    Ok((auth, plan))
}

/// The names of clients in the specification that the plan had to leave out.
pub(super) fn without_grants(observed: &Observed<'_>) -> Option<String> {
    let plan = observed.plan;
    let left_out = observed.quorum.spec.clients.iter().filter(|_| plan.external.is_empty());
    let left_out = left_out.filter(|client| plan.clients.iter().all(|planned| planned.name != client.name));
    let names: Vec<&str> = left_out.map(|client| client.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let refusal = observed.sources.memory.auth_obstacles.lock().get(&AuthWrite::Grant).cloned().unwrap_or_default();
        Blocked::NotGranted { names: names.join(", "), refusal }.to_string()
    })
}

/// Opens the missing users of clients, and closes users that the plan does not have.
///
/// Missing clients were added after the admission of the member, or they waited for the end of a change of the members. The
/// epoch guards the change, and it happens only on the admitted process. That process has been open since its admission, so
/// there is no wait.
pub(super) async fn correct_users(observer: &Observer<'_>) {
    let observed = &observer.observe();
    let plan = observed.plan;
    let locker = UserRule::locker_name(plan.lists.epoch);
    for member in observed.own().iter().filter(|member| observed.is_of_plan() && member.admitted && member.obeys) {
        let answering = observed.answering(&member.name);
        let Some(observation) = answering.and_then(|(_, state)| state.observation()) else { continue };
        let is_open = |user: &str| observation.open_users.iter().any(|open| open == user);
        let mut missing = plan.open_rules(observed.auth, &member.name);
        missing.retain(|rule| !is_open(rule.name()));
        let since = membership::users_since(&observed.quorum, &member.name, &plan.lists);
        let planned = plan.closing_rules(observed.auth, &member.name, since);
        let unplanned = unplanned(&planned, &observation.open_users, plan.lists.epoch);
        if (missing.is_empty() && unplanned.is_empty()) || !is_open(&locker) {
            continue;
        }
        if !unplanned.is_empty() {
            tracing::warn!(member = %member.name, users = ?unplanned, "closing users that the plan does not have");
        }
        if let Err(error) = replace_users(observed, &member.name, &unplanned, &missing).await {
            tracing::info!(member = %member.name, %error, "users of clients not corrected yet");
        }
    }
}

/// Closes and opens users on an admitted process, and observes the result.
async fn replace_users(
    observed: &Observed<'_>,
    member: &str,
    closed: &[impl AsRef<str>],
    opened: &[UserRule],
) -> Result<(), ActError> {
    let mut admin = observed.admin_session(member).await?;
    if !closed.is_empty() {
        let closed: Vec<_> = closed.iter().map(|user| UserRule::removed(user.as_ref())).collect();
        admin.close_some(observed.sources.term.epoch, &closed).await?;
    }
    match opened.is_empty() {
        true => admin.observe().await.map(drop),
        false => admin.open_more(observed.sources.term.epoch, opened).await,
    }
}

/// The open users that are not among the planned ones, which are those of every list in force.
///
/// Such a client was removed while its ACL file was lost, or an earlier specification was restored. A user of a later epoch raises the
/// membership epoch instead (`change::keep_epoch`).
fn unplanned<'o>(planned: &[UserRule], open: &'o [String], epoch: i64) -> Vec<&'o str> {
    let is_planned = |user: &str| planned.iter().any(|rule| rule.name() == user);
    let is_later = |user: &str| UserRule::split_name(user).is_some_and(|(_, of)| of > epoch);
    open.iter().map(String::as_str).filter(|user| !is_planned(user) && !is_later(user)).collect()
}

/// Withdraws and grants rights of clients on every admitted member, before the ACL files change.
///
/// Removed clients lose their rights, and changed clients get new ones. The result names the obstacles. While there is an
/// obstacle, the files must stay unchanged, because they record which users have rights.
pub(super) async fn change(observer: &Observer<'_>) -> Result<Vec<String>> {
    let (cluster, plan, auth) = (observer.sources.cluster, observer.plan, observer.auth);
    let config: Option<Secret> = cluster.get(&plan.namespace, &config_name(&plan.name)).await?;
    let Some(config) = config else { return Ok(Vec::new()) };
    let observed = observer.observe();
    // A member without these secrets is closed by its restart, which needs the files.
    let closed = |member: &MemberSummary| {
        let is_restarted = auth.id().is_some() && member.started_with != StartedWith::These;
        is_restarted || membership::is_closed(&observed.quorum, &member.name, &plan.lists)
    };
    if plan.lists.is_joint() && !observed.own().iter().all(closed) {
        return Ok(vec!["users of the former list are being closed".to_owned()]);
    }
    let (mut waiting, mut gone) = (Vec::new(), Vec::new());
    for (member, of_plan) in observed.own().iter().zip(&plan.members) {
        let name = &member.name;
        if observed.link(name).is_none() {
            continue;
        }
        // The process has other passwords than the files, and they disappear with the process.
        let has_these = member.started_with != StartedWith::Others;
        let files = (acl_file(&config, of_plan), build::users_acl(plan, auth, of_plan));
        let mut difference = difference(&files.0, &files.1, has_these);
        gone.extend(difference.removed.iter().cloned());
        // The users of earlier epochs were closed when the list changed.
        let is_former = |user: &String| UserRule::split_name(user).is_some_and(|(_, epoch)| epoch < plan.lists.epoch);
        difference.removed.retain(|user| !is_former(user));
        let is_lost = !has_these && observed.refuses(name);
        let votes = record::admitted_run_id(&observed.quorum, name).is_some() && !is_lost;
        if difference == Difference::default() || !votes {
            continue;
        }
        let observed = observer.observe();
        // A member that waits for the end of a change of the members is opened at that time, with the rules of that time.
        let mut changed = plan.open_rules(auth, name);
        changed.retain(|rule| difference.changed.iter().any(|name| name == rule.name()));
        if let Err(error) = replace_users(&observed, name, &difference.removed, &changed).await {
            waiting.push(format!("{name} still has the old rights of clients: {error}"));
        }
    }
    if waiting.is_empty() {
        delete_secrets_of(cluster, plan, &gone).await?;
    }
    Ok(waiting)
}

/// The users of earlier epochs in the ACL files, as rules that close them, by member.
pub(super) async fn former_users_on_file(cluster: &Cluster<'_>, plan: &Plan) -> Result<HashMap<String, Vec<UserRule>>> {
    let config = cluster.get::<Secret>(&plan.namespace, &config_name(&plan.name)).await?.unwrap_or_default();
    let of_member = |member: &MemberPlan| {
        let text = acl_file(&config, member);
        let users = users_of(&text).into_keys();
        let users = users.filter(|user| UserRule::split_name(user).is_some_and(|(_, epoch)| epoch < plan.lists.epoch));
        users.map(UserRule::removed).collect()
    };
    Ok(plan.members.iter().map(|member| (member.name.clone(), of_member(member))).collect())
}

async fn delete_secrets_of(cluster: &Cluster<'_>, plan: &Plan, users: &[String]) -> Result<()> {
    let clients = users.iter().filter_map(|user| UserRule::client_of(user));
    for client in clients.filter(|client| plan.clients.iter().all(|planned| planned.name != *client)) {
        let found: Option<Secret> = cluster.get(&plan.namespace, &plan.client_secret_name(client)).await?;
        if let Some(found) = found.filter(|secret| is_ours(secret, &plan.owner.uid)) {
            cluster.delete(&found).await?;
        }
    }
    Ok(())
}

/// The ACL file of a member in the Secret. It is empty if there is none.
fn acl_file(config: &Secret, member: &MemberPlan) -> String {
    let text = config.data.as_ref().and_then(|data| data.get(&member.acl_key()));
    text.map(|text| String::from_utf8_lossy(&text.0).into_owned()).unwrap_or_default()
}

/// The difference between two ACL files.
///
/// With `passwords`, it compares the passwords as well. During a rotation each file keeps one password of the file before. So a user
/// without any of them belongs to another client.
fn difference(old: &str, new: &str, passwords: bool) -> Difference {
    let (old, new) = (users_of(old), users_of(new));
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (*name).to_owned());
    let is_another = |name: &str, old: &User<'_>, new: &User<'_>| {
        passwords && UserRule::client_of(name).is_some() && old.hashes.iter().all(|hash| !new.hashes.contains(hash))
    };
    let is_changed = |name: &str, old: &User<'_>, new: &User<'_>| old.rules != new.rules || is_another(name, old, new);
    let changed = new.iter().filter(|(name, new)| old.get(*name).is_some_and(|old| is_changed(name, old, new)));
    Difference { removed: removed.collect(), changed: changed.map(|(name, _)| (*name).to_owned()).collect() }
}

/// A user of an ACL file.
struct User<'a> {
    /// Hashes of its passwords.
    hashes: Vec<&'a str>,
    rules: Vec<&'a str>,
}

/// The users of an ACL file that can vote, and those of clients that only read.
fn users_of(acl: &str) -> BTreeMap<&str, User<'_>> {
    let users = acl.lines().filter_map(|line| line.strip_prefix("user ")?.split_once(' '));
    let users = users.filter(|(name, _)| UserRule::split_name(name).is_some() || UserRule::client_of(name).is_some());
    users
        .map(|(name, rules)| {
            let (hashes, rules) = rules.split(' ').partition(|rule| rule.starts_with('#'));
            (name, User { hashes, rules })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::quorum::controller::tests::quorum;
    use crate::quorum::model::plan::validate;

    #[test]
    fn the_acl_files_give_the_users_with_changed_rights() {
        let old = "user default off\nuser probe on nopass\nuser operator on #1\nuser locker-e1 on #2 ~*\n\
                   user a-e1 on #3 ~a/*\nuser b-e1 on #4 ~b/*\n";
        let new = "user default off\nuser probe on\nuser operator on #9\nuser locker-e1 on #2 ~*\n\
                   user b-e1 on #4 ~b/c/*\nuser c-e1 on #5 ~c/*\n";
        let difference = |old: &str, new: &str| difference(old, new, true);
        assert_eq!(difference(old, &old.replace("#4", "#4 #7")), Difference::default());
        assert_eq!(difference(&old.replace("#4", "#4 #7"), &old.replace("#4", "#7")), Difference::default(), "rotated");
        let expected = Difference { removed: vec!["a-e1".into()], changed: vec!["b-e1".into()] };
        assert_eq!(difference(old, new), expected);
        assert_eq!(difference(old, old), Difference::default());
        assert_eq!(difference("", new), Difference::default());
    }

    #[test]
    fn users_that_no_list_in_force_has_are_closed() {
        let mut quorum = quorum(&[]);
        let client = json!({"name": "billing", "namespace": "shop", "keyPrefix": "shop/"});
        quorum.spec.clients = serde_json::from_value(json!([client])).unwrap();
        quorum.status.as_mut().unwrap().membership_epoch = Some(2);
        let plan = validate(&quorum).unwrap();
        let open = ["locker-e2", "locker-e3", "billing-e1", "billing-e2", "gone-e2", "gone-e4", "gone-read", "probe"];
        let open = open.map(str::to_owned);
        for (since, expected) in [(2, &["billing-e1", "gone-e2", "gone-read"][..]), (1, &["gone-e2", "gone-read"][..])]
        {
            let planned = plan.closing_rules(&Auth::random(), "main-0", since);
            assert_eq!(unplanned(&planned, &open, plan.lists.epoch), expected, "{since}");
        }
    }

    #[test]
    fn a_user_with_none_of_its_passwords_is_another_clients() {
        let old = "user locker-e1 on #2 ~*\nuser a-e1 on #3 #4 ~a/*\n";
        let old = &format!("{old}user b-read on #5 %R~b/*\n");
        let new = old.replace('#', "#9");
        let expected = Difference { removed: Vec::new(), changed: vec!["a-e1".into(), "b-read".into()] };
        assert_eq!(difference(old, &new, true), expected, "the operator's own user is not");
        assert_eq!(difference(old, &new, false), Difference::default());
    }
}
