//! Derives the facts for the fence from pods and nodes.

mod nodes;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use super::build::{ACL_FILE, CONFIG_VOLUME, REDIS_CONTAINER, TLS_VOLUME};
use crate::evidence::obstacle::obstacle;
use crate::evidence::{ContainerEvidence, container_state, is_unknown};
use crate::fence::{Process, Record, RunId};

pub use nodes::{Nodes, ready_transition};

fn redis_status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|status| status.name == REDIS_CONTAINER)
}

/// The running redis container in the kubelet's last report.
///
/// It can be an earlier one because the status lags.
pub fn running_container(pod: &Pod) -> Option<&str> {
    redis_status(pod).filter(|_| runs(pod))?.container_id.as_deref().filter(|id| !id.is_empty())
}

/// Whether the redis container runs, as the kubelet last reported.
pub fn runs(pod: &Pod) -> bool {
    redis_status(pod).and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Why the member `name` in `namespace` has no process, and the command that shows details.
///
/// `refused`: for a member without a pod, the reply of the StatefulSet controller.
pub fn no_process((namespace, name): (&str, &str), pod: Option<&Pod>, refused: Option<&str>) -> Option<String> {
    let Some(pod) = pod else {
        let why = refused.map(|why| format!(", FailedCreate: {why}")).unwrap_or_default();
        return Some(format!(
            "no pod exists{why}. The StatefulSet tries again automatically. See: kubectl -n {namespace} describe sts {name}"
        ));
    };
    let (why, pod) = (obstacle(pod)?, pod.name_any());
    let has_log = why.ends_with("CrashLoopBackOff");
    let command = if has_log { format!("logs {pod} --previous") } else { format!("describe pod {pod}") };
    Some(format!(
        "{why}. The kubelet or the scheduler tries again automatically. See: kubectl -n {namespace} {command}"
    ))
}

/// Whether a member's pod uses TLS. A pod uses either TLS or plain TCP.
pub fn uses_tls(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume.name == TLS_VOLUME))
}

/// The key of the ACL file that a member's pod mounts.
///
/// It identifies the secrets of the pod's first process, because the volumes of a pod cannot be changed.
pub fn acl_key(pod: &Pod) -> Option<&str> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let config = volumes.iter().find(|volume| volume.name == CONFIG_VOLUME)?.secret.as_ref()?;
    config.items.as_ref()?.iter().find(|item| item.path == ACL_FILE).map(|item| item.key.as_str())
}

/// The address of a pod.
pub fn pod_ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())
}

/// An answering process, with the evidence of its place.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts<'a> {
    /// The process.
    pub run_id: &'a RunId,
    /// Its pod.
    pub pod_uid: &'a str,
    /// The current pod with the member's name, and the deleted one.
    ///
    /// One of them is the pod of the process, or the pod was deleted by force. In that case the record of the same process
    /// stays, because it names the node where the process perhaps still runs.
    pub pods: [Option<&'a Pod>; 2],
    /// The container that its pod showed as running before its last answer.
    /// The process is in that container, or in a later one.
    pub container: Option<&'a str>,
    /// The published record.
    pub record: &'a Record,
}

/// Whether the pod's status shows the container of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerReport {
    /// It shows the container as running.
    Running,
    /// A later status can show it.
    NotYet,
    /// No later status can show it.
    ///
    /// The pod shows another container, and does not report the end of the recorded one. Either the container restarted twice between two statuses,
    /// or the runtime lost a container.
    Never,
}

/// The place of a process, and whether its pod shows its container.
pub fn process(of: &Whereabouts<'_>, nodes: &Nodes) -> (Process, ContainerReport) {
    let recorded =
        of.record.process.as_ref().filter(|process| process.run_id == *of.run_id && process.pod_uid == of.pod_uid);
    // A container of another process of the pod ended with that process.
    let others = [&of.record.process, &of.record.predecessor].into_iter().flatten();
    let taken: Vec<_> = others
        .filter(|other| other.run_id != *of.run_id && other.pod_uid == of.pod_uid)
        .filter_map(|other| other.container_id.as_deref())
        .collect();
    let its_pod = of.pods.into_iter().flatten().find(|pod| pod.uid().as_deref() == Some(of.pod_uid));
    // A container that the runtime lost can still run, and its process can answer instead of the shown one. So a recorded
    // container stays until its end is known. For a new process no container is recorded if a lost one can be its own.
    let recorded_id = recorded.and_then(|recorded| recorded.container_id.as_deref());
    let may_be_in_running = match recorded_id {
        Some(recorded_id) => its_pod.is_some_and(|pod| container_state(pod, recorded_id) == ContainerEvidence::Dead),
        None => !taken.is_empty() || !its_pod.is_some_and(has_lost_a_container),
    };
    let container = of.container.filter(|id| may_be_in_running && !taken.contains(id)).or(recorded_id);
    let present = its_pod.filter(|its_pod| of.pods[0].is_some_and(|present| present.uid() == its_pod.uid()));
    let report = match present.and_then(running_container) {
        Some(running) if container == Some(running) => ContainerReport::Running,
        Some(_) if !may_be_in_running => ContainerReport::Never,
        _ => ContainerReport::NotYet,
    };
    let node_name = its_pod.and_then(node_name).or_else(|| recorded?.node_name.clone());
    // A recorded node stays, because another machine can take the name while the process still runs.
    let recorded_node = recorded.and_then(|recorded| recorded.node.clone());
    let node = recorded_node.or_else(|| nodes.identity(node_name.as_deref()?));
    let process = Process {
        run_id: of.run_id.clone(),
        container_id: container.map(str::to_owned),
        node_name,
        node: node.map(|node| nodes.with_unique_ids(node)),
        pod_uid: of.pod_uid.to_owned(),
    };
    (process, report)
}

/// Whether the kubelet lost the redis container before the current one.
fn has_lost_a_container(pod: &Pod) -> bool {
    let last = redis_status(pod).and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
    last.is_some_and(is_unknown)
}

/// The node of a pod.
pub fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

#[cfg(test)]
mod tests;
