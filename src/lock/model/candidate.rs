//! Pure: the pods that can hold a lock, and the one that an election picks.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::nodes;
use crate::api::conditions::{HeldReason, LockCondition, transition_time};
use crate::api::{DistributedLock, Election, LockHolder, MilliTime, PRIORITY_ANNOTATION, PastHold, Preference};
use crate::evidence;
use crate::evidence::obstacle::obstacle;
use crate::quorum::model::lookup::full_name;
use crate::time::UnixMillis;

/// The annotation by which `kubectl` finds the main container of a pod.
const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Time for a change of the operator's leader: its Lease of 4 s, and the caches of the next leader.
const CHANGE_OF_LEADER: Duration = Duration::from_secs(10);

/// The longest wait before the next election of a pod whose check failed in each of its last holds.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// A container instance that can hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The holder that a status would name, without the record of its hold.
    pub holder: LockHolder,
    /// Its node is cordoned, so pods will be evicted from it.
    pub on_cordoned_node: bool,
    created: Option<Time>,
    ordinal: Option<u64>,
    priority: i64,
}

/// The reason why a lock has no candidate, or why a pod is none.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
#[expect(missing_docs, reason = "a message shows what its fields are")]
pub enum Ineligible {
    /// Pod {pod} does not exist
    NoPod { pod: String },
    /// Pod {pod} is another one than spec.claim.podUID names. Create a claim for this one
    OtherPod { pod: String },
    /// Namespace {namespace} has no pod that spec.election.selector matches. Compare: kubectl -n {namespace} get pods
    /// --show-labels
    NoMatch { namespace: String },
    /// spec.election.selector cannot be used: {error}
    Selector { error: String },
    /// Pod {pod} is being deleted
    Deleted { pod: String },
    /// Pod {pod} is in phase {phase}
    Ended { pod: String, phase: String },
    /// Pod {pod} has no container {container}
    NoContainer { pod: String, container: String },
    /// Pod {pod} has the containers {containers}. Set spec.claim.container or spec.election.container, or annotate the
    /// pod with kubectl.kubernetes.io/default-container
    WhichContainer { pod: String, containers: String },
    /// Container {container} of pod {pod} has not started yet
    NotStarted { pod: String, container: String },
    /// Container {container} of pod {pod} is not running. If an init container waits for the lock, set
    /// spec.claim.container to its name
    NotRunning { pod: String, container: String },
    /// Pod {pod} does not run: {obstacle}
    Obstructed { pod: String, obstacle: String },
    /// Pod {pod} is not ready
    NotReady { pod: String },
    /// Pod {pod} led, and failed its check in spec.liveness or did not renew its Lease, {times} times in a row. The operator elects it
    /// again at {at}
    Unhealthy { pod: String, times: u32, at: MilliTime },
    /// Node {node} of pod {pod} does not report
    NodeSilent { node: String, pod: String },
}

/// The container instance to which a claim on this pod is bound.
///
/// It runs, and its pod is neither being deleted nor marked as ended by a controller. Its readiness does not matter, because a worker can
/// become ready only with its lock.
pub fn bound(pod: &Pod, container: Option<&str>) -> Result<Candidate, Ineligible> {
    let (name, pod_name) = (pod.name_any(), full_name(pod));
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(Ineligible::Deleted { pod: pod_name });
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if let Some(phase @ ("Failed" | "Succeeded")) = phase {
        return Err(Ineligible::Ended { pod: pod_name, phase: phase.to_owned() });
    }
    let container = main_container(pod, container)?;
    let status = evidence::containers(pod).find(|status| status.name == container);
    let Some(status) = status.filter(|status| !is_being_created(status)) else {
        return Err(obstructed(pod, Ineligible::NotStarted { pod: pod_name, container }));
    };
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    let (Some(running), Some(container_id)) = (running, status.container_id.clone()) else {
        return Err(obstructed(pod, Ineligible::NotRunning { pod: pod_name, container }));
    };
    Ok(Candidate {
        holder: LockHolder {
            identity: name.clone(),
            pod_uid: Some(pod.uid().unwrap_or_default()),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            container_id: Some(container_id),
            container_started_at: running.started_at.as_ref().map(|time| time.0.into()),
            pod_name: Some(name.clone()),
            ..LockHolder::default()
        },
        on_cordoned_node: false,
        created: pod.metadata.creation_timestamp.clone(),
        ordinal: name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok()),
        priority: pod.annotations().get(PRIORITY_ANNOTATION).and_then(|p| p.parse().ok()).unwrap_or(0),
    })
}

