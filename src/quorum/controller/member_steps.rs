//! Carries out the steps that the fence decides for each member, until the member must wait. On an external master the operator only
//! reads, keeps the record of the operators, and raises the token counter. Its votes count only by the status.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::cluster::Cluster;
use super::error::{Error, LONGEST_BACKOFF, RESYNC, Result};
use super::observe::Observer;
use super::snapshot::MemberSnapshot;
use super::{admit, fencing, publish, rollout};
use crate::api::RedisQuorumStatus;
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::status::merged;
use crate::quorum::session::{ActError, AdminSession, MemberLink};
use crate::runtime::leader::Term;
use crate::time::Monotonic;

/// Maximum number of steps that one reconciliation takes for a member.
///
/// The steps of one admission fit into it: raise the epoch, record the process, its predecessor's death, the admission. More
/// steps mean that two parties work against each other. The next reconciliation continues.
const STEPS: usize = 8;

/// The pause before the next attempt at a failed member, unless its link announces a change.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Takes all possible steps for every member, and returns when to check them again without an event.
pub(super) async fn take_all(observer: &Observer<'_>) -> Result<Monotonic> {
    let cluster = observer.sources.cluster;
    let mut wake = cluster.now() + RESYNC;
    for link in observer.plan.all_members().filter_map(|member| observer.sources.session.link(&member.name)) {
        let until = match take_steps(observer, &link).await {
            Ok(until) => until,
            // A failed member must not delay the other members.
            Err(Error::Member(error)) => {
                tracing::info!(member = %link.name, %error, "fence not carried out");
                Some(cluster.after(AFTER_FAILURE))
            }
            // A refused record must not delay them either.
            Err(error) if error.refused().is_some() => {
                tracing::warn!(member = %link.name, refusal = error.refused(), "a request about a member was refused");
                Some(cluster.after(LONGEST_BACKOFF))
            }
            Err(error) => return Err(error),
        };
        wake = until.map_or(wake, |until| wake.min(until));
    }
    Ok(wake)
}

/// Takes steps until the member must wait. Returns the latest end of that wait.
async fn take_steps(observer: &Observer<'_>, link: &Arc<MemberLink>) -> Result<Option<Monotonic>> {
    let cluster = observer.sources.cluster;
    for _ in 0..STEPS {
        let snapshot = observer.sources.observe(link, observer.sources.session.quorum()).await?;
        match snapshot.step() {
            FenceStep::Nothing => return keep_memory(cluster, &snapshot).await.map(|()| None),
            FenceStep::Wait { until } => return Ok(until),
            FenceStep::RestartProcess => return restart_process(observer, &snapshot).await,
            FenceStep::RaiseEpoch => raise_epoch(observer.sources.term, &mut snapshot.admin_session().await?).await?,
            FenceStep::Admit => match publish::until_announced(cluster, &snapshot) {
                Duration::ZERO => admit::admit(observer, &snapshot).await?,
                left => return Ok(Some(cluster.after(left))),
            },
            step => {
                if is_confirmed(observer, &snapshot, step).await? {
                    fencing::carry_out(observer, &snapshot, step).await?;
                }
            }
        }
    }
    Ok(Some(cluster.now() + AFTER_FAILURE))
}

/// Makes this term's epoch the one that opens and closes users of the process.
///
/// A process with a higher epoch refuses every command of this term. The Lease was perhaps deleted while clocks differed. The
/// term then ends, and the next term begins above that epoch.
pub(super) async fn raise_epoch(term: &Term, admin: &mut AdminSession<'_>) -> Result<()> {
    let raised = admin.raise_epoch(term.epoch).await;
    if let Err(ActError::Outdated(higher)) = raised
        && term.outdated(higher)
    {
        tracing::warn!(epoch = term.epoch, higher, "a member obeys a later operator epoch");
    }
    Ok(raised?)
}

/// Observes an admitted process again before a step that closes it.
///
/// The last observation can be from before its opening. A busy process does not answer.
async fn is_confirmed(observer: &Observer<'_>, snapshot: &MemberSnapshot, step: FenceStep) -> Result<bool> {
    let FenceStep::WriteFenced { reason, close: true, .. } = step else { return Ok(true) };
    if reason == Reason::Busy || !snapshot.record.admitted {
        return Ok(true);
    }
    snapshot.admin_session().await?.observe().await?;
    let again = observer.sources.observe(&snapshot.link, observer.sources.cluster.read().await?).await?;
    Ok(matches!(again.step(), FenceStep::WriteFenced { close: true, .. }))
}

/// Records later evidence about an admitted process of an external member.
///
/// Possibly its record had not been read before.
async fn keep_memory(cluster: &Cluster<'_>, snapshot: &MemberSnapshot) -> Result<()> {
    let external = snapshot.link.plan.is_external();
    let Some(now) = snapshot.memory().filter(|_| external) else { return Ok(()) };
    let memory = merged(snapshot.recorded_memory(), now);
    let keep = |status: &mut RedisQuorumStatus| {
        if let Some(member) = status.member_mut(snapshot.name()) {
            member.memory = Some(memory);
        }
    };
    cluster.replace(&snapshot.quorum, keep).await
}

/// Deletes the pod of a process that must end.
///
/// There are four reasons:
///
/// - Its clock was stepped, so its keys have wrong expiry times and must be dropped. The operator's Redis user cannot shut it down.
/// - It refuses every command, because a script runs, or because its memory or its connections are used up.
/// - No status of its pod will show its container, so no later evidence could prove its end.
/// - The container runtime lost the process, and the pod stays.
///
/// The pod is deleted by its UID, which excludes a later pod.
///
/// Returns the time of the next attempt, if the API server does not delete the pod.
async fn restart_process(observer: &Observer<'_>, snapshot: &MemberSnapshot) -> Result<Option<Monotonic>> {
    let Some(process) = snapshot.process.as_ref().or_else(|| snapshot.record.can_be_open()) else { return Ok(None) };
    let pod = observer.sources.pod_of(&snapshot.link, &snapshot.quorum);
    let pod = pod.filter(|pod| pod.uid().as_ref() == Some(&process.pod_uid));
    let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else { return Ok(None) };
    let deleted = observer.sources.cluster.delete(pod.as_ref()).await;
    let deleted = rollout::deletion_outcome(observer, snapshot.name(), deleted)?;
    if deleted == Some(true) {
        let (pod, reason) = (pod.name_any(), snapshot.record.reason);
        tracing::info!(pod, run_id = %process.run_id, ?reason, "deleted the pod, to end its process");
    }
    Ok(deleted.is_none().then(|| observer.sources.cluster.now() + LONGEST_BACKOFF))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::quorum::controller::tests::{World, denial, quorum};

    #[tokio::test]
    async fn a_refused_request_about_one_member_delays_no_other() {
        // No pod exists, so each record changes.
        let members = [0, 1, 2].map(|index| json!({"name": format!("main-{index}"), "state": "Starting"}));
        for (code, requests) in [(400, 3), (403, 3), (422, 3), (500, 1)] {
            let world = World::new(quorum(&members), Vec::new(), move |_| denial(code));
            let cluster = world.cluster();
            let taken = take_all(&world.observer(&cluster)).await;
            assert_eq!(world.requests("PUT").len(), requests, "{code}");
            assert_eq!(taken.is_ok(), code < 500, "{code}: {taken:?}");
        }
    }
}
