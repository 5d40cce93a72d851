//! Pure: why a pod does not run, in the words of the kubelet or the scheduler.

mod steady;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use self::steady::steady;
use super::CRASH_LOOP;
use crate::api::conditions::beginning;

/// Maximum number of characters of a quoted text.
const LONGEST_TEXT: usize = 300;
/// Reasons with which every container waits at its start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reason why a pod does not run, in the text of the kubelet or the scheduler.
pub fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let with = |reason: &str, message: Option<&str>| match message {
        Some(message) => format!("{reason}: {}", beginning(&steady(message), LONGEST_TEXT)),
        None => reason.to_owned(),
    };
    let mut containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waits = containers.find_map(|container| {
        if let Some(ended) = crashed(container) {
            return Some(ended);
        }
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let (reason, message) = (waiting.reason.as_deref()?, waiting.message.as_deref());
        let cause = match reason {
            _ if STARTING.contains(&reason) => return None,
            // The kubelet alternates between these reasons. The cause is the same, so the text must be the same.
            "ErrImagePull" | "ImagePullBackOff" => {
                with("ErrImagePull", message.and_then(|message| message.rsplit("ErrImagePull: ").next()))
            }
            reason => with(reason, message),
        };
        Some(format!("container {} waits, {cause}", container.name))
    });
    waits.or_else(|| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
        Some(with(found.reason.as_deref().unwrap_or("no node"), found.message.as_deref()))
    })
}

/// How a container in a crash loop ended.
///
/// The text is the same while the container is down and while the kubelet waits. The kubelet's own message changes, because it has the seconds.
fn crashed(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    let waits = state.waiting.as_ref().is_some_and(|waiting| waiting.reason.as_deref() == Some(CRASH_LOOP));
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref()).filter(|_| waits);
    let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0).or(last)?;
    let reason = ended.reason.as_deref().unwrap_or("Error");
    let (name, code, restarts) = (&container.name, ended.exit_code, container.restart_count);
    Some(format!(
        "container {name} ended with exit code {code} ({reason}) and restarted {restarts} times, CrashLoopBackOff"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;

    #[test]
    fn the_reason_why_a_pod_does_not_run_is_named() {
        let pod = |status: serde_json::Value| parsed(json!({"metadata": {}, "status": status}));
        let waiting = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "no such image"}});
            let container = json!({"name": "redis", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            obstacle(&pod(json!({"containerStatuses": [container]})))
        };
        assert_eq!(waiting("ImagePullBackOff").as_deref(), Some("container redis waits, ErrImagePull: no such image"));
        assert_eq!(waiting("ContainerCreating"), None, "every pod starts like this");
        assert_eq!(
            waiting("CreateContainerConfigError").unwrap(),
            "container redis waits, CreateContainerConfigError: no such image"
        );
        let scheduled = |status: &str| {
            let condition = json!({"type": "PodScheduled", "status": status, "reason": "Unschedulable",
                "message": "0/3 nodes are available"});
            obstacle(&pod(json!({"conditions": [condition]})))
        };
        assert_eq!(scheduled("False").as_deref(), Some("Unschedulable: 0/3 nodes are available"));
        assert_eq!(scheduled("True"), None);
    }

    #[test]
    fn the_cause_stays_the_same_text_while_the_kubelet_tries_again() {
        let of = |state: serde_json::Value, last: serde_json::Value| {
            let container = json!({"name": "redis", "image": "x", "imageID": "", "ready": false, "restartCount": 4,
                "state": state, "lastState": last});
            let status = json!({"containerStatuses": [container]});
            obstacle(&parsed(json!({"metadata": {}, "status": status})))
        };
        let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        let text = "container redis ended with exit code 137 (OOMKilled) and restarted 4 times, CrashLoopBackOff";
        assert_eq!(of(killed.clone(), json!({})).as_deref(), Some(text));
        assert_eq!(of(waiting("CrashLoopBackOff", "back-off 40s restarting"), killed.clone()).as_deref(), Some(text));
        assert_eq!(of(waiting("CrashLoopBackOff", "back-off 1m20s restarting"), killed.clone()).as_deref(), Some(text));
        assert_eq!(of(json!({"running": {}}), killed), None, "it runs");
        let pulled = of(waiting("ErrImagePull", "x: not found"), json!({}));
        assert_eq!(pulled.as_deref(), Some("container redis waits, ErrImagePull: x: not found"));
        let message = "Back-off pulling image \"x\": ErrImagePull: x: not found";
        assert_eq!(of(waiting("ImagePullBackOff", message), json!({})), pulled);
    }
}
