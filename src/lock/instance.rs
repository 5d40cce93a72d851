//! Pure: is the container instance that holds a lock still running?
//!
//! Leadership belongs to one container instance, not to a pod: a container that restarted in place has lost it, however
//! quickly it came back. Death is only what the kubelet reported as terminated. A pod object that vanished without that
//! report is doubt, and doubt waits the validity out (docs/safety.md, "Death and doubt").

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// What is known of a holder's container instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instance {
    /// Its container runs, or nothing says otherwise.
    Running,
    /// The kubelet reported that it has ended: the lock is free at once.
    Terminated,
    /// Nobody can tell: the lock is sealed and runs out. The text says why, for people.
    Doubt(String),
}

/// Judges the instance `container_id` of the pod with UID `pod_uid`.
///
/// `pod` is the pod now under that name, `departed` the last state of the pod with that UID if its deletion was seen,
/// `node_is_lost` whether nobody has heard of its node for a while.
pub fn judge(
    pod_uid: &str,
    container_id: Option<&str>,
    pod: Option<&Pod>,
    departed: Option<&Pod>,
    node_is_lost: bool,
) -> Instance {
    match pod.filter(|pod| pod.metadata.uid.as_deref() == Some(pod_uid)) {
        Some(pod) if has_ended(pod, container_id) => Instance::Terminated,
        Some(_) if node_is_lost => Instance::Doubt("its node does not report to the API server".to_owned()),
        Some(_) => Instance::Running,
        None if departed.is_some_and(|pod| has_ended(pod, container_id)) => Instance::Terminated,
        None => Instance::Doubt("its pod vanished before its container was reported as terminated".to_owned()),
    }
}

/// Whether the pod's status shows that the container instance has ended. Without an id, whether all containers have.
pub fn has_ended(pod: &Pod, container_id: Option<&str>) -> bool {
    let Some(status) = &pod.status else { return false };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return true;
    }
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    match container_id {
        Some(id) => match containers.iter().find(|container| container.container_id.as_deref() == Some(id)) {
            Some(container) => is_terminated(container),
            // The kubelet starts a successor only after the instance has ended, and forgets all but the last one.
            None => !containers.is_empty(),
        },
        None => !containers.is_empty() && containers.iter().all(is_terminated),
    }
}

fn is_terminated(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, containers: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "worker-0", "uid": uid},
            "status": {"phase": "Running", "containerStatuses": containers}
        }))
        .unwrap()
    }

    fn container(id: &str, state: serde_json::Value) -> serde_json::Value {
        json!([{"name": "app", "containerID": id, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state}])
    }

    #[test]
    fn a_running_container_holds_whether_ready_or_not() {
        let pod = pod("u1", container("c1", json!({"running": {}})));
        assert_eq!(judge("u1", Some("c1"), Some(&pod), None, false), Instance::Running);
    }

    #[test]
    fn a_terminated_container_is_dead() {
        let pod = pod("u1", container("c1", json!({"terminated": {"exitCode": 137}})));
        assert_eq!(judge("u1", Some("c1"), Some(&pod), None, false), Instance::Terminated);
    }

    #[test]
    fn a_container_that_restarted_in_place_has_lost_its_instance() {
        let pod = pod("u1", container("c2", json!({"running": {}})));
        assert_eq!(judge("u1", Some("c1"), Some(&pod), None, false), Instance::Terminated);
    }

    #[test]
    fn a_successor_under_the_same_name_says_nothing_about_the_pod_before() {
        let successor = pod("u2", container("c2", json!({"running": {}})));
        assert!(matches!(judge("u1", Some("c1"), Some(&successor), None, false), Instance::Doubt(_)));
    }

    #[test]
    fn a_deleted_pod_is_dead_only_if_its_last_state_was_terminated() {
        let ended = pod("u1", container("c1", json!({"terminated": {"exitCode": 0}})));
        let running = pod("u1", container("c1", json!({"running": {}})));
        assert_eq!(judge("u1", Some("c1"), None, Some(&ended), false), Instance::Terminated);
        assert!(matches!(judge("u1", Some("c1"), None, Some(&running), false), Instance::Doubt(_)));
        assert!(matches!(judge("u1", Some("c1"), None, None, false), Instance::Doubt(_)));
    }

    #[test]
    fn a_pod_on_an_unreachable_node_is_in_doubt() {
        let pod = pod("u1", container("c1", json!({"running": {}})));
        assert!(matches!(judge("u1", Some("c1"), Some(&pod), None, true), Instance::Doubt(_)));
    }
}
