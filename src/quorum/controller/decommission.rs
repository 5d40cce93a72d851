//! The deletion of a quorum. The leader closes its members, and removes the quorum when all their promises have expired.
//! The leader creates nothing during that time.
//!
//! No single member is needed for it. The leader leaves an unreachable member behind when the other members share a member with
//! every majority. Then no grant is possible without them, and every earlier grant has expired.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::error::{Error, RESYNC, Result};
use super::owned::remove;
use super::settle::raise_epoch;
use super::snapshot::Sources;
use super::{copies, locks};
use crate::api::conditions::{CommonReason, QuorumCondition};
use crate::api::{MilliTime, PREDECESSOR_DEAD_ANNOTATION, QUORUM_FINALIZER, RedisQuorum};
use crate::fence::decommission::{EndInput, EndStep, decide_end};
use crate::fence::external_master::{PREDECESSOR, decide_external_end};
use crate::fence::{FenceStep, Process, Reach, Reason, Record, Verdict};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::membership::users_since;
use crate::quorum::model::plan::Plan;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::progress::listed_up_to;
use crate::quorum::model::record::{Stamps, publish_named, record_named};
use crate::quorum::model::status::refused;
use crate::quorum::model::{effective, facts, plan};
use crate::quorum::session::{MemberLink, auth_of};
use crate::redlock::MemberName;
use crate::time::Monotonic;

/// Maximum number of held locks that the message names.
const NAMED: usize = 10;

/// The progress of a member to its end.
pub(super) enum Ending {
    Ended,
    /// No replica can close it.
    ///
    /// It can vote until that moment at the latest, or until there is evidence of its end. The text describes the
    /// evidence.
    Unconfirmed(Option<Monotonic>, String),
    /// It waits until that moment at the latest. The text names the event.
    Waits(Option<Monotonic>, String),
}

/// Takes all steps of the deletion that are possible now, and returns the pause until the next check.
pub(super) async fn end(sources: &Sources<'_>) -> Result<Duration> {
    let (cluster, quorum) = (sources.cluster, sources.session.quorum());
    if !quorum.finalizers().iter().any(|finalizer| finalizer == QUORUM_FINALIZER) {
        return Ok(RESYNC);
    }
    let plan = plan_of_what_is(&quorum);
    let (mut wake, mut waits, mut ended, mut unconfirmed) = (RESYNC, Vec::new(), Vec::new(), Vec::new());
    for link in sources.session.links().iter() {
        let (until, list, what) = match end_member(sources, link, plan.as_ref(), true).await? {
            Ending::Ended => (None, &mut ended, link.name().to_string()),
            Ending::Unconfirmed(until, what) => (until, &mut unconfirmed, what),
            Ending::Waits(until, what) => (until, &mut waits, what),
        };
        wake = wake.min(until.map_or(RESYNC, |until| until.since(cluster.now())));
        list.push(what);
    }
    if !Lists::of(&quorum).meet_every_majority(&ended) {
        waits.append(&mut unconfirmed);
    }
    if !waits.is_empty() {
        publish_waits(sources, &waits).await?;
        return Ok(wake);
    }
    if let Some(plan) = &plan {
        copies::delete_all(cluster, &sources.session.quorum(), plan).await?;
    }
    cluster.set_finalizer(false).await?;
    Ok(RESYNC)
}

