//! The pod status that a kubelet reports.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::seconds;
use super::machine::{Container, End, Instance, LocalPod};

/// The status of a pod, from the observations of its kubelet.
///
/// The times of the container runtime have the error of the machine's clock.
pub(super) fn status(pod: &mut LocalPod, now: Millis, clock_error: Millis) -> Value {
    let ready = pod.ready && !pod.ending && pod.containers.iter().all(|container| container.init || container.runs());
    if pod.turned.is_none_or(|(was, _)| was != ready) {
        pod.turned = Some((ready, now));
    }
    let since = pod.turned.map_or(now, |(_, since)| since);
    let condition = |type_: &str| json!({"type": type_, "status": if ready { "True" } else { "False" }, "lastTransitionTime": seconds(since)});
    let of = |init: bool| -> Vec<Value> {
        let all = pod.containers.iter().filter(|container| container.init == init);
        all.map(|container| container_status(pod, container, clock_error)).collect()
    };
    let mut status = json!({
        "phase": phase(pod),
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "startTime": seconds(pod.started),
        "containerStatuses": of(false),
    });
    let init = of(true);
    if !init.is_empty() {
        status["initContainerStatuses"] = json!(init);
    }
    if pod.containers.iter().any(|container| container.current.is_some()) {
        status["podIP"] = json!(pod.ip);
        status["podIPs"] = json!([{"ip": pod.ip}]);
    }
    status
}

fn phase(pod: &LocalPod) -> &'static str {
    if pod.has_ended() {
        let failed = pod.containers.iter().any(|container| container.ended().is_none_or(|end| end.code != 0));
        return if failed { "Failed" } else { "Succeeded" };
    }
    let begun = pod.containers.iter().any(|container| !container.init && container.current.is_some());
    if begun { "Running" } else { "Pending" }
}

fn container_status(pod: &LocalPod, container: &Container, clock_error: Millis) -> Value {
    let terminated = |instance: &Instance, end: &End| terminated(instance, end, clock_error);
    let (state, last) = match &container.current {
        None if container.last.is_some() => {
            (json!({"waiting": {"reason": "CrashLoopBackOff"}}), container.last.as_ref())
        }
        None => (json!({"waiting": {"reason": "ContainerCreating"}}), None),
        Some(instance) => match &instance.end {
            None => {
                (json!({"running": {"startedAt": seconds(instance.started + clock_error)}}), container.last.as_ref())
            }
            Some(end) => (terminated(instance, end), container.last.as_ref()),
        },
    };
    let last_state = match last {
        Some(instance) => instance.end.as_ref().map_or(json!({}), |end| terminated(instance, end)),
        None => json!({}),
    };
    let mut status = json!({
        "name": container.name, "image": "image", "imageID": "image", "restartCount": container.restarts,
        "ready": container.runs() && pod.ready, "started": container.runs(), "state": state, "lastState": last_state,
    });
    if let Some(instance) = container.current.as_ref().or(container.last.as_ref()) {
        status["containerID"] = json!(instance.id);
    }
    status
}

fn terminated(instance: &Instance, end: &End, clock_error: Millis) -> Value {
    let mut terminated = json!({
        "exitCode": end.code, "reason": end.reason,
        "startedAt": seconds(instance.started + clock_error), "finishedAt": seconds(end.at + clock_error),
    });
    if end.named {
        terminated["containerID"] = json!(instance.id);
    }
    json!({"terminated": terminated})
}
