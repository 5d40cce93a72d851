//! Pure: what the status of a pod or a node proves, and why a pod does not run.
//!
//! The same function judges holders of locks and processes of Redis members. A container is dead only when a kubelet reported exactly this
//! container as terminated, with a known reason. A phase, an empty list, another container ID or a deleted object proves nothing. Controllers
//! can write those while the container still runs (docs/dev/rules.md, "Death and doubt").

pub mod obstacle;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Node, NodeCondition, Pod};

/// The reason that the kubelet writes for a lost container.
///
/// The container runtime did not report the end, so the container can still run.
const UNKNOWN: &str = "ContainerStatusUnknown";

/// The reason that the kubelet writes while it waits before a restart.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// The condition `Ready` of a node.
pub fn readiness(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether the node controller has no report of a node.
pub fn is_silent(node: &Node) -> bool {
    readiness(node).is_some_and(|ready| ready.status == "Unknown")
}

/// The state of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEvidence {
    /// The kubelet reports that it runs.
    Runs,
    /// The kubelet reported that it terminated.
    Dead,
    /// There is no evidence for either state.
    Doubt,
}

/// Judges a container by its ID and the status of its pod.
pub fn container_state(pod: &Pod, container_id: &str) -> ContainerEvidence {
    let mut evidence = ContainerEvidence::Doubt;
    for container in containers(pod) {
        if termination(container, container_id).is_some() {
            return ContainerEvidence::Dead;
        }
        let running = container.state.as_ref().is_some_and(|state| state.running.is_some());
        if running && container.container_id.as_deref() == Some(container_id) {
            evidence = ContainerEvidence::Runs;
        }
    }
    evidence
}

/// The earliest start of the container that follows the ended container with this ID.
///
/// The time has whole seconds of the node's clock. It is the reported start of the next container, or otherwise the end of this one. In a crash
/// loop the kubelet waits for at least one second more.
pub fn next_container_since(pod: &Pod, container_id: &str) -> Option<Timestamp> {
    let mut containers = containers(pod);
    let (container, ended) =
        containers.find_map(|container| Some((container, termination(container, container_id)?)))?;
    let finished = ended.finished_at.as_ref()?.0;
    let state = container.state.as_ref()?;
    let next = state.terminated.as_ref().filter(|next| next.container_id != ended.container_id);
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    let started = running.or_else(|| next?.started_at.as_ref()).map(|time| time.0);
    let is_crashing = state.waiting.as_ref().is_some_and(|waiting| waiting.reason.as_deref() == Some(CRASH_LOOP));
    let pause = SignedDuration::from_secs(i64::from(is_crashing));
    Some(started.map_or(finished, |started| started.max(finished)) + pause)
}

/// Whether the kubelet reported every container of the pod as terminated.
///
/// It returns false if the kubelet lost a container. Callers use this function for a pod whose containers were not recorded separately.
pub fn has_ended(pod: &Pod) -> bool {
    let ended = |container: &ContainerStatus| {
        let state = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        state.is_some_and(|terminated| !is_unknown(terminated))
    };
    let main = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    !main.is_empty() && containers(pod).all(ended)
}

/// Whether the pod ended without proof that its containers ended.
///
/// Its phase is final and the kubelet reports no running container. But the kubelet reported no container at all, or lost one. The status of
/// such a pod no longer changes.
pub fn has_ended_without_proof(pod: &Pod) -> bool {
    is_final(pod) && (!has_ended(pod) || containers(pod).flat_map(ends).any(is_unknown))
}

/// Whether the kubelet never starts a container of this pod again.
///
/// The phase is final, and the kubelet reports no running container.
pub fn is_final(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let runs = |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    matches!(phase, Some("Failed" | "Succeeded")) && !containers(pod).any(runs)
}

/// The states of all containers of a pod, init containers last.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    main.iter().chain(init)
}

/// The reported ends of the current container and of the previous one.
fn ends(container: &ContainerStatus) -> impl Iterator<Item = &ContainerStateTerminated> {
    [&container.state, &container.last_state].into_iter().flatten().filter_map(|state| state.terminated.as_ref())
}

/// The kubelet's report that the container with this ID ended.
fn termination<'a>(container: &'a ContainerStatus, container_id: &str) -> Option<&'a ContainerStateTerminated> {
    ends(container).find(|ended| ended.container_id.as_deref() == Some(container_id) && !is_unknown(ended))
}