/// Takes all steps of a member's end that are possible now.
///
/// `plan` is the plan of the quorum, if its specification is valid. With `deleted`, the quorum is under deletion, so no later fence
/// of it waits for earlier promises.
pub(super) async fn end_member(
    sources: &Sources<'_>,
    link: &MemberLink,
    plan: Option<&Plan>,
    deleted: bool,
) -> Result<Ending> {
    let (cluster, closed) = (sources.cluster, &sources.memory.closed);
    let (name, state, quorum) = (link.name(), link.state(), sources.session.quorum());
    // Without a floor no member was ever admitted, so no promise exists.
    let lingers = deleted && quorum.status.as_ref().is_some_and(|status| status.token_floor.is_some());
    let record = record_named(&quorum, name.as_str());
    if link.plan().is_external() {
        return end_external(sources, link, &record, lingers).await;
    }
    let pod = sources.pod_of(link, &quorum);
    let reach = state.processes.reach(pod.as_ref().is_some_and(|pod| facts::runs(pod)), cluster.now());
    let threat = record.may_be_open();
    let verdict = sources.verdict(&quorum, threat, pod.as_deref()).await?;
    let of_process = threat.map(|process| process.run_id.as_str());
    let is_harmless = threat.is_none() || matches!(verdict, Verdict::Dead(_));
    let harmless_since = || sources.session.timers().harmless_since(name.as_str(), of_process);
    let step = decide_end(&EndInput {
        now: cluster.now(),
        record: &record,
        reach: &reach,
        verdict: &verdict,
        rejoin_delay: effective::current_delay(&quorum),
        closed_since: of_process.and_then(|run_id| closed.lock().get(run_id).copied()),
        harmless_since: (lingers && is_harmless).then(harmless_since),
    });
    if matches!(step, EndStep::Close | EndStep::Unconfirmed { .. }) {
        sources.session.timers().note_threat(name.as_str());
    }
    Ok(match step {
        EndStep::Ended => Ending::Ended,
        EndStep::Wait { until } if is_harmless => {
            Ending::Waits(Some(until), format!("{name} votes no more, its locks run out"))
        }
        EndStep::Wait { until } => Ending::Waits(Some(until), format!("{name} is closed, its locks run out")),
        EndStep::Unconfirmed { node, until } => {
            let is_refused = state.is_refused_by(pod.as_ref().and_then(|pod| pod.uid()).as_deref());
            if let Some(plan) = plan
                && is_unclosable(sources, plan, is_refused).await?
            {
                // No operator can close it, so the leader ends it by the deletion of its StatefulSet.
                remove::<StatefulSet>(sources, plan, name.as_str()).await?;
            }
            Ending::Unconfirmed(until, unconfirmed(name, threat, node.as_deref()))
        }
        EndStep::Close => match (plan, &reach) {
            (Some(plan), Reach::Answering(_)) => close_for_good(sources, plan, link).await?,
            _ => Ending::Waits(None, format!("{name} is to be closed")),
        },
    })
}

/// Withdraws the admission of an external member from the record.
///
/// The operator cannot close or end its process.
async fn end_external(sources: &Sources<'_>, link: &MemberLink, record: &Record, lingers: bool) -> Result<Ending> {
    let (cluster, closed) = (sources.cluster, &sources.memory.closed);
    let (name, quorum, now) = (link.name().as_str(), sources.session.quorum(), cluster.now());
    let delay = effective::current_delay(&quorum);
    let until = now + delay;
    let left_since = closed.lock().get(&end_of(name)).copied();
    let is_harmless = !record.admitted && record.reason != Some(Reason::Leaving);
    let harmless_since = (lingers && is_harmless).then(|| sources.session.timers().harmless_since(name, None));
    Ok(match decide_external_end(record, left_since, harmless_since, now, delay) {
        EndStep::Close => {
            sources.session.timers().note_threat(name);
            let leave = FenceStep::WriteFenced { reason: Reason::Leaving, rejoin_at: Some(until), close: false };
            let next = record.after(leave, record.process.as_ref(), &PREDECESSOR);
            let stamps = Stamps { rejoin_at: cluster.wall_time(until, now), ..Stamps::default() };
            cluster.replace(&quorum, |status| publish_named(status, name, &next, stamps)).await?;
            Ending::Waits(Some(cluster.now()), format!("{name} votes no more, its locks run out"))
        }
        EndStep::Wait { until } => {
            closed.lock().entry(end_of(name)).or_insert(now);
            Ending::Waits(Some(until), format!("the locks on {name} run out"))
        }
        EndStep::Unconfirmed { .. } | EndStep::Ended => Ending::Ended,
    })
}

/// The key of an external member's end in the leader's memory. A later member can have the same name.
pub(super) fn end_of(name: &str) -> String {
    format!("external {name}")
}

/// Whether the member's secrets are lost. Either it refuses the known ones, or there are none.
async fn is_unclosable(sources: &Sources<'_>, plan: &Plan, is_refused: bool) -> Result<bool> {
    if sources.session.auth().is_some() {
        return Ok(is_refused);
    }
    let found: Option<Secret> = sources.cluster.get(&plan.namespace, &plan.auth_name()).await?;
    Ok(found.is_none_or(|secret| auth_of(&secret, &plan.uid).is_none()))
}

