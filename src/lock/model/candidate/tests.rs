use serde_json::{Value, json};

use super::*;
use crate::api::test_util::{condition, lock, parsed};

/// The status of a container.
fn status(name: &str, id: Option<&str>, state: Value) -> Value {
    let id = id.map(|id| format!("containerd://{id}"));
    json!({"name": name, "containerID": id, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})
}

fn pod(name: &str, created: &str, ready: &str, containers: &[&str]) -> Pod {
    let specs: Vec<_> = containers.iter().map(|container| json!({"name": container})).collect();
    let status = |container: &&str| status(container, Some(&format!("{name}-{container}")), running());
    let statuses: Vec<_> = containers.iter().map(status).collect();
    parsed(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created},
        "spec": {"containers": specs},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": statuses}
    }))
}

#[test]
fn a_pod_that_is_not_ready_can_be_bound_but_not_elected() {
    let pod = pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"]);
    assert!(bound(&pod, None).is_ok());
    assert_eq!(electable(&pod, None), Err(Ineligible::NotReady { pod: "ns/a-0".into() }));
}

#[test]
fn a_pod_that_is_deleted_or_marked_as_ended_is_no_candidate() {
    let mut pod = pod("a-0", "2026-01-01T00:00:00Z", "True", &["app"]);
    pod.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    assert!(electable(&pod, None).is_err());
    pod.metadata.deletion_timestamp = None;
    pod.status.as_mut().unwrap().phase = Some("Failed".into());
    assert_eq!(electable(&pod, None), Err(Ineligible::Ended { pod: "ns/a-0".into(), phase: "Failed".into() }));
}

#[test]
fn a_pod_that_does_not_run_is_named_with_its_cause() {
    let with = |status: Value| {
        let mut pod = pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"]);
        pod.status = Some(parsed(status));
        electable(&pod, None).unwrap_err().to_string()
    };
    let waiting = |state: Value| json!({"phase": "Pending", "containerStatuses": [status("app", None, state)]});
    let waits = with(waiting(json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}})));
    assert_eq!(waits, "Pod ns/a-0 does not run: container app waits, ErrImagePull: not found");
    let created = with(waiting(json!({"waiting": {"reason": "ContainerCreating"}})));
    assert_eq!(created, "Container app of pod ns/a-0 has not started yet");
    let unscheduled = with(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available"}]}));
    assert_eq!(unscheduled, "Pod ns/a-0 does not run: Unschedulable: 0/3 nodes are available");
}

#[test]
fn several_containers_need_a_name_or_an_annotation() {
    let mut pod = pod("a-0", "2026-01-01T00:00:00Z", "True", &["app", "mesh"]);
    assert!(electable(&pod, None).unwrap_err().to_string().contains("spec.election.container"));
    assert_eq!(electable(&pod, Some("app")).unwrap().holder.container_id.unwrap(), "containerd://a-0-app");
    assert!(electable(&pod, Some("nope")).is_err());
    pod.annotations_mut().insert(DEFAULT_CONTAINER_ANNOTATION.into(), "mesh".into());
    assert_eq!(electable(&pod, None).unwrap().holder.container_id.unwrap(), "containerd://a-0-mesh");
}

#[test]
fn each_preference_breaks_ties_by_age_then_name() {
    let old_high = pod("a-9", "2026-01-01T00:00:00Z", "True", &["app"]);
    let young_low = pod("b-1", "2026-01-02T00:00:00Z", "True", &["app"]);
    let mut important = pod("c-5", "2026-01-03T00:00:00Z", "True", &["app"]);
    important.annotations_mut().insert(PRIORITY_ANNOTATION.into(), "7".into());
    let all: Vec<_> = [&young_low, &important, &old_high].map(|p| electable(p, None).unwrap()).into();
    let picked = |preference| prefer(&all, preference, None).unwrap().holder.identity.as_str();
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
    let node = |name: &str, cordoned: bool| {
        Arc::new(parsed::<Node>(json!({"metadata": {"name": name}, "spec": {"unschedulable": cordoned}})))
    };
    let election = parsed(json!({"selector": {"matchLabels": {"app": "a"}}}));
    let nodes = [node("n0", true), node("n1", false)];
    let of = |pods: &[Arc<Pod>]| of_election(&election, pods, &nodes).unwrap().0;
    let both = of(&[on("a-0", "n0"), on("a-1", "n1")]);
    assert_eq!(both.iter().map(|one| one.on_cordoned_node).collect::<Vec<_>>(), [true, false]);
    let picked = |all: &[Candidate], preference, ended| prefer(all, preference, ended).unwrap().holder.identity.clone();
    for preference in [Preference::Oldest, Preference::Newest, Preference::LowestOrdinal, Preference::Priority] {
        assert_eq!(picked(&both, preference, None), "a-1", "{preference:?}");
    }
    assert_eq!(picked(&of(&[on("a-0", "n0")]), Preference::Oldest, Some("a-0")), "a-0");
    assert_eq!(picked(&both, Preference::Oldest, Some("a-1")), "a-1", "a-0 is on a cordoned node");
    let free = of(&[on("a-0", "n1"), on("a-1", "n1")]);
    assert_eq!(picked(&free, Preference::Oldest, Some("a-0")), "a-1", "its hold has just ended");
}