/// Whether the container can still run, although the kubelet reports it as terminated.
pub fn is_unknown(terminated: &ContainerStateTerminated) -> bool {
    terminated.reason.as_deref() == Some(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::test_util::parsed;

    fn pod(status: Value) -> Pod {
        parsed(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}, "status": status}))
    }

    fn container(id: &str, state: Value, last: Value) -> Value {
        json!({"name": "app", "containerID": id, "image": "", "imageID": "", "ready": true, "restartCount": 1,
            "state": state, "lastState": last})
    }

    fn terminated(id: &str, reason: &str) -> Value {
        json!({"terminated": {"exitCode": 137, "containerID": id, "reason": reason}})
    }

    #[test]
    fn a_container_is_dead_when_the_kubelet_has_reported_its_end() {
        use ContainerEvidence::{Dead, Doubt, Runs};
        let running = || json!({"running": {}});
        let unknown = || terminated("c1", "ContainerStatusUnknown");
        for (name, container, evidence) in [
            ("it runs", container("c1", running(), json!({})), Runs),
            ("it ended", container("c1", terminated("c1", "Error"), json!({})), Dead),
            ("it was replaced", container("c2", running(), terminated("c1", "OOMKilled")), Dead),
            ("the runtime does not know of it", container("c1", unknown(), json!({})), Doubt),
            ("the runtime lost it", container("", json!({"waiting": {}}), unknown()), Doubt),
            ("others are listed", container("c9", running(), terminated("c8", "Error")), Doubt),
        ] {
            let pod = pod(json!({"phase": "Running", "containerStatuses": [container]}));
            assert_eq!(container_state(&pod, "c1"), evidence, "{name}");
        }
    }

    #[test]
    fn a_phase_or_an_empty_list_proves_nothing() {
        assert_eq!(
            container_state(&pod(json!({"phase": "Failed", "reason": "NodeLost"})), "c1"),
            ContainerEvidence::Doubt
        );
        let failed =
            json!({"phase": "Failed", "containerStatuses": [container("c1", json!({"running": {}}), json!({}))]});
        assert_eq!(container_state(&pod(failed), "c1"), ContainerEvidence::Runs);
    }

    #[test]
    fn a_pod_can_end_without_proof_that_its_containers_have() {
        let judge = |phase: &str, containers: Value| {
            has_ended_without_proof(&pod(json!({"phase": phase, "containerStatuses": containers})))
        };
        let unknown = || terminated("c1", "ContainerStatusUnknown");
        assert!(judge("Failed", json!([])), "the node refused or evicted the pod");
        assert!(judge("Failed", json!([container("c1", unknown(), json!({}))])));
        assert!(judge("Succeeded", json!([container("c2", terminated("c2", "Completed"), unknown())])));
        assert!(!judge("Failed", json!([container("c1", terminated("c1", "Error"), json!({}))])), "that is proof");
        assert!(
            !judge("Failed", json!([container("c1", json!({"running": {}}), json!({}))])),
            "only a controller wrote the phase"
        );
        assert!(!judge("Pending", json!([])));
        assert!(!judge("Running", json!([container("c1", json!({"waiting": {}}), unknown())])), "it starts again");
    }

    #[test]
    fn an_init_container_is_found_in_its_own_list() {
        let init = json!({"initContainerStatuses": [container("c1", terminated("c1", "Completed"), json!({}))],
            "containerStatuses": [container("c2", json!({"running": {}}), json!({}))]});
        assert_eq!(container_state(&pod(init), "c1"), ContainerEvidence::Dead);
    }

    #[test]
    fn a_pod_has_ended_when_each_of_its_containers_is_reported_so() {
        let ended = |reason: &str| {
            pod(json!({"phase": "Failed", "containerStatuses": [container("c1", terminated("c1", reason), json!({}))]}))
        };
        assert!(has_ended(&ended("Completed")) && !has_ended(&ended("ContainerStatusUnknown")));
        assert!(!has_ended(&pod(json!({"phase": "Failed"}))), "a rejected pod has no list and proves nothing");
        let running = container("c1", json!({"running": {}}), json!({}));
        assert!(!has_ended(&pod(json!({"phase": "Failed", "containerStatuses": [running]}))));
    }
}