/// Closes a member permanently.
///
/// After a failure it waits until the next attempt, or until there is evidence of the member's end.
async fn close_for_good(sources: &Sources<'_>, plan: &Plan, link: &MemberLink) -> Result<Ending> {
    let name = link.name();
    Ok(match close(sources, plan, link).await {
        Ok((process, now, until)) => {
            sources.memory.closed.lock().insert(process, now);
            Ending::Waits(Some(until), format!("{name} is closed, its locks run out"))
        }
        Err(error) => {
            tracing::info!(member = %name, error = &error as &dyn std::error::Error, "member not closed yet");
            if link.is_stuck() {
                // It serves no client, so the leader ends it by the deletion of its StatefulSet.
                remove::<StatefulSet>(sources, plan, name.as_str()).await?;
            }
            Ending::Waits(
                Some(sources.cluster.after(Duration::from_secs(1))),
                format!("{name} is to be closed: {error}"),
            )
        }
    })
}

/// Closes a process. Returns it with the moment of its closing and the end of its promises.
async fn close(sources: &Sources<'_>, plan: &Plan, link: &MemberLink) -> Result<(String, Monotonic, Monotonic)> {
    let Sources { cluster, term, .. } = sources;
    let (name, delay) = (link.name().as_str(), effective::current_delay(&sources.session.quorum()));
    let (Some(auth), Some(last)) = (sources.session.auth(), link.state().processes.last().cloned()) else {
        return Err(Error::Gone);
    };
    let mut admin = link.admin_session(&last.run_id).await?;
    raise_epoch(term, &mut admin).await?;
    let quorum = sources.session.quorum();
    let record = record_named(&quorum, name);
    let until = cluster.now() + delay;
    let step = FenceStep::WriteFenced { reason: Reason::Leaving, rejoin_at: Some(until), close: true };
    let process = record.process.clone().filter(|process| process.run_id == last.run_id);
    let next = record.after(step, process.as_ref(), &Verdict::None);
    let left = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
    let rejoin_at = MilliTime::from_millis(cluster.api_now().0.saturating_add(left));
    let stamps = Stamps { rejoin_at, ..Stamps::default() };
    cluster.replace(&quorum, |status| publish_named(status, name, &next, stamps)).await?;
    let since = users_since(&quorum, name, &plan.lists);
    admin.close(term.epoch, &plan.closing_rules(&auth, name, since)).await?;
    let now = cluster.now();
    Ok((last.run_id.to_string(), now, now + delay))
}

async fn publish_waits(sources: &Sources<'_>, waits: &[String]) -> Result<()> {
    let (cluster, quorum) = (sources.cluster, sources.session.quorum());
    let (generation, now) = (quorum.metadata.generation, cluster.api_time());
    let held = lost_locks(&locks::all(&sources.held_locks(&quorum)));
    let lost = held.as_ref().map(QuorumEvent::to_string);
    let waits = waits.iter().chain(&lost).map(String::as_str).collect::<Vec<_>>().join("; ");
    let problem = Problem::Deleting { waits };
    let begins =
        quorum.condition(QuorumCondition::Ready).is_none_or(|ready| ready.reason != CommonReason::Deleting.to_string());
    cluster.replace(&quorum, |status| refused(status, &problem, (generation, now))).await?;
    if let Some(held) = held.filter(|_| begins) {
        cluster.publish_event(held).await;
    }
    Ok(())
}

/// The Event for a user who deletes a quorum while locks are held. `None` if no lock is held.
fn lost_locks(held: &[String]) -> Option<QuorumEvent> {
    (!held.is_empty()).then(|| QuorumEvent::DeletedWithLocks { locks: listed_up_to(NAMED, held) })
}

fn unconfirmed(name: &MemberName, threat: Option<&Process>, node: Option<&str>) -> String {
    let node = node.unwrap_or("unknown");
    let uid = threat.map(|process| process.pod_uid.as_str()).unwrap_or_default();
    format!(
        "a process of {name} (pod UID {uid}) cannot be closed and may run on node {node}: it counts as ended once that node has \
         been Ready for 2 minutes without the pod, is tainted out-of-service or was deleted by the cloud provider, or when you \
         annotate this object with {PREDECESSOR_DEAD_ANNOTATION}={uid} (several are separated by commas)"
    )
}

/// A plan for the existing members, even if the specification is invalid now.
fn plan_of_what_is(quorum: &RedisQuorum) -> Option<Plan> {
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
mod tests {
    use super::*;

    #[test]
    fn an_invalid_specification_does_not_prevent_the_end() {
        let spec = r#"{"members": 3, "pod": {"resources": {"limits": {"memory": "16Mi"}}}}"#;
        let mut quorum = RedisQuorum::new("main", serde_json::from_str(spec).unwrap());
        (quorum.metadata.namespace, quorum.metadata.uid) = (Some("locks".into()), Some("uid".into()));
        assert!(plan::validate(&quorum).is_err());
        assert!(plan_of_what_is(&quorum).is_some());
    }
}
