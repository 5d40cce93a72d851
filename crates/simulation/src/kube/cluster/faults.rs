//! Faults of a cluster.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part};
use super::machine::{Container, End, MachineId, MachineSpec};
use super::{Cluster, Task, by, nodes};

/// One fault, or one repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine is disconnected from the network, and continues to run.
    Cut(MachineId),
    Heal(MachineId),
    /// All its containers end at once, without a report.
    PowerOff(MachineId),
    PowerOn(MachineId),
    /// Its statuses are delayed further by this time.
    Slow(MachineId, Millis),
    /// Its kubelet restarts, and registers a node that is missing.
    RestartKubelet(MachineId),
    /// A user deletes the Node object, and the machine continues to run.
    DeleteNode(String),
    /// Another machine takes the name of a deleted Node object.
    ///
    /// The earlier machine is disconnected and continues to run. Equal machine IDs are possible only if other nodes have
    /// them too, or if the earlier machine is off. Otherwise nothing could distinguish the two.
    ReplaceNode {
        node: String,
        same_ids: bool,
    },
    /// The provider ends the machine, and then its Node object is deleted.
    EndMachine(MachineId),
    /// A container ends with this code.
    Exit {
        container: String,
        code: i64,
    },
    /// Its kubelet cannot locate a running container, and starts another one.
    Lose {
        container: String,
        named: bool,
    },
    /// A kubelet reports that a pod has failed without statuses of its containers, which end later.
    FailWithoutStatuses {
        namespace: String,
        pod: String,
    },
    /// A pod is deleted by force: its object is gone, and its containers can continue to run.
    ForceDelete {
        namespace: String,
        pod: String,
    },
    /// The readiness of a pod, as its probe reports it.
    Ready {
        uid: String,
        ready: bool,
    },
    Cordon(String, bool),
    /// A user marks a node as shut down, or removes the mark.
    OutOfService(String, bool),
}

impl Cluster {
    pub fn machines(&self) -> impl Iterator<Item = (MachineId, &MachineSpec)> {
        self.machines.iter().map(|(id, machine)| (*id, &machine.spec))
    }

    /// Whether a machine is on, and whether it is connected.
    pub fn machine_state(&self, id: MachineId) -> (bool, bool) {
        self.machines.get(&id).map_or((false, false), |machine| (machine.powered, machine.connected))
    }

    /// Applies a fault or a repair now.
    pub fn inflict(&mut self, fault: &Fault, api: &mut ApiServer, now: Millis) {
        match fault {
            Fault::Cut(id) => self.connect(*id, false, now),
            Fault::Heal(id) => self.connect(*id, true, now),
            Fault::PowerOff(id) => self.power_off(*id, now),
            Fault::PowerOn(id) => self.power_on(*id, now),
            Fault::Slow(id, by) => {
                if let Some(machine) = self.machines.get_mut(id) {
                    machine.slow = *by;
                }
            }
            Fault::RestartKubelet(id) => self.restart_kubelet(*id, api, now),
            Fault::DeleteNode(node) => delete_node(node, api, now),
            Fault::ReplaceNode { node, same_ids } => self.replace_node(node, *same_ids, api, now),
            Fault::EndMachine(id) => {
                self.power_off(*id, now);
                if let Some(machine) = self.machines.get(id) {
                    delete_node(&machine.spec.node.clone(), api, now);
                }
            }
            Fault::Exit { container, code } => {
                if let Some(running) = self.truth.get(container).cloned() {
                    self.exit(running.machine, &running.pod_uid, container, *code, now);
                }
            }
            Fault::Lose { container, named } => self.lose(container, *named, now),
            Fault::FailWithoutStatuses { namespace, pod } => self.fail_without_statuses(namespace, pod, api, now),
            Fault::ForceDelete { namespace, pod } => {
                let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
                let _ = api.delete(Kind::Pod, (namespace, pod), &options, by(now, "kubectl"));
            }
            Fault::Ready { uid, ready } => self.set_ready(uid, *ready, now),
            Fault::Cordon(node, on) => {
                let edit = |value: &mut Value| cordon(value, *on, now);
                let _ = api.edit(Kind::Node, ("", node), Part::Main, by(now, "kubectl"), edit);
            }
            Fault::OutOfService(node, on) => out_of_service(node, *on, api, now),
        }
    }

    /// Sets the readiness of a pod.
    ///
    /// The kubelet reports it later.
    pub fn set_ready(&mut self, uid: &str, ready: bool, now: Millis) {
        let holds = |machine: &super::Machine| machine.pods.get(uid).is_some_and(|local| local.ready != ready);
        let ids: Vec<_> = self.machines.iter().filter(|(_, machine)| holds(machine)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(local) = self.local(id, uid) {
                local.ready = ready;
            }
            self.notice(id, now);
        }
    }

