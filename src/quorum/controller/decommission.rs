//! Removes all members of a deleted quorum, and members that are no longer in a list. The leader closes them, and removes the quorum or
//! the member when all promises have expired. In a deleted quorum the leader creates nothing during that time.
//!
//! No single member is needed for a deletion. The leader leaves an unreachable member behind when the other members share a member with
//! every majority. Then no grant is possible without them, and every earlier grant has expired.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::ResourceExt;

use super::error::{Error, RESYNC, Result};
use super::observe::Observer;
use super::snapshot::Sources;
use super::{copies, locks, member_steps, owned, publish};
use crate::api::conditions::{CommonReason, QuorumCondition};
use crate::api::{PREDECESSOR_DEAD_ANNOTATION, QUORUM_FINALIZER, RedisQuorum, RedisQuorumStatus};
use crate::fence::decommission::{EndInput, EndStep, decide_end};
use crate::fence::external_master::{PREDECESSOR, decide_external_end};
use crate::fence::{FenceStep, Process, Reason, Verdict};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::plan::Plan;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::record::{Stamps, publish_named, record_named};
use crate::quorum::model::{effective, facts, membership, plan, progress};
use crate::quorum::session::{MemberLink, auth_of};
use crate::redlock::{MemberError, MemberName};
use crate::time::Monotonic;

/// Maximum number of held locks that the message names.
const NAMED: usize = 10;
/// The pause between two checks of a member that leaves.
///
/// The controller does not watch the deletion of its objects.
const RECHECK_AFTER: Duration = Duration::from_secs(2);

/// The progress of a member to its end.
enum Ending {
    Ended,
    /// No replica can close it.
    ///
    /// It can vote until that moment at the latest, or until there is evidence of its end. The text describes the
    /// evidence.
    Unconfirmed(Option<Monotonic>, String),
    /// It waits until that moment at the latest. The text names the event.
    Waits(Option<Monotonic>, String),
}

impl Ending {
    /// The latest moment of the next check.
    fn until(&self) -> Option<Monotonic> {
        match self {
            Self::Ended => None,
            Self::Unconfirmed(until, _) | Self::Waits(until, _) => *until,
        }
    }
}

/// Takes all steps of the deletion that are possible now, and returns the pause until the next check.
pub(super) async fn end(sources: &Sources<'_>) -> Result<Duration> {
    let (cluster, quorum) = (sources.cluster, sources.session.quorum());
    if !quorum.finalizers().iter().any(|finalizer| finalizer == QUORUM_FINALIZER) {
        return Ok(RESYNC);
    }
    let plan = plan_of_existing_members(&quorum);
    let (mut wake, mut waits, mut ended, mut unconfirmed) = (RESYNC, Vec::new(), Vec::new(), Vec::new());
    for link in sources.session.links().iter() {
        let ending = end_member(sources, link, plan.as_ref(), true).await?;
        wake = wake.min(ending.until().map_or(RESYNC, |until| until.since(cluster.now())));
        match ending {
            Ending::Ended => ended.push(link.name.to_string()),
            Ending::Unconfirmed(_, why) => unconfirmed.push(why),
            Ending::Waits(_, why) => waits.push(why),
        }
    }
    if !Lists::of(&quorum).meet_every_majority(&ended) {
        waits.append(&mut unconfirmed);
    }
    if !waits.is_empty() {
        publish_waits(sources, waits).await?;
        return Ok(wake);
    }
    if let Some(plan) = &plan {
        copies::delete_all(cluster, &sources.session.quorum(), plan).await?;
    }
    cluster.set_finalizer(false).await?;
    Ok(RESYNC)
}

/// Takes all possible steps for the members that are in no list, and returns when to check them again.
///
/// They wait for no other member, and no other member waits for them. The leader closes them permanently and then removes their
/// objects. The status drops a member when all its promises have expired and no process of it can vote.
pub(super) async fn remove_members(observer: &Observer<'_>) -> Result<Monotonic> {
    let (sources, plan, cluster) = (&observer.sources, observer.plan, observer.sources.cluster);
    let mut wake = cluster.after(RESYNC);
    for link in sources.session.links().iter() {
        let name = link.name.as_str();
        if plan.member(name).is_some() {
            // The member was added again before it had left. A later removal closes its process again.
            if let Some(run_id) = record_named(&sources.session.quorum(), name).run_id {
                observer.sources.memory.closed.lock().remove(run_id.as_str());
            }
            continue;
        }
        let ending = end_member(sources, link, Some(plan), false).await?;
        // Only its record names these objects, so they are removed before the record. An external master has none.
        let mut removed = true;
        if !link.plan.is_external() {
            removed &= owned::remove::<StatefulSet>(sources, plan, name).await?;
            removed &= owned::remove::<Service>(sources, plan, name).await?;
        }
        if removed && matches!(ending, Ending::Ended) {
            let drop_member = |status: &mut RedisQuorumStatus| status.members.retain(|member| member.name != name);
            cluster.replace(&sources.session.quorum(), drop_member).await?;
            tracing::info!(quorum = %sources.session.reference(), member = name, "the member left the quorum");
            continue;
        }
        wake = wake.min(ending.until().unwrap_or_else(|| cluster.after(RECHECK_AFTER)));
    }
    Ok(wake)
}

