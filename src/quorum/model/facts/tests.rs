use serde_json::{Value, json};

use super::*;
use crate::fence::predecessor::{Machine, NodeIdentity};
use crate::time::Monotonic;

fn pod(status: Value) -> Pod {
    let status = json!({"podIP": "10.0.0.7", "containerStatuses": [
        {"name": "proxy", "containerID": "containerd://proxy", "image": "", "imageID": "", "ready": true, "restartCount": 0,
         "state": {"terminated": {"exitCode": 0}}},
        status,
    ]});
    let spec = json!({"containers": [], "nodeName": "node-c"});
    serde_json::from_value(json!({"metadata": {"uid": "pod-1"}, "spec": spec, "status": status})).unwrap()
}

fn redis(id: &str, state: Value, last: Value) -> Value {
    json!({"name": "redis", "containerID": id, "image": "", "imageID": "", "ready": true, "restartCount": 1,
           "state": state, "lastState": last})
}

fn terminated(id: &str) -> Value {
    json!({"terminated": {"exitCode": 1, "containerID": id}})
}

fn machine() -> NodeIdentity {
    let machine = Machine { system_uuid: "m".into(), machine_id: "m".into() };
    NodeIdentity { uid: "n1".into(), machine: Some(machine) }
}

/// The history of these nodes, each with its name, its UID and its IDs.
fn nodes(of: &[(&str, &str, &str)]) -> Nodes {
    let mut nodes = Nodes::default();
    for (name, uid, id) in of {
        let info = json!({"systemUUID": id, "machineID": id, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "operatingSystem": "", "osImage": ""});
        let node = json!({"metadata": {"name": name, "uid": uid}, "status": {"nodeInfo": info}});
        nodes.observe(&serde_json::from_value(node).unwrap(), Monotonic::default());
    }
    nodes
}

fn node_c() -> Nodes {
    nodes(&[("node-c", "n1", "m")])
}

/// The place of process `run_id` in pod-1.
fn located(run_id: &str, pods: [Option<&Pod>; 2], container: Option<&str>, record: &Record) -> Process {
    let whereabouts = Whereabouts { run_id: &RunId::new(run_id), pod_uid: "pod-1", pods, container, record };
    process(&whereabouts, &node_c()).0
}

/// Whether pod-1 shows the container of process `r`.
fn report_of(pod: &Pod, container: Option<&str>, record: &Record) -> ContainerReport {
    let whereabouts =
        Whereabouts { run_id: &RunId::new("r"), pod_uid: "pod-1", pods: [Some(pod), None], container, record };
    process(&whereabouts, &node_c()).1
}

fn recorded(process: Process) -> Record {
    Record { run_id: Some(process.run_id.clone()), process: Some(process), ..Record::default() }
}

#[test]
fn a_process_without_its_pod_keeps_its_recorded_node() {
    let running = pod(redis("a", json!({"running": {}}), json!({})));
    let whole = located("r", [Some(&running), None], Some("a"), &Record::default());
    assert_eq!(
        (whole.container_id.as_deref(), whole.node_name.as_deref(), &whole.node),
        (Some("a"), Some("node-c"), &Some(machine()))
    );
    assert_eq!(located("r", [None, None], None, &recorded(whole.clone())), whole);
    let gone = located("r", [None, Some(&running)], None, &Record::default());
    assert_eq!((gone.container_id, gone.node_name.as_deref()), (None, Some("node-c")));
    // The place of another process is not kept.
    assert_eq!(located("s", [None, None], None, &recorded(whole.clone())).node_name, None);
    // Another machine can have the name of its node now.
    let of = Whereabouts {
        run_id: &RunId::new("r"),
        pod_uid: "pod-1",
        pods: [Some(&running), None],
        container: Some("a"),
        record: &recorded(whole.clone()),
    };
    assert_eq!(process(&of, &nodes(&[("node-c", "n2", "")])).0.node, Some(machine()));
    // Several nodes have its IDs, so only the UID remains.
    let node = NodeIdentity { machine: None, ..machine() };
    assert_eq!(process(&of, &nodes(&[("a", "n3", "m"), ("b", "n4", "m")])).0.node, Some(node));
}

