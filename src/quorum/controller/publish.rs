//! Writes the status of a quorum to the API server.
//!
//! Each write carries the resourceVersion of the state from which it was computed. A status without a change is not written.

use std::time::Duration;

use super::cluster::Cluster;
use super::error::{RESYNC, Result};
use super::observe::{Observed, Observer, OwnObjects};
use super::snapshot::MemberSnapshot;
use super::{decide, locks};
use crate::api::conditions::cut;
use crate::api::{
    MemberState, MemberStatus, MilliTime, PREDECESSOR_DEAD_ANNOTATION, PasswordRotation, RedisQuorum, RedisQuorumStatus,
};
use crate::fence::count_from;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::effective;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::member::{MemberSummary, StartedWith};
use crate::quorum::model::plan::{MemberPlan, Plan, auth_name};
use crate::quorum::model::problems::Problem;
use crate::quorum::model::status::{self, MemberWaits};
use crate::quorum::model::unanswered::Unanswered;
use crate::quorum::model::{facts, record};
use crate::quorum::session::LinkState;
use crate::redlock::MemberError;
use crate::time::Monotonic;

/// Maximum difference in milliseconds between an announced time and the calculated one.
///
/// Readings of two clocks always differ a little.
const ANNOUNCED_WITHIN: i64 = 1_000;

/// Publishes first the data on which all other steps depend.
///
/// This is the membership epoch, and the settings that fences must outlast before a replica can use them. The returned time is
/// when to check settings again that are being lowered.
pub(super) async fn begin(observer: &Observer<'_>) -> Result<Monotonic> {
    let (cluster, memory, observed) = (observer.sources.cluster, observer.sources.memory, &observer.observe());
    memory.undeleted.lock().clear();
    let quorum = &observed.quorum;
    let held = locks::is_any_longer(&observed.locks, quorum.spec.max_ttl.get());
    let (mut in_force, due) = effective::next(quorum, &mut memory.lowering.lock(), held, observed.now);
    if observed.agreement.is_shared() {
        in_force = effective::shared(in_force, quorum, observed.agreement.agreed_ttl(observed.boottime));
    }
    let publish = |status: &mut RedisQuorumStatus| {
        basics(status, observed.plan);
        effective::publish(status, in_force);
    };
    cluster.replace(quorum, publish).await?;
    Ok(due.unwrap_or_else(|| cluster.after(RESYNC)))
}

/// Publishes the results of the observation: columns, conditions and messages.
///
/// It is the last write of a reconciliation. Steps before it write only the record on which their next change depends. It
/// also corrects the times when fenced members can vote. The wait is longer if this leader observed a process later than the
/// previous leader, or if settings grow.
pub(super) async fn conclude(observer: &Observer<'_>) -> Result<()> {
    let (cluster, observed) = (observer.sources.cluster, observer.observe());
    let (overview, now) = (decide::overview(&observed), cluster.api_time());
    let everything = |status: &mut RedisQuorumStatus| {
        publish_rejoin_times(status, cluster, &observed);
        let (generation, lists) = (observed.quorum.metadata.generation, refresh(status, &observed));
        status::conditions(status, &lists, &overview, (generation, now));
        status::watch_conditions(status, &observed.watched, (generation, now));
    };
    cluster.replace(&observed.quorum, everything).await
}

/// Publishes that the operator cannot execute the spec of a quorum.
pub(super) async fn refuse(cluster: &Cluster<'_>, quorum: &RedisQuorum, problem: &Problem) -> Result<()> {
    let (generation, now) = (quorum.metadata.generation, cluster.api_time());
    cluster.replace(quorum, |status| status::refused(status, problem, (generation, now))).await
}

fn publish_rejoin_times(status: &mut RedisQuorumStatus, cluster: &Cluster<'_>, observed: &Observed<'_>) {
    let delay = effective::rejoin_delay_of(&observed.quorum);
    for published in status.members.iter_mut().filter(|published| published.state == MemberState::Fenced) {
        let Some((_, state)) = observed.link(&published.name) else { continue };
        let last = state.processes.last().filter(|last| published.run_id.as_deref() == Some(last.run_id.as_str()));
        let (Some(announced), Some(last)) = (published.rejoin_at, last) else { continue };
        let until = count_from(last, state.fenced_since()) + delay;
        let is_off = |counted: &MilliTime| (counted.as_millis() - announced.as_millis()).abs() > ANNOUNCED_WITHIN;
        published.rejoin_at = cluster.wall_time(until, observed.now).filter(is_off).or(published.rejoin_at);
    }
}