/// The obstacle that keeps a pod from running, or else this other reason.
fn obstructed(pod: &Pod, otherwise: Ineligible) -> Ineligible {
    obstacle(pod).map_or(otherwise, |obstacle| Ineligible::Obstructed { pod: full_name(pod), obstacle })
}

/// Whether the kubelet prepares the container: it pulls the image and mounts volumes.
fn is_being_created(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("ContainerCreating"))
}

/// The container instance that an election can pick in this pod.
///
/// The conditions are those of [`bound`], and the pod must be ready.
pub fn electable(pod: &Pod, container: Option<&str>) -> Result<Candidate, Ineligible> {
    let candidate = bound(pod, container)?;
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if is_ready { Ok(candidate) } else { Err(obstructed(pod, Ineligible::NotReady { pod: full_name(pod) })) }
}

/// The pods that can be elected, and the reasons against the other matching pods.
///
/// # Errors
///
/// The selector is invalid.
pub fn of_election(
    election: &Election,
    pods: &[Arc<Pod>],
    all_nodes: &[Arc<Node>],
) -> Result<(Vec<Candidate>, Vec<Ineligible>), Ineligible> {
    let selector = Selector::try_from(election.selector.clone())
        .map_err(|error| Ineligible::Selector { error: error.to_string() })?;
    let (mut candidates, mut others) = (Vec::new(), Vec::new());
    for pod in pods.iter().filter(|pod| selector.matches(pod.labels())) {
        match electable(pod, election.container.as_deref()).and_then(|candidate| placed(candidate, pod, all_nodes)) {
            Ok(candidate) => candidates.push(candidate),
            Err(ineligible) => others.push(ineligible),
        }
    }
    Ok((candidates, others))
}

/// Adds the state of its node to a candidate.
fn placed(candidate: Candidate, pod: &Pod, all_nodes: &[Arc<Node>]) -> Result<Candidate, Ineligible> {
    let Some(name) = candidate.holder.node_name.as_deref() else { return Ok(candidate) };
    if nodes::is_unreachable(name, all_nodes) {
        return Err(Ineligible::NodeSilent { node: name.to_owned(), pod: full_name(pod) });
    }
    let node = all_nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
    let on_cordoned_node = node.is_some_and(|node| nodes::is_cordoned(node));
    Ok(Candidate { on_cordoned_node, ..candidate })
}

/// The candidate that an election prefers.
///
/// Candidates on cordoned nodes are last. Among the candidates on the same kind of node, the pod whose hold has just `ended` is last. A better
/// candidate never replaces a present leader.
pub fn prefer<'a>(candidates: &'a [Candidate], preference: Preference, ended: Option<&str>) -> Option<&'a Candidate> {
    let age = |c: &Candidate| c.created.as_ref().map(|t| t.0);
    let name = |c: &Candidate| c.holder.identity.clone();
    let oldest = |c: &Candidate| (age(c), name(c));
    let last_resort = |c: &Candidate| (c.on_cordoned_node, ended == Some(c.holder.identity.as_str()));
    match preference {
        Preference::Oldest => candidates.iter().min_by_key(|c| (last_resort(c), oldest(c))),
        Preference::Newest => candidates.iter().min_by_key(|c| (last_resort(c), Reverse(age(c)), name(c))),
        Preference::LowestOrdinal => {
            candidates.iter().min_by_key(|c| (last_resort(c), c.ordinal.is_none(), c.ordinal, oldest(c)))
        }
        Preference::Priority => candidates.iter().min_by_key(|c| (last_resort(c), Reverse(c.priority), oldest(c))),
    }
}