    fn connect(&mut self, id: MachineId, connected: bool, now: Millis) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let was = std::mem::replace(&mut machine.connected, connected);
        self.truth.cut.insert(id, !connected);
        if connected && !was {
            self.reconnect(id, now);
        }
    }

    fn power_off(&mut self, id: MachineId, now: Millis) {
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.powered = false;
        for local in machine.pods.values_mut() {
            for container in local.containers.iter_mut().filter(|container| container.runs()) {
                if let Some(instance) = &mut container.current {
                    instance.end = Some(End { at: now, code: 255, reason: "Unknown", named: true });
                }
            }
        }
        let here: Vec<_> = self.truth.running().filter(|running| running.machine == id).cloned().collect();
        for running in here {
            self.end_lost(&running.container, now);
        }
    }

    /// Turns a machine on.
    ///
    /// The kubelet reports that its earlier containers have ended, and starts them again.
    fn power_on(&mut self, id: MachineId, now: Millis) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| !machine.powered) else { return };
        machine.powered = true;
        let mut starts = Vec::new();
        for (uid, local) in &machine.pods {
            for (index, container) in local.containers.iter().enumerate() {
                let begins = match container.ended() {
                    Some(end) => local.restarts(container, end.code),
                    None => !local.ending && local.startable().contains(&index),
                };
                if begins {
                    starts.push((uid.clone(), index));
                }
            }
        }
        for (uid, index) in starts {
            self.soon(now, "boot", &uid, self.settings.start, Task::Start(id, uid.clone(), index));
        }
        self.reconnect(id, now);
    }

    fn restart_kubelet(&mut self, id: MachineId, api: &mut ApiServer, now: Millis) {
        let Some(machine) = self.machines.get(&id).filter(|machine| machine.connected && machine.powered) else {
            return;
        };
        if !self.outage && !self.is_replaced(id) {
            nodes::register(&machine.spec, api, now);
        }
        self.reconnect(id, now);
    }

    fn replace_node(&mut self, node: &str, same_ids: bool, api: &mut ApiServer, now: Millis) {
        let before =
            self.machines.values().rfind(|machine| machine.spec.node == node).map(|machine| machine.spec.clone());
        let Some(mut spec) = before else { return };
        delete_node(node, api, now);
        for id in self.machines_of(node) {
            self.connect(id, false, now);
        }
        if !same_ids {
            let count = self.machines.len();
            spec.machine_id = format!("machine-{node}-{count}");
            spec.system_uuid = format!("uuid-{node}-{count}");
        }
        self.add_machine(spec, api, now);
    }

    fn lose(&mut self, container_id: &str, named: bool, now: Millis) {
        let Some(running) = self.truth.running.get_mut(container_id) else { return };
        running.lost = true;
        let running = running.clone();
        let is_it = |container: &&mut Container| container.current.as_ref().is_some_and(|is| is.id == container_id);
        let Some(local) = self.local(running.machine, &running.pod_uid) else { return };
        let Some(container) = local.containers.iter_mut().find(is_it) else { return };
        if let Some(instance) = &mut container.current {
            instance.end = Some(End { at: now, code: 137, reason: "ContainerStatusUnknown", named });
        }
        let found = container.clone();
        let index = local.containers.iter().position(|container| container.name == found.name);
        if let Some(index) = index.filter(|_| local.restarts(&found, 137)) {
            let task = Task::Start(running.machine, running.pod_uid.clone(), index);
            self.soon(now, "restart", &running.pod_uid, self.settings.restart, task);
        }
        self.soon(now, "lost", container_id, self.settings.lost, Task::ExitLost(container_id.to_owned()));
        self.notice(running.machine, now);
    }

    fn fail_without_statuses(&mut self, namespace: &str, name: &str, api: &mut ApiServer, now: Millis) {
        let Some(pod) = api.get(Kind::Pod, namespace, name) else { return };
        let holds =
            |machine: &super::Machine| machine.connected && machine.powered && machine.pods.contains_key(pod.uid());
        let Some(id) = self.machines.iter().find(|(_, machine)| holds(machine)).map(|(id, _)| *id) else { return };
        let _ = api.edit(Kind::Pod, (namespace, name), Part::Status, by(now, "kubelet"), |value| {
            value["status"]["phase"] = json!("Failed");
            value["status"]["reason"] = json!("Evicted");
            value["status"].as_object_mut().map(|status| status.remove("containerStatuses"));
        });
        self.terminate(id, pod.uid(), 30_000, now);
    }
}

fn delete_node(node: &str, api: &mut ApiServer, now: Millis) {
    let _ = api.delete(Kind::Node, ("", node), &DeleteOptions::default(), by(now, "kubectl"));
}

fn out_of_service(node: &str, on: bool, api: &mut ApiServer, now: Millis) {
    const KEY: &str = "node.kubernetes.io/out-of-service";
    let _ = api.edit(Kind::Node, ("", node), Part::Main, by(now, "kubectl"), |value| {
        let mut taints: Vec<Value> = value["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != KEY);
        if on {
            taints.push(json!({"key": KEY, "value": "nodeshutdown", "effect": "NoExecute"}));
        }
        value["spec"]["taints"] = json!(taints);
    });
}

const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Cordons a node with the taint of the node controller, or removes both.
fn cordon(node: &mut Value, on: bool, now: Millis) {
    let others = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<Value> = others.filter(|taint| taint["key"] != UNSCHEDULABLE).cloned().collect();
    if on {
        let added = super::super::api::seconds(now);
        taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": added}));
        node["spec"]["unschedulable"] = json!(true);
    } else if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("unschedulable");
    }
    if taints.is_empty() {
        node["spec"].as_object_mut().map(|spec| spec.remove("taints"));
    } else {
        node["spec"]["taints"] = json!(taints);
    }
}
