use serde_json::json;

use super::*;
use crate::runtime::cache::Guarded;

fn read<K: Kind>(object: Value) -> K {
    match serde_json::from_value(object).unwrap() {
        Guarded::Read(object) => object,
        Guarded::Unreadable(raw) => panic!("{}", raw.error),
    }
}

#[test]
fn a_cached_pod_has_only_the_fields_that_are_read() {
    let long = "x".repeat(10_000);
    let pod: Pod = read(json!({
        "metadata": {"name": "p", "uid": "u", "finalizers": [long], "labels": {"app": "a"}, "annotations":
            {"note": long, "redlock-operator.io/priority": "3", "redlock-operator.io/token": long}},
        "spec": {"nodeName": "n", "affinity": {"nodeAffinity": {}}, "volumes": [{"name": "v"}], "containers":
            [{"name": "app", "image": long, "env": [{"name": "A", "value": long}], "ports": [{"containerPort": 1}]}]},
        "status": {"phase": "Running", "message": long, "containerStatuses": [{"name": "app", "image": long,
            "imageID": long, "ready": true, "restartCount": 1, "containerID": "c", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 3, "containerID": "b", "message": long}}}],
            "conditions": [{"type": "Ready", "status": "True", "message": long}]}}));
    assert!(serde_json::to_string(&pod).unwrap().len() < 600, "{}", serde_json::to_string(&pod).unwrap());
    assert_eq!(pod.annotations().keys().collect::<Vec<_>>(), ["redlock-operator.io/priority"]);
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.container_id.as_deref(), last.exit_code), (Some("b"), 3));
    assert!(pod.spec.as_ref().unwrap().volumes.is_none());
}

#[test]
fn a_cached_member_pod_keeps_its_secret_volumes() {
    let pod: Pod = read(json!({
        "metadata": {"name": "p", "labels": {MEMBER_LABEL: "q-0"}}, "spec": {"containers": [], "volumes": [
            {"name": "config", "secret": {"secretName": "s", "items": [{"key": "acl-1", "path": "users.acl"}]}}]}}));
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    assert_eq!(volume.secret.as_ref().unwrap().items.as_ref().unwrap()[0].key, "acl-1");
}

#[test]
fn a_cached_pod_keeps_the_reason_why_it_does_not_start() {
    let pod: Pod = read(json!({"metadata": {"name": "p"}, "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}],
        "containerStatuses": [{"name": "redis", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found".repeat(100)}}}]}}));
    let status = pod.status.as_ref().unwrap();
    let condition = &status.conditions.as_ref().unwrap()[0];
    assert_eq!(
        (condition.reason.as_deref(), condition.message.as_deref()),
        (Some("Unschedulable"), Some("0/3 nodes fit"))
    );
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.message.as_ref().map(String::len), Some(LONGEST_MESSAGE));
}

#[test]
fn a_cached_node_keeps_its_provider_id() {
    let node: Node =
        read(json!({"metadata": {"name": "n"}, "spec": {"providerID": "aws:///i-1", "podCIDR": "10.0.0.0/24"}}));
    let spec = node.spec.as_ref().unwrap();
    assert_eq!((spec.provider_id.as_deref(), spec.pod_cidr.as_deref()), (Some("aws:///i-1"), None));
}

#[test]
fn labels_are_bounded_and_those_that_decide_stay() {
    let mut labels: Map<String, Value> = (0..5_000).map(|n| (format!("l{n:04}"), json!("v"))).collect();
    labels.extend((0..5_000).map(|n| (format!("leader.redlock-operator.io/{n:04}"), json!("true"))));
    labels.insert(JOB_UID_LABEL.to_owned(), json!("job"));
    labels.insert("z".to_owned(), json!("last"));
    let pod: Pod = read(json!({"metadata": {"name": "p", "labels": labels}}));
    assert_eq!(pod.labels().len(), OTHER_LABELS + OUR_LABELS + 1);
    let found = pod.keys();
    assert_eq!((found.len(), &found[0]), (OUR_LABELS + 3, &keys::owner("job")));
    assert!([keys::LABELLED, &keys::labelled("", "0000")].iter().all(|key| found.iter().any(|found| found == key)));
}

#[test]
fn owners_and_containers_are_bounded_and_the_controller_stays() {
    let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": "u", "controller": controller});
    let owners = [vec![owner(&"x".repeat(10_000), false); 100], vec![owner("job", true)]].concat();
    let containers = vec![json!({"name": "c"}); 1_000];
    let spec = json!({"containers": containers, "initContainers": containers});
    let pod: Pod = read(json!({"metadata": {"name": "p", "ownerReferences": owners}, "spec": spec}));
    let owners = pod.owner_references();
    assert_eq!((owners.len(), owners[0].name.as_str(), owners[1].name.len()), (OWNERS, "job", LONGEST_NAME));
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!((spec.containers.len(), spec.init_containers.as_ref().unwrap().len()), (CONTAINERS, CONTAINERS));
}

#[test]
fn a_lock_keeps_its_spec_its_status_and_its_finalizers() {
    let object = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "l", "uid": "u", "finalizers": ["a/b"], "annotations":
            {"redlock-operator.io/release": "7", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        "spec": {"claim": {"identity": "me"}}, "status": {"transitions": 3}});
    let lock: DistributedLock = read(object);
    assert_eq!((lock.finalizers().len(), lock.annotations().len()), (1, 1));
    assert_eq!(lock.status.as_ref().unwrap().transitions, 3);
    assert_eq!(lock.keys(), [keys::key("l")]);
}

#[test]
fn a_cached_job_keeps_the_fields_that_its_start_needs() {
    let job: Job = read(json!({"metadata": {"name": "j", "annotations": {"redlock-operator.io/lock": "a"}},
        "spec": {"suspend": true, "template": {"metadata": {"annotations": {"redlock-operator.io/token": "7", "x": "y"}},
            "spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}]}}}}));
    let spec = job.spec.as_ref().unwrap();
    assert_eq!(spec.suspend, Some(true));
    assert_eq!(spec.template.metadata.as_ref().unwrap().annotations.as_ref().unwrap().len(), 1);
    let pod = spec.template.spec.as_ref().unwrap();
    assert_eq!((pod.termination_grace_period_seconds, pod.containers.len()), (Some(5), 0));
}