/// The pod whose hold has just ended, which [`prefer`] picks last.
///
/// This applies for one ttl, and at least for `CHANGE_OF_LEADER`. One second is added, because the transition time of the condition Held has
/// whole seconds of the API server's clock.
pub fn last_holder(lock: &DistributedLock, now: UnixMillis) -> Option<&str> {
    let held = lock.condition(LockCondition::Held).filter(|held| held.status == "False")?;
    let recent = lock.spec.ttl.get().max(CHANGE_OF_LEADER) + Duration::from_secs(1);
    lock.past().filter(|_| now < transition_time(held).plus(recent)).map(|last| last.identity.as_str())
}

/// Returns how many holds of a pod failed the check in a row, and when it can be elected again.
///
/// The holds of an earlier pod with its name do not count.
///
/// A hold of at least five minutes ends the series. The pod waits for one ttl after the second failed hold. Each further failed hold doubles the
/// wait, to at most five minutes. Without the wait, an election whose pods all fail the check would have a new leader, and three Events, in each ttl.
pub fn back_off(lock: &DistributedLock, pod: &Candidate) -> Option<(u32, MilliTime)> {
    let history = lock.status.as_ref().map(|status| status.history.as_slice()).unwrap_or_default();
    let unhealthy = unhealthy_row(history);
    let created = pod.created.as_ref().map_or(i64::MIN, |created| created.0.as_millisecond());
    let own = unhealthy.filter(|past| past.identity == pod.holder.identity && past.to.as_millis() >= created);
    let ends: Vec<_> = own.map(|past| past.to).collect();
    let (last, times) = (*ends.first()?, u32::try_from(ends.len()).unwrap_or(u32::MAX));
    let wait = lock.spec.ttl.get().saturating_mul(2_u32.saturating_pow(times.checked_sub(2)?)).min(LONGEST_BACK_OFF);
    let at = UnixMillis(last.as_millis()).plus(wait);
    Some((times, MilliTime::from_millis(at.0).unwrap_or(last)))
}

/// The last holds in a row whose holder failed its check.
///
/// A hold of at least five minutes ends the series.
pub fn unhealthy_row(history: &[PastHold]) -> impl Iterator<Item = &PastHold> {
    let length = |past: &PastHold| past.from.map(|from| UnixMillis::from(past.to).since(from.into()));
    let is_short = move |past: &PastHold| length(past).is_none_or(|length| length < LONGEST_BACK_OFF);
    history.iter().take_while(move |past| past.reason == HeldReason::HolderUnhealthy.as_str() && is_short(past))
}

/// The container to which leadership is bound.
///
/// It is the requested container, or else the pod's default, or else its only container.
fn main_container(pod: &Pod, asked: Option<&str>) -> Result<String, Ineligible> {
    let names: Vec<_> = pod.spec.iter().flat_map(|spec| &spec.containers).map(|main| main.name.as_str()).collect();
    let mut init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let mut is_init = |name: &str| asked.is_some() && init.any(|container| container.name == name);
    let default = pod.annotations().get(DEFAULT_CONTAINER_ANNOTATION).map(String::as_str);
    let only = names.first().copied().filter(|_| names.len() == 1);
    match asked.or(default).or(only) {
        Some(name) if names.contains(&name) || is_init(name) => Ok(name.to_owned()),
        Some(name) => Err(Ineligible::NoContainer { pod: full_name(pod), container: name.to_owned() }),
        None => Err(Ineligible::WhichContainer { pod: full_name(pod), containers: names.join(", ") }),
    }
}

#[cfg(test)]
mod tests;