/// The rest of the time until a member's announced time.
///
/// It is zero if that time has passed, or if a wrong clock announced it. A member waits for it after its own wait has ended. This replica's
/// estimate of the API server's clock can be better now than at the announcement, and users compare by that clock.
pub(super) fn until_announced(cluster: &Cluster<'_>, snapshot: &MemberSnapshot) -> Duration {
    let announced = snapshot.quorum.member(snapshot.name()).and_then(|published| published.rejoin_at);
    let left = announced.map(|announced| announced.as_millis() - cluster.api_now().0);
    let left = left.filter(|left| *left <= ANNOUNCED_WITHIN).and_then(|left| u64::try_from(left).ok());
    Duration::from_millis(left.unwrap_or_default())
}

fn basics(status: &mut RedisQuorumStatus, plan: &Plan) {
    if status.voters.is_empty() {
        status.voters.clone_from(&plan.lists.voters);
    }
    status.membership_epoch = status.membership_epoch.max(Some(plan.lists.epoch));
    for member in plan.all_members() {
        if status.member_mut(&member.name).is_none() {
            status.members.push(MemberStatus { name: member.name.clone(), ..MemberStatus::default() });
        }
        // This precedes all uses, because the operator must reach a leaving member that the specification no longer names.
        let Some(external) = &member.external else { continue };
        let Some(published) = status.member_mut(&member.name) else { continue };
        // Another address is another master.
        if published.external.as_ref().is_none_or(|published| published.address == external.address) {
            published.external = Some(external.clone());
        }
    }
}

/// Refreshes all fields that follow from the observation, except the conditions.
///
/// Returns the lists of the status, because this write can change them.
fn refresh(status: &mut RedisQuorumStatus, observed: &Observed<'_>) -> Lists {
    basics(status, observed.plan);
    for OwnObjects { member, external_address, .. } in &observed.own_objects {
        let Some((link, state)) = observed.link(&member.name) else { continue };
        let Some(published) = status.member_mut(&member.name) else { continue };
        published.pod_name = Some(member.pod_name());
        published.address = link.address().or_else(|| published.address.take());
        published.external_address = external_address.as_ref().map(ToString::to_string);
        let message = match published.state {
            MemberState::Admitted => published.message.take(),
            MemberState::Fenced => why_fenced(observed, published),
            // Its pod can have started after the record was written.
            MemberState::Pending => why_absent(observed, member, &LinkState::default()),
            MemberState::Starting | MemberState::Unreachable => why_absent(observed, member, state),
        };
        published.message = message.map(cut);
    }
    // The same write has the condition, because a client that reads the agreement uses the agreed values.
    if let Some(agreed) = observed.agreement.agreed_ttl(observed.boottime) {
        effective::publish_agreed(status, &observed.quorum, agreed);
    }
    refresh_external(status, observed);
    status.observed_generation = observed.quorum.metadata.generation;
    let rotation = observed.stored_auth.as_ref().and_then(Auth::rotation);
    status.password_rotation =
        rotation.map(|rotation| PasswordRotation { request: rotation.request.clone(), stage: rotation.stage });
    let lists = Lists::of_status(Some(status), observed.plan.lists.wanted.clone());
    status.quorum = i32::try_from(lists.majority()).ok();
    status.ready = Some(status::ready_column(status, &lists));
    lists
}

