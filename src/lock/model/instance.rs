//! Pure: whether the container instance that holds a lock still runs.
//!
//! Leadership belongs to one container instance, not to a pod. A container that restarts in place loses it.
//!
//! `crate::evidence` returns what a pod's status proves. Everything else is doubt, and a hold in doubt runs out (docs/dev/rules.md, "Death
//! and doubt").

use k8s_openapi::api::core::v1::Pod;

use super::end::Doubt;
use crate::api::DistributedLock;
use crate::evidence::{self, ContainerEvidence, container_state};
use crate::time::UnixMillis;

/// How long after its deletion time a pod without a report of its end is in doubt.
const DELETION_GRACE_MILLIS: i64 = 60_000;

/// The state of a holder's container instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// Its container runs.
    Running,
    /// The kubelet reported its end, so the lock is free immediately.
    Terminated,
    /// The state is unknown for this reason, so the lock is sealed and runs out.
    Doubt(Doubt),
}

/// The state of one pod in the caches.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodEvidence<'a> {
    /// The pod with this UID, if the API server has it.
    pub pod: Option<&'a Pod>,
    /// The last state of a deleted pod.
    pub departed: Option<&'a Pod>,
    /// Its node has not reported for a while.
    pub node_is_lost: bool,
}

/// Judges the instance `container_id` of a pod. `now` is the API server's time.
pub fn judge(container_id: Option<&str>, evidence: PodEvidence<'_>, now: UnixMillis) -> Instance {
    let state = |pod: &Pod| match container_id {
        Some(id) => container_state(pod, id),
        // Before the phase is final, the kubelet can start the next container.
        None if evidence::has_ended(pod) && evidence::is_final(pod) => ContainerEvidence::Dead,
        None => ContainerEvidence::Runs,
    };
    let Some(pod) = evidence.pod else {
        return match evidence.departed.map(state) {
            Some(ContainerEvidence::Dead) => Instance::Terminated,
            _ => Instance::Doubt(Doubt::Vanished),
        };
    };
    match state(pod) {
        ContainerEvidence::Dead => Instance::Terminated,
        ContainerEvidence::Doubt => Instance::Doubt(Doubt::NoContainer),
        ContainerEvidence::Runs if evidence.node_is_lost => Instance::Doubt(Doubt::NodeSilent),
        ContainerEvidence::Runs if is_overdue(pod, now) => Instance::Doubt(Doubt::Overdue),
        ContainerEvidence::Runs => Instance::Running,
    }
}

/// The earliest start of the next container in the pod of an ended one, by the clock of the node.
///
/// A pod that has ended starts no other container, so the result is the maximum. Without a reported time, the result is the minimum.
pub fn successor_since(container_id: Option<&str>, evidence: PodEvidence<'_>) -> UnixMillis {
    let pod = evidence.pod.or(evidence.departed);
    if pod.is_some_and(evidence::is_final) {
        return UnixMillis(i64::MAX);
    }
    let ended = pod.zip(container_id).and_then(|(pod, id)| evidence::next_container_since(pod, id));
    UnixMillis(ended.map_or(i64::MIN, |ended| ended.as_millisecond()))
}

/// Judges the container of the present hold of a lock.
///
/// A next container of its pod that began before the grant takes the new token for its own. So the hold of the ended one is in doubt.
pub fn judge_holder(
    lock: &DistributedLock,
    container_id: Option<&str>,
    evidence: PodEvidence<'_>,
    now: UnixMillis,
) -> Instance {
    let acquired_at = lock.status.as_ref().and_then(|status| status.acquired_at).map(UnixMillis::from);
    match judge(container_id, evidence, now) {
        Instance::Terminated if acquired_at.is_some_and(|at| successor_since(container_id, evidence) <= at) => {
            Instance::Doubt(Doubt::NextContainer)
        }
        judged => judged,
    }
}

