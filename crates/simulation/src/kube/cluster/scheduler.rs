//! The scheduler: it places each pod on a node, and members of one quorum on different nodes.

use redlock_api::QUORUM_LABEL;
use serde_json::json;

use super::super::Millis;
use super::super::api::{ApiServer, Kind, Part, Shared, seconds};
use super::super::chance::part;
use super::{Cluster, Place, Task, by, nodes};

impl Cluster {
    pub(super) fn schedule(&mut self, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(pod) = api.get(Kind::Pod, &at.0, &at.1) else { return };
        if pod.is_deleting() || pod.value["spec"]["nodeName"].is_string() {
            return;
        }
        let Some(node) = choose(&pod, api) else {
            return self.soon(now, "unschedulable", pod.uid(), self.settings.retry, Task::Schedule(at.clone()));
        };
        let _ = api.edit(Kind::Pod, (&at.0, &at.1), Part::Whole, by(now, "kube-scheduler"), |value| {
            value["spec"]["nodeName"] = json!(node);
            value["status"]["conditions"] =
                json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": seconds(now)}]);
        });
    }
}

fn choose(pod: &Shared, api: &ApiServer) -> Option<String> {
    let usable = |node: &&Shared| {
        let spec = &node.value["spec"];
        let is_ready = nodes::ready(&node.value).is_some_and(|ready| ready["status"] == "True");
        is_ready && spec["unschedulable"] != json!(true) && spec["taints"].as_array().is_none_or(Vec::is_empty)
    };
    let alike = |other: &Shared| {
        let same = |label: &str| pod.label(label).is_some() && other.label(label) == pod.label(label);
        other.namespace() == pod.namespace() && (same(QUORUM_LABEL) || same("app"))
    };
    let on = |name: &str, all: bool| {
        let here = api.objects(Kind::Pod).filter(|other| other.value["spec"]["nodeName"] == name);
        here.filter(|other| all || alike(other)).count()
    };
    let cost = |node: &&Shared| (on(node.name(), false), on(node.name(), true), part(node.name()) ^ part(pod.uid()));
    api.objects(Kind::Node).filter(usable).min_by_key(cost).map(|node| node.name().to_owned())
}