/// Why a fenced own member does not vote, and why its pod remains.
fn why_fenced(observed: &Observed<'_>, published: &MemberStatus) -> Option<String> {
    let undeleted = observed.sources.memory.undeleted.lock();
    let undeleted = undeleted.get(&published.name);
    let undeleted = undeleted.map(|answer| format!("the API server does not delete its pod: {answer}"));
    let why = record::message_of(published, |node| observed.sources.sessions.nodes().with_unique_ids(node));
    let why: Vec<_> = why.into_iter().chain(undeleted).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// Why an own member has no process, or why its process does not answer.
fn why_absent(observed: &Observed<'_>, member: &MemberPlan, state: &LinkState) -> Option<String> {
    let pod = observed.pod(&member.name);
    if let Some(failure) = state.failure.as_ref().filter(|_| pod.is_some_and(facts::runs)) {
        return Some(why_silent(observed, member, failure));
    }
    let podless = observed.sources.memory.podless.lock();
    let why = podless.get(&member.name).and_then(|podless| podless.why.as_deref());
    facts::no_process((&observed.plan.namespace, &member.name), pod, why)
}

/// Why the process of an own member does not answer.
///
/// Only its next process can accept present passwords that this one refuses. If the passwords were lost, the operator replaces the pod.
fn why_silent(observed: &Observed<'_>, member: &MemberPlan, failure: &MemberError) -> String {
    let is_it = |own: &&MemberSummary| own.name == member.name;
    let has_these = observed.own().iter().find(is_it).is_some_and(|own| own.started_with == StartedWith::These);
    if *failure != MemberError::Refused || !has_these {
        return failure.to_string();
    }
    let (secret, namespace) = (auth_name(&observed.plan.name), observed.plan.namespace.clone());
    MemberWaits::PasswordRefused { secret, namespace, pod: member.pod_name() }.to_string()
}

/// Addresses of external members, and the obstacles to their votes.
fn refresh_external(status: &mut RedisQuorumStatus, observed: &Observed<'_>) {
    for (link, state) in &observed.links {
        let (name, agreement) = (&link.name, &observed.agreement);
        let plan = observed.plan.member(name.as_str()).unwrap_or(&link.plan);
        let Some(external) = &plan.external else { continue };
        let unfit = status::unfit(&status.members, name.as_str(), state.observation());
        let unfit = unfit.filter(|_| state.processes.answers()).map(|why| format!("its votes do not count: {why}"));
        let trouble = || match &state.failure {
            Some(refused @ MemberError::Refused) => Some(Unanswered::of(external, refused).to_string()),
            _ => agreement.trouble(name).map(str::to_owned),
        };
        let Some(published) = status.member_mut(name.as_str()) else { continue };
        published.address = Some(external.address.clone());
        published.message = unfit.or_else(trouble);
        let leaves = !observed.lists.wanted.contains(&published.name);
        if let (true, MemberState::Unreachable, Some(run_id)) = (leaves, published.state, &published.run_id) {
            let why = published.message.as_deref().unwrap_or("it does not answer");
            published.message = Some(format!(
                "{why}; if you know that its process is dead, annotate the RedisQuorum with \
                 {PREDECESSOR_DEAD_ANNOTATION}={run_id}"
            ));
        }
        published.message = published.message.take().map(cut);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::quorum::controller::tests::{World, denial, pod, quorum};
    use crate::quorum::model::build::{ACL_FILE, CONFIG_VOLUME};

    #[tokio::test]
    async fn a_refused_password_is_published_with_the_pods_to_delete() {
        let pod = |(name, file): (&str, &str)| -> Pod {
            let volume = json!({"name": CONFIG_VOLUME, "secret": {"items": [{"key": file, "path": ACL_FILE}]}});
            let metadata = json!({"name": format!("{name}-0"), "namespace": "locks", "uid": name});
            parsed(json!({"metadata": metadata, "spec": {"containers": [], "volumes": [volume]}}))
        };
        let pods = [("main-0", "users-0.acl"), ("main-1", "users-1-other.acl")].map(pod);
        let world = World::new(quorum(&[]), pods.into(), |_| denial(403));
        let cluster = world.cluster();
        let observed = world.observer(&cluster).observe();
        let text_of =
            |index: usize, failure: MemberError| why_silent(&observed, &observed.plan.members[index], &failure);
        let text = text_of(0, MemberError::Refused);
        assert!(text.contains("Secret main-auth") && text.contains("kubectl -n locks delete pod main-0-0"), "{text}");
        assert_eq!(text_of(0, MemberError::TimedOut), MemberError::TimedOut.to_string());
        let replaced_by_the_operator = text_of(1, MemberError::Refused);
        assert_eq!(replaced_by_the_operator, MemberError::Refused.to_string());
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_is_published_with_the_cause() {
        let member = |(name, state): (&str, &str)| json!({"name": name, "state": state, "runID": "r"});
        let members = [("main-0", "Unreachable"), ("main-1", "Starting"), ("main-2", "Starting")].map(member);
        let running = json!({"running": {}});
        let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}});
        let pods = vec![pod("main-0", &running), pod("main-1", &running), pod("main-2", &waiting)];
        let world = World::new(quorum(&members), pods, |_| denial(403));
        world.until_members_fail().await;
        let cluster = world.cluster();
        let observed = world.observer(&cluster).observe();
        let mut status = observed.quorum.status.clone().unwrap();
        refresh(&mut status, &observed);
        let messages: Vec<_> = status.members.into_iter().map(|member| member.message.unwrap_or_default()).collect();
        assert!(messages[..2].iter().all(|message| message.contains("unreachable")), "{messages:?}");
        assert!(messages[2].contains("ErrImagePull: no such image"), "{messages:?}");
    }
}
