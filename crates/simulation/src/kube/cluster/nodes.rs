//! Nodes and their controllers.
//!
//! Kubelets register and renew nodes. The node controller marks silent ones. PodGC deletes the pods of nodes that are
//! gone.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Shared, seconds};
use super::machine::{Machine, MachineId, MachineSpec};
use super::{Cluster, Place, Task, by, place};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The condition Ready of a node.
pub(super) fn ready(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

fn is_silent(node: &Value) -> bool {
    ready(node).is_some_and(|ready| ready["status"] == "Unknown")
}

fn set_ready(node: &mut Value, status: &str, reason: &str, now: Millis) {
    let changed = ready(node).is_none_or(|ready| ready["status"] != status);
    if changed {
        let condition =
            json!({"type": "Ready", "status": status, "reason": reason, "lastTransitionTime": seconds(now)});
        let others = node["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions: Vec<_> = others.filter(|condition| condition["type"] != "Ready").cloned().collect();
        conditions.push(condition);
        node["status"]["conditions"] = json!(conditions);
    }
}

/// Adds or removes the taints of a silent node.
fn set_taints(node: &mut Value, silent: bool) {
    let others = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<_> = others.filter(|taint| taint["key"] != UNREACHABLE).cloned().collect();
    if silent {
        taints.extend(["NoSchedule", "NoExecute"].map(|effect| json!({"key": UNREACHABLE, "effect": effect})));
    }
    if taints.is_empty() {
        node["spec"].as_object_mut().map(|spec| spec.remove("taints"));
    } else {
        node["spec"]["taints"] = json!(taints);
    }
}

impl Cluster {
    /// Adds a machine whose kubelet registers its node.
    pub(super) fn add_machine(&mut self, spec: MachineSpec, api: &mut ApiServer, now: Millis) -> MachineId {
        let id = MachineId(self.machines.keys().last().map_or(0, |last| last.0 + 1));
        register(&spec, api, now);
        let pods = std::collections::BTreeMap::new();
        let machine = Machine { spec, connected: true, powered: true, last_heartbeat: now, pods, slow: 0 };
        self.machines.insert(id, machine);
        let clock = Millis::try_from(self.delays.number("clock", u64::from(id.0)) % 2_001).unwrap_or_default() - 1_000;
        self.truth.clocks.insert(id, clock);
        self.reconnect(id, now);
        id
    }

    /// Schedules the heartbeat of a connected machine.
    ///
    /// With it the kubelet renews the node, receives all pods, and reports them.
    pub(super) fn reconnect(&mut self, id: MachineId, now: Millis) {
        self.soon(now, "beat", &id.0.to_string(), (50, self.settings.silence / 4), Task::Beat(id));
    }

    /// The heartbeat of a connected kubelet.
    pub(super) fn beat(&mut self, id: MachineId, api: &mut ApiServer, now: Millis) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.connected && machine.powered) else {
            return;
        };
        machine.last_heartbeat = now;
        let node = machine.spec.node.clone();
        let mut places: Vec<Place> =
            machine.pods.values().map(|local| place(local.pod.namespace(), local.pod.name())).collect();
        for local in machine.pods.values_mut() {
            local.made.1 = Value::Null;
        }
        if api.get(Kind::Node, "", &node).is_some_and(|found| is_of(&found, &self.machines, id)) {
            let _ = api.edit(Kind::Node, ("", &node), Part::Whole, by(now, "kubelet"), |value| {
                set_ready(value, "True", "KubeletReady", now);
            });
        }
        let bound = api.objects(Kind::Pod).filter(|pod| pod.value["spec"]["nodeName"] == node.as_str());
        places.extend(bound.map(|pod| place(pod.namespace(), pod.name())));
        for at in places {
            self.soon(now, "hear", &at.1, self.settings.receive, Task::ReceivePod(id, at.clone()));
        }
        self.notice(id, now);
    }

    /// The node controller.
    ///
    /// A silent node becomes Unknown. Later its pods are deleted, if most other nodes report.
    pub(super) fn monitor(&mut self, api: &mut ApiServer, now: Millis) {
        self.after(now, self.settings.monitor, Task::Monitor);
        let nodes: Vec<Shared> = api.objects(Kind::Node).cloned().collect();
        for node in &nodes {
            let mine = self.machines.iter_mut().filter(|(_, machine)| machine.spec.node == node.name());
            let mine = mine.filter(|(_, machine)| is_like(node, &machine.spec));
            let mut last_heartbeat = None;
            for (_, machine) in mine {
                if machine.connected && machine.powered && now - machine.last_heartbeat < self.settings.silence {
                    machine.last_heartbeat = now;
                }
                last_heartbeat = last_heartbeat.max(Some(machine.last_heartbeat));
            }
            let silent = last_heartbeat.is_none_or(|last_heartbeat| now - last_heartbeat >= self.settings.silence);
            let (was, name) = (is_silent(&node.value), node.name());
            if silent && !was {
                let _ = api.edit(Kind::Node, ("", name), Part::Whole, by(now, "node-controller"), |value| {
                    set_ready(value, "Unknown", "NodeStatusUnknown", now);
                    set_taints(value, true);
                });
                self.pods_of_silent(name, api, now);
            } else if !is_silent(&node.value) && node.value["spec"]["taints"].to_string().contains(UNREACHABLE) {
                let _ = api.edit(Kind::Node, ("", name), Part::Whole, by(now, "node-controller"), |value| {
                    set_taints(value, false)
                });
            }
        }
    }

    /// Marks these pods as not ready, and schedules their deletion.
    fn pods_of_silent(&mut self, node: &str, api: &mut ApiServer, now: Millis) {
        let pods: Vec<Shared> =
            api.objects(Kind::Pod).filter(|pod| pod.value["spec"]["nodeName"] == node).cloned().collect();
        for pod in pods {
            let here = (pod.namespace(), pod.name());
            let _ = api.edit(Kind::Pod, here, Part::Status, by(now, "node-controller"), |value| {
                for condition in value["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    if condition["type"] == "Ready" && condition["status"] == "True" {
                        condition["status"] = json!("False");
                        condition["lastTransitionTime"] = json!(seconds(now));
                    }
                }
            });
            self.after(now, self.settings.toleration, Task::Evict(place(here.0, here.1), pod.uid().to_owned()));
        }
    }

    /// Deletes a pod of a silent node, if most nodes report.
    ///
    /// Otherwise the controller itself is likely disconnected.
    pub(super) fn evict(&mut self, at: &Place, uid: &str, api: &mut ApiServer, now: Millis) {
        let Some(pod) = api.get(Kind::Pod, &at.0, &at.1).filter(|pod| pod.uid() == uid && !pod.is_deleting()) else {
            return;
        };
        let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
        let all = api.objects(Kind::Node).count();
        let silent = api.objects(Kind::Node).filter(|node| is_silent(&node.value)).count();
        if !api.get(Kind::Node, "", node).is_some_and(|node| is_silent(&node.value)) {
            return;
        }
        if silent * 2 > all {
            return self.after(now, self.settings.monitor, Task::Evict(at.clone(), uid.to_owned()));
        }
        let options = DeleteOptions { uid: Some(uid.to_owned()), ..DeleteOptions::default() };
        let _ = api.delete(Kind::Pod, (&at.0, &at.1), &options, by(now, "taint-eviction"));
    }

    /// PodGC: fails and deletes pods whose node has been missing for a while.
    ///
    /// It does the same for pods that are being deleted on nodes with the out-of-service taint.
    pub(super) fn collect_pods(&mut self, api: &mut ApiServer, now: Millis) {
        self.after(now, self.settings.collect_pods, Task::CollectPods);
        let pods: Vec<Shared> = api.objects(Kind::Pod).cloned().collect();
        let missing = |pod: &Shared| {
            let node = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
            (!node.is_empty() && api.get(Kind::Node, "", node).is_none()).then(|| node.to_owned())
        };
        let gone: Vec<(Shared, String)> = pods.iter().filter_map(|pod| Some((pod.clone(), missing(pod)?))).collect();
        self.missed.retain(|node, _| gone.iter().any(|(_, missing)| missing == node));
        for (pod, node) in gone {
            let since = *self.missed.entry(node).or_insert(now);
            if now - since >= self.settings.quarantine {
                self.fail_and_delete(&pod, api, now);
            }
        }
        let out = |pod: &&Shared| {
            let node = pod.value["spec"]["nodeName"].as_str().and_then(|node| api.get(Kind::Node, "", node));
            node.is_some_and(|node| {
                let taints = node.value["spec"]["taints"].to_string();
                taints.contains("node.kubernetes.io/out-of-service")
                    && !ready(&node.value).is_some_and(|ready| ready["status"] == "True")
            })
        };
        let out: Vec<_> = pods.iter().filter(|pod| pod.is_deleting()).filter(out).cloned().collect();
        for pod in out {
            self.fail_and_delete(&pod, api, now);
        }
    }

    /// Sets the phase Failed and deletes a pod.
    ///
    /// The container statuses do not change.
    fn fail_and_delete(&mut self, pod: &Shared, api: &mut ApiServer, now: Millis) {
        let here = (pod.namespace(), pod.name());
        let _ = api.edit(Kind::Pod, here, Part::Status, by(now, "pod-garbage-collector"), |value| {
            if !matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                value["status"]["phase"] = json!("Failed");
            }
        });
        let _ = api.delete(Kind::Pod, here, &DeleteOptions::now(pod.uid()), by(now, "pod-garbage-collector"));
    }
}