#[test]
fn an_init_container_holds_only_if_it_is_named() {
    let mut migrating = pod("a-0", "2026-01-01T00:00:00Z", "False", &["app"]);
    let status = status("migrate", Some("init"), running());
    migrating.spec.as_mut().unwrap().init_containers = parsed(json!([{"name": "migrate"}]));
    migrating.status.as_mut().unwrap().init_container_statuses = parsed(json!([status]));
    assert_eq!(bound(&migrating, Some("migrate")).unwrap().holder.container_id.unwrap(), "containerd://init");
    assert_eq!(bound(&migrating, None).unwrap().holder.container_id.unwrap(), "containerd://a-0-app");
}

#[test]
fn the_last_holder_comes_last_for_a_ttl_and_a_change_of_leader() {
    let end = json!({"identity": "a-0", "to": "1970-01-01T00:00:10.400Z", "reason": "Released"});
    let mut held = condition("Held", "False", "Released");
    held["lastTransitionTime"] = json!("1970-01-01T00:00:10Z");
    let status = json!({"transitions": 1, "history": [end], "conditions": [held]});
    let lock = |ttl: &str| lock(json!({"ttl": ttl}), status.clone());
    for (ttl, until) in [("15s", 26_000), ("2s", 21_000)] {
        assert_eq!(last_holder(&lock(ttl), UnixMillis(until - 1)), Some("a-0"));
        assert_eq!(last_holder(&lock(ttl), UnixMillis(until)), None);
    }
}

#[test]
fn a_pod_that_fails_its_check_waits_longer_each_time() {
    let past = |pod: &str, reason: &str| json!({"identity": pod, "reason": reason, "to": "2026-01-01T00:01:00.000Z"});
    let made = |name: &str, created: &str| electable(&pod(name, created, "True", &["app"]), None).unwrap();
    let of = |history: Value, pod: &Candidate| {
        let spec = json!({"ttl": "3s", "election": {"selector": {}}});
        let lock = lock(spec, json!({"transitions": 0, "history": history}));
        back_off(&lock, pod).map(|(times, at)| (times, at.to_string()))
    };
    let back_off = |history, pod: &str| of(history, &made(pod, "2026-01-01T00:00:00Z"));
    let unhealthy = |pod: &str| past(pod, "HolderUnhealthy");
    let at = |times: u32, time: &str| Some((times, format!("2026-01-01T00:{time}.000Z")));
    let broken_row = json!([unhealthy("a"), past("a", "HolderGone"), unhealthy("a")]);
    assert_eq!(back_off(broken_row, "a"), None, "one failed hold in the row");
    assert_eq!(back_off(json!([unhealthy("a"), unhealthy("a")]), "a"), at(2, "01:03"));
    let both = json!([unhealthy("b"), unhealthy("a"), unhealthy("b"), unhealthy("a"), unhealthy("a")]);
    assert_eq!(back_off(both.clone(), "a"), at(3, "01:06"));
    assert_eq!(back_off(both, "b"), at(2, "01:03"));
    assert_eq!(back_off(json!(vec![unhealthy("a"); 10]), "a"), at(10, "06:00"), "the wait is at most five minutes");
    let mut healthy = unhealthy("a");
    healthy["from"] = json!("2026-01-01T00:00:00.000Z");
    healthy["to"] = json!("2026-01-01T00:05:00.000Z");
    let ended_row = json!([unhealthy("a"), healthy, unhealthy("a")]);
    assert_eq!(back_off(ended_row, "a"), None, "a hold of five minutes ends the row");
    let next = made("a", "2026-01-01T00:01:01Z");
    assert_eq!(of(json!([unhealthy("a"), unhealthy("a")]), &next), None, "an earlier pod of the name failed");
}
