//! Carries out the steps of a rolling update that [`crate::quorum::model::rollout`] decides, one in each reconciliation.

use std::time::Duration;

use super::certificates::{self, Tls};
use super::error::{Error, LONGEST_BACKOFF, RESYNC, Result};
use super::memory::Applied;
use super::observe::Observer;
use super::{decide, fencing};
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::progress::Until;
use crate::quorum::model::rollout::RolloutStep;
use crate::time::Monotonic;

/// How often a waiting update checks the locks.
/// The controller gets no notification of their renewals.
const LOCKS_PERIOD: Duration = Duration::from_secs(1);

/// Gives members their desired pods and certificates, and returns when to check again.
pub(super) async fn update(observer: &Observer<'_>, tls: &Tls, applied: &Applied) -> Result<Monotonic> {
    let pause = if tls.obstacle().is_none() { roll(observer).await? } else { RESYNC };
    let rolled = observer.sources.cluster.after(pause);
    // The config Secret must contain the trusted authorities before any member serves a certificate of theirs.
    Ok(if applied.config_kept { rolled.min(certificates::reload(observer, tls).await) } else { rolled })
}

/// Takes one step of an update, if there is one, and returns the pause before the next one.
async fn roll(observer: &Observer<'_>) -> Result<Duration> {
    let cluster = observer.sources.cluster;
    let step = decide::rollout(&observer.observe());
    let name = match &step {
        RolloutStep::Wait(_, Until::LocksComplete { .. }) => return Ok(LOCKS_PERIOD),
        RolloutStep::CloseAndReplace(name) | RolloutStep::Replace(name) => name,
        _ => return Ok(RESYNC),
    };
    // This reads the API server, because a leader that was frozen must not act on an old state.
    let observed = observer.observe_at(cluster.read().await?);
    let is_still = observed.is_of_plan() && decide::rollout(&observed) == step;
    let found = observed.link(name).zip(observed.pod(name)).filter(|_| is_still);
    let Some(((link, _), pod)) = found else { return Ok(LOCKS_PERIOD) };
    if matches!(step, RolloutStep::CloseAndReplace(_)) {
        // If the API server refused the deletion after the closing, the member would be admitted and closed in turn without an end.
        let checked = deletion_outcome(observer, name, cluster.check_deletion(pod).await)?;
        let Some(exists) = checked else { return Ok(LONGEST_BACKOFF) };
        let snapshot = observer.sources.observe(link, observed.quorum.clone()).await?;
        // The fence can need another step for the member.
        if !exists || snapshot.step() != FenceStep::Nothing || snapshot.process.is_none() {
            return Ok(LOCKS_PERIOD);
        }
        // No time is announced for this process, because its pod is deleted next. Its successor gets its own time.
        let close = FenceStep::WriteFenced { reason: Reason::Updating, rejoin_at: None, close: true };
        match fencing::carry_out(observer, &snapshot, close).await {
            // The record already fences the member. The next step replaces it, and its successor waits for the proof of its death.
            Err(Error::Member(error)) => {
                tracing::info!(member = %name, %error, "not closed before its update");
                return Ok(LOCKS_PERIOD);
            }
            outcome => outcome?,
        }
    }
    let deleted = deletion_outcome(observer, name, cluster.delete(pod).await)?;
    if deleted == Some(true) {
        tracing::info!(quorum = %observer.sources.session.reference(), member = %name, "deleted the pod, so that its next one has the newer template");
    }
    Ok(deleted.map_or(LONGEST_BACKOFF, |_| RESYNC))
}

/// Records a refused deletion of a member's pod in the memory, and returns `None` for it.
///
/// After a deletion it returns whether the pod existed. A refusal is no error, because one pod must not delay the other members. A failed
/// request, for example to a webhook that does not answer, counts as a refusal. The status shows the answer of the API server.
pub(super) fn deletion_outcome(observer: &Observer<'_>, member: &str, deleted: Result<bool>) -> Result<Option<bool>> {
    let Err(Error::Request(error)) = &deleted else { return deleted.map(Some) };
    let answer = error.answer();
    tracing::info!(quorum = %observer.sources.session.reference(), member, answer, "the pod is not deleted");
    observer.sources.memory.undeleted.lock().insert(member.to_owned(), answer);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::StatefulSet;
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::quorum::controller::memory::Kept;
    use crate::quorum::controller::tests::{World, quorum};
    use crate::quorum::model::rollout::progress;
    use crate::runtime::cache::Cache;

    /// A leader whose first member has this state and an old pod. The API server answers each deletion with this code.
    fn world(state: &str, code: u16) -> World {
        let state_of = |index: usize| if index == 0 { state } else { "Admitted" };
        let member = |index| json!({"name": format!("main-{index}"), "state": state_of(index), "runID": "r"});
        let pod = |index: usize| -> Pod {
            let labels = json!({"controller-revision-hash": if index == 0 { "old" } else { "new" }});
            let metadata =
                json!({"name": format!("main-{index}-0"), "namespace": "locks", "uid": "u", "labels": labels});
            parsed(json!({"metadata": metadata}))
        };
        let set = |index: usize| -> StatefulSet {
            let name = format!("main-{index}");
            let metadata = json!({"name": name, "namespace": "locks", "generation": 1, "resourceVersion": "1"});
            let status = json!({"observedGeneration": 1, "updateRevision": "new", "replicas": 1});
            parsed(json!({"metadata": metadata, "status": status}))
        };
        let (quorum, pods) = (quorum(&[0, 1, 2].map(member)), [0, 1, 2].map(pod).into());
        let mut world = World::denying(quorum, pods, move |request| request.starts_with("DELETE").then_some(code));
        let sets = [0, 1, 2].map(set);
        for set in &sets {
            let kept = Kept { wanted: [0; 32], is: [0; 32], version: set.resource_version(), uid: None, mended: None };
            world.memory.kept.lock().insert(("StatefulSet".into(), set.name_any()), kept);
        }
        world.owned.stateful_sets = Cache::filled(sets.into());
        world
    }

    #[tokio::test]
    async fn a_member_whose_pod_must_stay_is_not_closed() {
        let cases = [("Admitted", 403, true), ("Fenced", 403, false), ("Admitted", 500, true), ("Fenced", 500, false)];
        for (state, code, is_checked_first) in cases {
            let world = world(state, code);
            let cluster = world.cluster();
            let observer = world.observer(&cluster);
            assert_eq!(roll(&observer).await.unwrap(), LONGEST_BACKOFF, "{state}");
            let deletions = world.requests("DELETE");
            assert!(deletions.len() == 1 && deletions[0].contains("/pods/main-0-0"), "{deletions:?}");
            assert_eq!(deletions[0].contains("dryRun"), is_checked_first, "{deletions:?}");
            assert_eq!(world.requests("PUT"), Vec::<String>::new(), "its record does not change");
            let observed = observer.observe();
            let undeleted = observed.sources.memory.undeleted.lock().clone();
            let progress = progress(&decide::rollout(&observed), observed.own().len(), &undeleted);
            let message = progress.unwrap().message;
            let cause = if code == 500 { "failed with code 500" } else { "denied by policy p" };
            assert!(message.contains("main-0") && message.contains(cause), "{message}");
        }
    }
}