/// Takes all steps of a member's end that are possible now.
///
/// `plan` is the plan of the quorum, if its specification is valid. With `deleted`, the quorum is under deletion, so no later fence
/// of it waits for earlier promises.
async fn end_member(sources: &Sources<'_>, link: &MemberLink, plan: Option<&Plan>, deleted: bool) -> Result<Ending> {
    let (cluster, timers) = (sources.cluster, &sources.session.timers);
    let (name, state, quorum) = (&link.name, link.state(), sources.session.quorum());
    // Without a floor no member was ever admitted, so no promise exists.
    let lingers = deleted && quorum.status.as_ref().is_some_and(|status| status.token_floor.is_some());
    let record = record_named(&quorum, name.as_str());
    if link.plan.is_external() {
        return end_external(sources, link, &quorum, lingers).await;
    }
    let pod = sources.pod_of(link, &quorum);
    let reach = state.processes.reach(pod.as_ref().is_some_and(|pod| facts::runs(pod)), cluster.now());
    let threat = record.can_be_open();
    let verdict = sources.verdict(&quorum, threat, pod.as_deref()).await?;
    let of_process = threat.map(|process| process.run_id.as_str());
    let is_harmless = threat.is_none() || matches!(verdict, Verdict::Dead(_));
    let closed_since = of_process.and_then(|run_id| sources.memory.closed.lock().get(run_id).copied());
    let harmless_since = (lingers && is_harmless).then(|| timers.harmless_since(name.as_str(), of_process));
    let (now, rejoin_delay) = (cluster.now(), effective::current_rejoin_delay(&quorum));
    let (record, reach, verdict) = (&record, &reach, &verdict);
    let step = decide_end(&EndInput { now, record, reach, verdict, rejoin_delay, closed_since, harmless_since });
    if matches!(step, EndStep::Close | EndStep::Unconfirmed { .. }) {
        timers.note_threat(name.as_str());
    }
    Ok(match step {
        EndStep::Ended => Ending::Ended,
        EndStep::Wait { until } => {
            let state = if is_harmless { "has no vote" } else { "is closed" };
            Ending::Waits(Some(until), format!("{name} {state}, its locks run out"))
        }
        EndStep::Unconfirmed { until } => {
            let is_refused = state.is_refused_by(pod.as_ref().and_then(|pod| pod.uid()).as_deref());
            if let Some(plan) = plan
                && is_unclosable(sources, plan, is_refused).await?
            {
                // No operator can close it, so the leader ends it by the deletion of its StatefulSet.
                owned::remove::<StatefulSet>(sources, plan, name.as_str()).await?;
            }
            let cause = match sources.session.auth() {
                Some(_) => state.failure.as_ref().map(MemberError::to_string),
                None => Some("the operator does not have its passwords".to_owned()),
            };
            Ending::Unconfirmed(until, unconfirmed(name, threat, cause))
        }
        EndStep::Close => match plan {
            Some(plan) => close_for_good(sources, plan, link).await?,
            None => Ending::Waits(None, format!("{name} is to be closed, but the specification is invalid")),
        },
    })
}

/// Withdraws the admission of an external member from the record.
///
/// The operator cannot close or end its process. Before a member leaves a quorum that remains, its promises have expired in the
/// pause of the change.
async fn end_external(sources: &Sources<'_>, link: &MemberLink, quorum: &RedisQuorum, lingers: bool) -> Result<Ending> {
    let (name, timers, now) = (link.name.as_str(), &sources.session.timers, sources.cluster.now());
    let record = record_named(quorum, name);
    let harmless_since = (lingers && !record.admitted).then(|| timers.harmless_since(name, None));
    let delay = effective::current_rejoin_delay(quorum);
    Ok(match decide_external_end(&record, harmless_since, now, delay) {
        EndStep::Close => {
            timers.note_threat(name);
            record_leaving(sources, link, quorum, record.process.as_ref()).await?;
            Ending::Waits(Some(sources.cluster.now()), format!("{name} has no vote, its locks run out"))
        }
        EndStep::Wait { until } => Ending::Waits(Some(until), format!("the locks on {name} run out")),
        EndStep::Unconfirmed { .. } | EndStep::Ended => Ending::Ended,
    })
}

/// Records a member as leaving, with the end of its promises. `current` is its process.
///
/// The operator can close its own members only, and it does not await the death of an external process.
async fn record_leaving(
    sources: &Sources<'_>,
    link: &MemberLink,
    quorum: &RedisQuorum,
    current: Option<&Process>,
) -> Result<()> {
    let (cluster, name, now) = (sources.cluster, link.name.as_str(), sources.cluster.now());
    let external = link.plan.is_external();
    let until = now + effective::current_rejoin_delay(quorum);
    let step = FenceStep::WriteFenced { reason: Reason::Leaving, rejoin_at: Some(until), close: !external };
    let verdict = if external { PREDECESSOR } else { Verdict::None };
    let next = record_named(quorum, name).after(step, current, &verdict);
    let stamps = Stamps { rejoin_at: cluster.wall_time(until, now), ..Stamps::default() };
    cluster.replace(quorum, |status| publish_named(status, name, &next, stamps)).await
}