#[test]
fn a_container_of_an_earlier_process_is_never_that_of_the_next() {
    let stale = pod(redis("a", json!({"running": {}}), json!({})));
    let pods = [Some(&stale), None];
    let first = located("r", pods, Some("a"), &Record::default());
    // The kubelet has not reported the end of r yet, and s answers.
    let record = recorded(first.clone());
    assert_eq!(located("s", pods, Some("a"), &record).container_id, None);
    let before = Record { predecessor: Some(first), ..Record::default() };
    assert_eq!(located("s", pods, Some("a"), &before).container_id, None);
    assert_eq!(located("s", pods, Some("b"), &before).container_id.as_deref(), Some("b"));
    // The container that the pod showed before the last answer of the process corrects a record from a lagging
    // status.
    let early = recorded(located("s", pods, Some("b"), &before));
    let restarted = pod(redis("c", json!({"running": {}}), terminated("b")));
    assert_eq!(located("s", [Some(&restarted), None], Some("c"), &early).container_id.as_deref(), Some("c"));
    assert_eq!(located("s", pods, None, &early).container_id.as_deref(), Some("b"));
}

#[test]
fn a_lost_container_is_not_confused_with_the_next_container() {
    let lost = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
    let next = pod(redis("b", json!({"running": {}}), lost));
    let later = pod(redis("c", json!({"running": {}}), terminated("b")));
    let first =
        located("r", [Some(&pod(redis("a", json!({"running": {}}), json!({})))), None], Some("a"), &Record::default());
    let record = recorded(first.clone());
    // It still answers at the address of the pod. The kubelet restarts b repeatedly, because the port is in use.
    assert_eq!(located("r", [Some(&next), None], Some("b"), &record).container_id.as_deref(), Some("a"));
    assert_eq!(located("r", [Some(&later), None], Some("c"), &record).container_id.as_deref(), Some("a"));
    // A new process can be in the lost container, except if that was the container of another process.
    assert_eq!(located("s", [Some(&next), None], Some("b"), &Record::default()).container_id, None);
    let before = Record { predecessor: Some(first), ..Record::default() };
    assert_eq!(located("s", [Some(&next), None], Some("b"), &before).container_id.as_deref(), Some("b"));
}

#[test]
fn a_status_reports_a_container_now_later_or_never() {
    let running = |id: &str, last: Value| pod(redis(id, json!({"running": {}}), last));
    let (a, b) = (running("a", json!({})), running("b", terminated("a")));
    let in_a = recorded(located("r", [Some(&a), None], Some("a"), &Record::default()));
    assert_eq!(report_of(&a, Some("a"), &in_a), ContainerReport::Running);
    // The request was sent before the pod showed the next container.
    assert_eq!(report_of(&b, None, &in_a), ContainerReport::NotYet);
    assert_eq!(report_of(&b, Some("b"), &in_a), ContainerReport::Running);
    assert_eq!(report_of(&pod(redis("a", terminated("a"), json!({}))), None, &in_a), ContainerReport::NotYet);
    // The container restarted twice between two statuses.
    assert_eq!(report_of(&running("c", terminated("b")), Some("c"), &in_a), ContainerReport::Never);
    // The runtime lost the earlier container.
    let lost = json!({"terminated": {"exitCode": 137, "containerID": "a", "reason": "ContainerStatusUnknown"}});
    assert_eq!(report_of(&running("b", lost.clone()), Some("b"), &in_a), ContainerReport::Never);
    assert_eq!(report_of(&running("b", lost), Some("b"), &Record::default()), ContainerReport::Never);
    // The pod still shows the container of the previous process.
    let of_another =
        Record { predecessor: Some(Process { run_id: RunId::new("q"), ..in_a.process.unwrap() }), ..Record::default() };
    assert_eq!(report_of(&a, Some("a"), &of_another), ContainerReport::NotYet);
}

#[test]
fn only_the_redis_container_decides_whether_a_member_runs() {
    let running = pod(redis("b", json!({"running": {}}), terminated("a")));
    assert!(runs(&running));
    assert_eq!(running_container(&running), Some("b"));
    let ended = pod(redis("b", terminated("b"), json!({})));
    assert!(!runs(&ended));
    assert_eq!(running_container(&ended), None, "an ended container is not the running one");
    assert_eq!((pod_ip(&ended).as_deref(), node_name(&ended).as_deref()), (Some("10.0.0.7"), Some("node-c")));
    assert_eq!(running_container(&Pod::default()), None);
    assert_eq!(running_container(&pod(redis("", json!({"running": {}}), json!({})))), None);
}