pub(super) fn register(spec: &MachineSpec, api: &mut ApiServer, now: Millis) {
    let mut node = json!({
        "metadata": {"name": spec.node, "labels": {"kubernetes.io/hostname": spec.node}},
        "spec": {"providerID": spec.provider_id},
        "status": {"nodeInfo": {
            "machineID": spec.machine_id, "systemUUID": spec.system_uuid, "bootID": "boot", "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2", "kernelVersion": "6", "kubeProxyVersion": "", "kubeletVersion": "v1.33.0",
            "operatingSystem": "linux", "osImage": "linux",
        }},
    });
    if spec.provider_id.is_none() {
        node["spec"] = json!({});
    }
    set_ready(&mut node, "True", "KubeletReady", now);
    if api.create(Kind::Node, "", node.clone(), by(now, "kubelet")).is_err() {
        // If the Node exists, the kubelet of this machine takes the object over.
        let _ = api.edit(Kind::Node, ("", &spec.node), Part::Status, by(now, "kubelet"), |value| {
            value["status"]["nodeInfo"] = node["status"]["nodeInfo"].clone();
            set_ready(value, "True", "KubeletReady", now);
        });
    }
}

/// Whether a Node object describes this machine.
fn is_like(node: &Shared, spec: &MachineSpec) -> bool {
    let info = &node.value["status"]["nodeInfo"];
    info["machineID"] == spec.machine_id.as_str() && info["systemUUID"] == spec.system_uuid.as_str()
}

fn is_of(node: &Shared, machines: &std::collections::BTreeMap<MachineId, Machine>, id: MachineId) -> bool {
    machines.get(&id).is_some_and(|machine| is_like(node, &machine.spec))
}