/// Whether the member's secrets are lost. Either it refuses the known ones, or there are none.
async fn is_unclosable(sources: &Sources<'_>, plan: &Plan, is_refused: bool) -> Result<bool> {
    if sources.session.auth().is_some() {
        return Ok(is_refused);
    }
    let found: Option<Secret> = sources.cluster.get(&plan.namespace, &plan::auth_name(&plan.name)).await?;
    Ok(found.is_none_or(|secret| auth_of(&secret, &plan.owner.uid).is_none()))
}

/// Closes a member permanently.
///
/// After a failure it waits until the next attempt, or until there is evidence of the member's end.
async fn close_for_good(sources: &Sources<'_>, plan: &Plan, link: &MemberLink) -> Result<Ending> {
    let name = &link.name;
    Ok(match close(sources, plan, link).await {
        Ok(until) => Ending::Waits(Some(until), format!("{name} is closed, its locks run out")),
        Err(error) => {
            tracing::info!(member = %name, error = &error as &dyn std::error::Error, "member not closed yet");
            if link.is_stuck() {
                // It serves no client, so the leader ends it by the deletion of its StatefulSet.
                owned::remove::<StatefulSet>(sources, plan, name.as_str()).await?;
            }
            let retry = sources.cluster.after(Duration::from_secs(1));
            Ending::Waits(Some(retry), format!("{name} is to be closed: {error}"))
        }
    })
}

/// Closes the process of a member, and returns the end of its promises.
async fn close(sources: &Sources<'_>, plan: &Plan, link: &MemberLink) -> Result<Monotonic> {
    let (session, term) = (sources.session, sources.term);
    let (Some(auth), Some(last)) = (session.auth(), link.state().processes.last().cloned()) else {
        return Err(Error::Gone);
    };
    let mut admin = link.admin_session(&last.run_id).await?;
    member_steps::raise_epoch(term, &mut admin).await?;
    let (name, quorum) = (link.name.as_str(), session.quorum());
    let process = record_named(&quorum, name).process.filter(|process| process.run_id == last.run_id);
    record_leaving(sources, link, &quorum, process.as_ref()).await?;
    let since = membership::users_since(&quorum, name, &plan.lists);
    admin.close(term.epoch, &plan.closing_rules(&auth, name, since)).await?;
    let now = sources.cluster.now();
    sources.memory.closed.lock().insert(last.run_id.to_string(), now);
    Ok(now + effective::current_rejoin_delay(&quorum))
}

/// Publishes why a deleted quorum remains, and the held locks that it ends.
async fn publish_waits(sources: &Sources<'_>, mut waits: Vec<String>) -> Result<()> {
    let (cluster, quorum) = (sources.cluster, sources.session.quorum());
    let held = locks::names(&sources.held_locks(&quorum), |_, _| true);
    let lost =
        (!held.is_empty()).then(|| QuorumEvent::DeletedWithLocks { locks: progress::listed_up_to(NAMED, &held) });
    waits.extend(lost.as_ref().map(QuorumEvent::to_string));
    let ready = quorum.condition(QuorumCondition::Ready);
    let is_published = ready.is_some_and(|ready| ready.reason == CommonReason::Deleting.to_string());
    publish::refuse(cluster, &quorum, &Problem::Deleting { waits: waits.join("; ") }).await?;
    if let Some(lost) = lost.filter(|_| !is_published) {
        cluster.publish_event(lost).await;
    }
    Ok(())
}

fn unconfirmed(name: &MemberName, threat: Option<&Process>, cause: Option<String>) -> String {
    let node = threat.and_then(|process| process.node_name.as_deref()).unwrap_or("unknown");
    let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let uid = threat.map(|process| process.pod_uid.as_str()).unwrap_or_default();
    format!(
        "a process of {name} (pod UID {uid}) cannot be closed{cause} and may run on node {node}: it counts as ended once that node has \
         been Ready for 2 minutes without the pod, is tainted out-of-service or was deleted by the cloud provider, or when you \
         annotate this object with {PREDECESSOR_DEAD_ANNOTATION}={uid} (several are separated by commas)"
    )
}

/// A plan for the existing members, even if the specification is invalid now.
fn plan_of_existing_members(quorum: &RedisQuorum) -> Option<Plan> {
    plan::validate(quorum).ok().or_else(|| {
        let mut quorum = quorum.clone();
        quorum.spec.clients.clear();
        (quorum.spec.tls, quorum.spec.expose, quorum.spec.pod) = Default::default();
        quorum.spec.external.clear();
        // The plan needs an odd number that includes all of them. The status shows which members to close.
        let own = quorum.members().iter().filter(|member| member.external.is_none()).count();
        quorum.spec.members = i32::try_from(own | 1).ok()?;
        plan::validate(&quorum).ok()
    })
}

#[cfg(test)]
mod tests;
