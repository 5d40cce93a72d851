//! Pure: which pods may hold a lock, and which one an election picks.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::nodes;
use crate::api::conditions::{LockCondition, find_condition, transition_time};
use crate::api::{DistributedLock, Election, PRIORITY_ANNOTATION, Preference};
use crate::evidence;
use crate::evidence::obstacle::obstacle;
use crate::time::UnixMillis;

/// Names the main container of a pod with several, as `kubectl` reads it.
const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// A leader that dies is followed within its Lease of 4 s, and the next one has to fill its caches.
const CHANGE_OF_LEADER: Duration = Duration::from_secs(10);

/// A container instance that may hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the pod.
    pub pod_name: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Node that the pod runs on.
    pub node_name: Option<String>,
    /// Runtime's id of the running container.
    pub container_id: String,
    /// Start of the running container.
    pub container_started_at: Option<Time>,
    /// Its node is cordoned, and about to be emptied.
    pub on_cordoned_node: bool,
    created: Option<Time>,
    ordinal: Option<u64>,
    priority: i64,
}

/// Why a lock has no candidate, or why a pod is none.
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
    /// Node {node} of pod {pod} does not report
    NodeSilent { node: String, pod: String },
}

/// The instance that a claim on this pod would be bound to.
///
/// It runs, and its pod is neither being deleted nor marked as ended by some controller. Readiness does not matter: a
/// worker may well become ready only once it holds its lock.
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
    let obstructed = |otherwise| match obstacle(pod) {
        Some(obstacle) => Ineligible::Obstructed { pod: full_name(pod), obstacle },
        None => otherwise,
    };
    let Some(status) = evidence::containers(pod).find(|status| status.name == container) else {
        return Err(obstructed(Ineligible::NotStarted { pod: pod_name, container }));
    };
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    let (Some(running), Some(container_id)) = (running, status.container_id.clone()) else {
        return Err(obstructed(Ineligible::NotRunning { pod: pod_name, container }));
    };
    Ok(Candidate {
        pod_uid: pod.uid().unwrap_or_default(),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        container_id,
        container_started_at: running.started_at.clone(),
        on_cordoned_node: false,
        created: pod.metadata.creation_timestamp.clone(),
        ordinal: name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok()),
        priority: pod.annotations().get(PRIORITY_ANNOTATION).and_then(|p| p.parse().ok()).unwrap_or(0),
        pod_name: name,
    })
}

/// An instance that may be elected: as [`bound`], and its pod is ready.
pub fn electable(pod: &Pod, container: Option<&str>) -> Result<Candidate, Ineligible> {
    let candidate = bound(pod, container)?;
    let ready = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    match obstacle(pod) {
        _ if ready => Ok(candidate),
        Some(obstacle) => Err(Ineligible::Obstructed { pod: full_name(pod), obstacle }),
        None => Err(Ineligible::NotReady { pod: full_name(pod) }),
    }
}

/// Which of these pods may be elected, and why the others of those that match may not.
///
/// # Errors
/// The selector is none.
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

/// What its node says about a candidate.
fn placed(candidate: Candidate, pod: &Pod, all_nodes: &[Arc<Node>]) -> Result<Candidate, Ineligible> {
    let Some(name) = candidate.node_name.as_deref() else { return Ok(candidate) };
    if nodes::is_unreachable(name, all_nodes) {
        return Err(Ineligible::NodeSilent { node: name.to_owned(), pod: full_name(pod) });
    }
    let node = all_nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
    let on_cordoned_node = node.is_some_and(|node| nodes::is_cordoned(node));
    Ok(Candidate { on_cordoned_node, ..candidate })
}

/// The candidate that an election prefers.
///
/// One on a schedulable node comes first, then one that is not the pod whose hold has just `ended`. The preference is soft: no leader is replaced because a better candidate turned up.
pub fn prefer<'a>(candidates: &'a [Candidate], preference: Preference, ended: Option<&str>) -> Option<&'a Candidate> {
    let age = |c: &Candidate| c.created.as_ref().map(|t| t.0);
    let oldest = |c: &Candidate| (age(c), c.pod_name.clone());
    let last_resort = |c: &Candidate| (c.on_cordoned_node, ended == Some(c.pod_name.as_str()));
    match preference {
        Preference::Oldest => candidates.iter().min_by_key(|c| (last_resort(c), oldest(c))),
        Preference::Newest => candidates.iter().min_by_key(|c| (last_resort(c), Reverse(age(c)), c.pod_name.clone())),
        Preference::LowestOrdinal => {
            candidates.iter().min_by_key(|c| (last_resort(c), c.ordinal.is_none(), c.ordinal, oldest(c)))
        }
        Preference::Priority => candidates.iter().min_by_key(|c| (last_resort(c), Reverse(c.priority), oldest(c))),
    }
}