/// Judges all containers of a pod that owns a claim, or that belongs to a Job.
///
/// A pod that ended without proof is in doubt. Its status never changes again, so a verdict "running" would never free the lock. A pod between
/// two containers is in doubt, because the next one possibly works already.
pub fn judge_pod(evidence: PodEvidence<'_>, now: UnixMillis) -> Instance {
    let has_node = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    // A pod that was deleted before it had a node has never run. The API server gives it no node.
    let is_deleting = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
    let deleted = evidence.pod.map_or(evidence.departed, |pod| Some(pod).filter(is_deleting));
    if deleted.is_some_and(|pod| !has_node(&pod)) {
        return Instance::Terminated;
    }
    let pod = evidence.pod.or(evidence.departed).filter(has_node);
    match judge(None, evidence, now) {
        Instance::Running | Instance::Terminated if pod.is_some_and(evidence::has_ended_without_proof) => {
            Instance::Doubt(Doubt::Unreported)
        }
        Instance::Running if pod.is_some_and(evidence::has_ended) => Instance::Doubt(Doubt::NextContainer),
        judged => judged,
    }
}

/// Whether the deletion time of a pod is more than [`DELETION_GRACE_MILLIS`] ago.
///
/// The deletion time that the API server writes includes the grace period.
fn is_overdue(pod: &Pod, now: UnixMillis) -> bool {
    let due = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_millisecond());
    due.is_some_and(|due| now.0.saturating_sub(due) >= DELETION_GRACE_MILLIS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::test_util::{lock, parsed};

    const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

    fn pod(state: Value, last: Value) -> Pod {
        parsed(json!({
            "metadata": {"name": "worker-0", "uid": "u1"}, "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "containerStatuses": [{"name": "app", "containerID": "c1", "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": state, "lastState": last}]}
        }))
    }

    fn running() -> Pod {
        pod(json!({"running": {}}), json!({}))
    }

    fn ended(id: &str) -> Pod {
        pod(json!({"terminated": {"exitCode": 0, "containerID": id}}), json!({}))
    }

    fn failed(mut pod: Pod) -> Pod {
        pod.status.as_mut().unwrap().phase = Some("Failed".into());
        pod
    }

    fn final_pod() -> Pod {
        failed(ended("c1"))
    }

    fn present(pod: &Pod) -> PodEvidence<'_> {
        PodEvidence { pod: Some(pod), ..PodEvidence::default() }
    }

    fn departed(pod: &Pod) -> PodEvidence<'_> {
        PodEvidence { departed: Some(pod), ..PodEvidence::default() }
    }

    #[test]
    fn a_running_container_holds_and_a_terminated_one_is_dead() {
        let judged = |pod: &Pod| judge(Some("c1"), present(pod), NOW);
        assert_eq!(judged(&running()), Instance::Running);
        assert_eq!(judged(&failed(running())), Instance::Running, "any controller can write the phase");
        assert_eq!(judged(&ended("c1")), Instance::Terminated);
    }

    #[test]
    fn a_deleted_pod_is_dead_only_if_its_last_state_was_terminated() {
        let judged = |evidence: PodEvidence<'_>| judge(Some("c1"), evidence, NOW);
        assert_eq!(judged(departed(&ended("c1"))), Instance::Terminated);
        assert!(matches!(judged(departed(&running())), Instance::Doubt(_)));
        assert!(matches!(judged(PodEvidence::default()), Instance::Doubt(_)));
    }

    #[test]
    fn a_container_on_a_lost_node_or_overdue_is_in_doubt() {
        let judged = |evidence: PodEvidence<'_>, now| judge(Some("c1"), evidence, now);
        let mut pod = running();
        let lost = PodEvidence { node_is_lost: true, ..present(&pod) };
        assert!(matches!(judged(lost, NOW), Instance::Doubt(_)));
        pod.metadata.deletion_timestamp = parsed(json!("2026-01-01T00:00:01Z"));
        assert_eq!(judged(present(&pod), NOW), Instance::Running);
        assert!(matches!(judged(present(&pod), UnixMillis(NOW.0 + 1_000)), Instance::Doubt(_)));
    }

    #[test]
    fn a_pod_runs_its_next_container_after_the_end_of_the_last() {
        let ended = json!({"terminated": {"exitCode": 1, "containerID": "c0", "finishedAt": "2026-01-01T00:01:00Z"}});
        let since = |state: Value| successor_since(Some("c0"), present(&pod(state, ended.clone())));
        let after = |seconds: i64| UnixMillis(NOW.0 + seconds * 1_000);
        assert_eq!(since(json!({"waiting": {"reason": "PodInitializing"}})), after(0));
        assert_eq!(since(json!({"waiting": {"reason": "CrashLoopBackOff"}})), after(1));
        assert_eq!(since(json!({"running": {"startedAt": "2026-01-01T00:01:02Z"}})), after(2));
        let next = json!({"exitCode": 1, "containerID": "c1", "startedAt": "2026-01-01T00:01:03Z"});
        assert_eq!(since(json!({"terminated": next})), after(3));
        let last = pod(ended.clone(), json!({}));
        let of = |container, pod: &Pod| successor_since(Some(container), present(pod));
        assert_eq!(of("c0", &last), after(0), "the start of the ended container is ignored");
        assert_eq!(of("c9", &last), UnixMillis(i64::MIN));
        assert_eq!(of("c0", &failed(last)), UnixMillis(i64::MAX));
        let running = failed(pod(json!({"running": {"startedAt": "2026-01-01T00:01:02Z"}}), ended));
        assert_eq!(of("c0", &running), after(2), "the phase proves nothing, because a controller can write it");
    }

    #[test]
    fn a_container_from_before_the_grant_possibly_leads() {
        let lock = |acquired_at: &str| {
            let holder = json!({"identity": "a", "podUID": "u1"});
            lock(json!({}), json!({"transitions": 1, "acquiredAt": acquired_at, "holder": holder}))
        };
        let ended = json!({"terminated": {"exitCode": 1, "containerID": "c0", "finishedAt": "2026-01-01T00:00:58Z"}});
        let restarted = pod(json!({"running": {"startedAt": "2026-01-01T00:00:59Z"}}), ended);
        let judged = |acquired_at, pod| judge_holder(&lock(acquired_at), Some("c0"), present(pod), NOW);
        assert_eq!(judged("2026-01-01T00:00:58.999Z", &restarted), Instance::Terminated);
        let doubt = Instance::Doubt(Doubt::NextContainer);
        assert_eq!(judged("2026-01-01T00:00:59.000Z", &restarted), doubt, "it takes the new token for its own");
        let mut last = failed(restarted);
        last.status.as_mut().unwrap().container_statuses = final_pod().status.unwrap().container_statuses;
        let last = judge_holder(&lock("2026-01-01T00:00:59.000Z"), Some("c1"), present(&last), NOW);
        assert_eq!(last, Instance::Terminated, "a pod that has ended starts no other container");
    }

    #[test]
    fn an_owner_has_ended_with_its_containers_or_without_a_node() {
        assert_eq!(judge_pod(present(&running()), NOW), Instance::Running);
        assert_eq!(judge_pod(present(&final_pod()), NOW), Instance::Terminated);
        let next = Instance::Doubt(Doubt::NextContainer);
        assert_eq!(judge_pod(present(&ended("c1")), NOW), next, "its next container can follow");
        let between = ended("c1");
        let lost = PodEvidence { node_is_lost: true, ..present(&between) };
        assert_eq!(judge_pod(lost, NOW), Instance::Doubt(Doubt::NodeSilent));
        let mut gone = running();
        assert!(matches!(judge_pod(departed(&gone), NOW), Instance::Doubt(_)));
        gone.spec.as_mut().unwrap().node_name = None;
        assert_eq!(judge_pod(departed(&gone), NOW), Instance::Terminated);
        assert_eq!(judge_pod(present(&gone), NOW), Instance::Running, "the scheduler can give it a node");
        gone.metadata.deletion_timestamp = parsed(json!("2026-01-01T00:01:00Z"));
        assert_eq!(judge_pod(present(&gone), NOW), Instance::Terminated);
    }

    #[test]
    fn a_pod_ended_without_proof_is_in_doubt() {
        let judged = |pod: &Pod| judge_pod(present(pod), NOW);
        let unknown = json!({"terminated": {"exitCode": 137, "containerID": "c1", "reason": "ContainerStatusUnknown"}});
        let lost = failed(pod(unknown, json!({})));
        assert!(matches!(judged(&lost), Instance::Doubt(_)));
        let mut evicted = lost.clone();
        evicted.status.as_mut().unwrap().container_statuses = None;
        assert!(matches!(judged(&evicted), Instance::Doubt(_)), "the kubelet reported no end of its container");
        assert!(matches!(judge_pod(departed(&lost), NOW), Instance::Doubt(_)));
    }
}