/// The pod whose hold has just ended. Another candidate leads next, if there is one.
///
/// It stays last for one ttl, and for as long as a change of the operator's leader takes. The time of transition of the condition Held is of the
/// API server's clock, in whole seconds.
pub fn last_holder(lock: &DistributedLock, now: UnixMillis) -> Option<&str> {
    let status = lock.status.as_ref()?;
    let held = find_condition(&status.conditions, LockCondition::Held).filter(|held| held.status == "False")?;
    let recent = lock.spec.ttl.get().max(CHANGE_OF_LEADER) + Duration::from_secs(1);
    status.history.first().filter(|_| now < transition_time(held).plus(recent)).map(|last| last.identity.as_str())
}

/// The container that leadership is bound to.
///
/// It is the container that was asked for, the only one, or the one that the pod names as its default.
fn main_container(pod: &Pod, asked: Option<&str>) -> Result<String, Ineligible> {
    let names: Vec<&str> =
        pod.spec.as_ref().map(|spec| spec.containers.iter().map(|c| c.name.as_str()).collect()).unwrap_or_default();
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let is_init = |name: &str| asked.is_some() && init.iter().any(|container| container.name == name);
    let default = pod.annotations().get(DEFAULT_CONTAINER_ANNOTATION).map(String::as_str);
    let chosen = match (asked.or(default), names.as_slice()) {
        (Some(name), _) => Some(name),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    match chosen {
        Some(name) if names.contains(&name) || is_init(name) => Ok(name.to_owned()),
        Some(name) => Err(Ineligible::NoContainer { pod: full_name(pod), container: name.to_owned() }),
        None => Err(Ineligible::WhichContainer { pod: full_name(pod), containers: names.join(", ") }),
    }
}

/// `namespace/name` for messages.
fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, created: &str, ready: &str, containers: &[&str]) -> Pod {
        let specs: Vec<_> = containers.iter().map(|c| json!({"name": c})).collect();
        let statuses: Vec<_> = containers
            .iter()
            .map(|c| {
                json!({"name": c, "containerID": format!("containerd://{name}-{c}"), "image": "", "imageID": "",
                    "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}})
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created},
            "spec": {"containers": specs},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": statuses}
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_is_not_ready_may_be_bound_but_not_elected() {
        let pod = pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"]);
        assert!(bound(&pod, None).is_ok());
        assert_eq!(electable(&pod, None), Err(Ineligible::NotReady { pod: "/a-0".into() }));
    }

    #[test]
    fn a_pod_being_deleted_is_no_candidate() {
        let mut pod = pod("a-0", "2026-01-01T00:00:00Z", "True", &["app"]);
        pod.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        assert!(electable(&pod, None).is_err());
    }

    #[test]
    fn a_pod_that_does_not_run_is_named_with_the_text_of_the_kubelet_or_the_scheduler() {
        let with = |status: serde_json::Value| {
            let mut object = serde_json::to_value(pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"])).unwrap();
            object["status"] = status;
            electable(&serde_json::from_value(object).unwrap(), None).unwrap_err().to_string()
        };
        let waits = with(json!({"phase": "Pending", "containerStatuses": [{"name": "app", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}));
        assert_eq!(waits, "Pod /a-0 does not run: container app waits, ErrImagePull: not found");
        let unscheduled = with(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available"}]}));
        assert_eq!(unscheduled, "Pod /a-0 does not run: Unschedulable: 0/3 nodes are available");
    }

    #[test]
    fn several_containers_need_a_name_or_an_annotation() {
        let mut pod = pod("a-0", "2026-01-01T00:00:00Z", "True", &["app", "mesh"]);
        assert!(electable(&pod, None).unwrap_err().to_string().contains("spec.election.container"));
        assert_eq!(electable(&pod, Some("app")).unwrap().container_id, "containerd://a-0-app");
        assert!(electable(&pod, Some("nope")).is_err());
        pod.annotations_mut().insert(DEFAULT_CONTAINER_ANNOTATION.into(), "mesh".into());
        assert_eq!(electable(&pod, None).unwrap().container_id, "containerd://a-0-mesh");
    }

    #[test]
    fn each_preference_picks_its_own_and_breaks_ties_by_age_then_name() {
        let old_high = pod("a-9", "2026-01-01T00:00:00Z", "True", &["app"]);
        let young_low = pod("b-1", "2026-01-02T00:00:00Z", "True", &["app"]);
        let mut important = pod("c-5", "2026-01-03T00:00:00Z", "True", &["app"]);
        important.annotations_mut().insert(PRIORITY_ANNOTATION.into(), "7".into());
        let all: Vec<_> = [&young_low, &important, &old_high].map(|p| electable(p, None).unwrap()).into();
        let picked = |preference| prefer(&all, preference, None).unwrap().pod_name.as_str();
        assert_eq!(picked(Preference::Oldest), "a-9");
        assert_eq!(picked(Preference::Newest), "c-5");
        assert_eq!(picked(Preference::LowestOrdinal), "b-1");
        assert_eq!(picked(Preference::Priority), "c-5");
    }

    #[test]
    fn a_candidate_on_a_cordoned_node_comes_last_and_is_still_one() {
        let on = |name: &str, node: &str| {
            let mut pod = pod(name, "2026-01-01T00:00:00Z", "True", &["app"]);
            pod.labels_mut().insert("app".into(), "a".into());
            pod.spec.as_mut().unwrap().node_name = Some(node.into());
            Arc::new(pod)
        };
        let node = |name: &str, cordoned: bool| -> Arc<Node> {
            let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": cordoned}});
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let election: Election = serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}})).unwrap();
        let nodes = [node("n0", true), node("n1", false)];
        let of = |pods: &[Arc<Pod>]| of_election(&election, pods, &nodes).unwrap().0;
        let both = of(&[on("a-0", "n0"), on("a-1", "n1")]);
        assert_eq!(both.iter().map(|one| one.on_cordoned_node).collect::<Vec<_>>(), [true, false]);
        for preference in [Preference::Oldest, Preference::Newest, Preference::LowestOrdinal, Preference::Priority] {
            assert_eq!(prefer(&both, preference, None).unwrap().pod_name, "a-1", "{preference:?}");
        }
        assert_eq!(prefer(&of(&[on("a-0", "n0")]), Preference::Oldest, Some("a-0")).unwrap().pod_name, "a-0");
        assert_eq!(
            prefer(&both, Preference::Oldest, Some("a-1")).unwrap().pod_name,
            "a-1",
            "a-0 is on a cordoned node"
        );
        let free = of(&[on("a-0", "n1"), on("a-1", "n1")]);
        assert_eq!(prefer(&free, Preference::Oldest, Some("a-0")).unwrap().pod_name, "a-1", "its hold has just ended");
    }

    #[test]
    fn a_pod_that_some_controller_marks_as_ended_is_no_candidate() {
        let mut failed = pod("a-0", "2026-01-01T00:00:00Z", "True", &["app"]);
        failed.status.as_mut().unwrap().phase = Some("Failed".into());
        assert_eq!(electable(&failed, None), Err(Ineligible::Ended { pod: "/a-0".into(), phase: "Failed".into() }));
    }

    #[test]
    fn an_init_container_holds_when_it_is_asked_for() {
        let mut migrating = pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"]);
        let status = json!({"name": "migrate", "containerID": "containerd://init", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}});
        migrating.spec.as_mut().unwrap().init_containers =
            serde_json::from_value(json!([{"name": "migrate"}])).unwrap();
        migrating.status.as_mut().unwrap().init_container_statuses = serde_json::from_value(json!([status])).unwrap();
        assert_eq!(bound(&migrating, Some("migrate")).unwrap().container_id, "containerd://init");
        assert_eq!(bound(&migrating, None).unwrap().container_id, "containerd://a-0-app");
    }

    #[test]
    fn the_pod_whose_hold_has_just_ended_is_known_for_one_ttl_and_across_a_change_of_leader() {
        let end = json!({"identity": "a-0", "to": "1970-01-01T00:00:10.400Z", "reason": "Released"});
        let held = json!({"type": "Held", "status": "False", "reason": "Released", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:10Z"});
        let lock = |ttl| -> DistributedLock {
            let object = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "l"}, "spec": {"ttl": ttl},
                "status": {"transitions": 1, "history": [end], "conditions": [held]}});
            serde_json::from_value(object).unwrap()
        };
        for (ttl, until) in [("15s", 26_000), ("2s", 21_000)] {
            assert_eq!(last_holder(&lock(ttl), UnixMillis(until - 1)), Some("a-0"));
            assert_eq!(last_holder(&lock(ttl), UnixMillis(until)), None);
        }
    }
}
