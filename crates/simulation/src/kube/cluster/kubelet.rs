//! Kubelets: they start and end containers, and report them with a delay.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Shared, merge};
use super::super::chance::part;
use super::machine::{Container, End, Instance, LocalPod, MachineId};
use super::truth::{Happening, Running};
use super::{Cluster, Place, Task, by, place, report, volumes};

/// Annotation of a pod: its containers exit after this number of milliseconds.
pub(super) const RUN_MILLIS: &str = "simulation/run-millis";
/// Annotation of a pod: the exit code of its containers.
pub(super) const EXIT_CODE: &str = "simulation/exit-code";

impl Cluster {
    /// A connected kubelet handles a pod of its node.
    pub(super) fn receive_pod(&mut self, id: MachineId, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(machine) = self.machines.get(&id).filter(|machine| machine.connected && machine.powered) else {
            return;
        };
        let node = machine.spec.node.clone();
        if self.is_replaced(id) {
            return self.terminate_all(id, now);
        }
        let Some(machine) = self.machines.get(&id) else { return };
        let found = api.get(Kind::Pod, &at.0, &at.1).filter(|pod| pod.value["spec"]["nodeName"] == node);
        // Other pods of this name were deleted by force.
        let others: Vec<String> = machine
            .pods
            .iter()
            .filter(|(uid, local)| {
                let same = (local.pod.namespace(), local.pod.name()) == (at.0.as_str(), at.1.as_str());
                same && found.as_ref().is_none_or(|pod| pod.uid() != uid.as_str())
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in others {
            self.terminate(id, &uid, 2_000, now);
        }
        let Some(pod) = found else { return };
        let has_ended = matches!(pod.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let is_known = self.machines.get(&id).is_some_and(|machine| machine.pods.contains_key(pod.uid()));
        match (is_known, pod.is_deleting() || has_ended) {
            (false, false) => self.admit(id, pod, now),
            (false, true) if pod.is_deleting() => {
                // The pod is deleted before it has started. Its Job removes the finalizer when the phase is final.
                if !has_ended {
                    let _ = api.edit(Kind::Pod, (&at.0, &at.1), Part::Status, by(now, "kubelet"), |value| {
                        value["status"]["phase"] = json!("Failed");
                    });
                }
                let _ = api.delete(Kind::Pod, (&at.0, &at.1), &DeleteOptions::now(pod.uid()), by(now, "kubelet"));
            }
            (false, true) => {}
            (true, ends) => {
                let grace = pod.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
                let grace = grace.or(pod.value["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
                let uid = pod.uid().to_owned();
                if let Some(local) = self.local(id, &uid) {
                    local.pod = pod;
                }
                if ends {
                    self.terminate(id, &uid, grace * 1_000, now);
                }
            }
        }
    }

    pub(super) fn local(&mut self, id: MachineId, uid: &str) -> Option<&mut LocalPod> {
        self.machines.get_mut(&id)?.pods.get_mut(uid)
    }

    fn admit(&mut self, id: MachineId, pod: Shared, now: Millis) {
        let ip = self.free_ip(id);
        let uid = pod.uid().to_owned();
        let names = |field: &str| -> Vec<String> {
            let list = pod.value["spec"][field].as_array().into_iter().flatten();
            list.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
        };
        let container =
            |init: bool| move |name: String| Container { name, init, restarts: 0, current: None, last: None };
        let init = names("initContainers").into_iter().map(container(true));
        let mut containers: Vec<_> = init.chain(names("containers").into_iter().map(container(false))).collect();
        for container in &mut containers {
            adopt(container, &pod.value, now);
        }
        let ready = pod.annotation("simulation/ready") != Some("false");
        let local = LocalPod {
            pod,
            ip,
            containers,
            files: None,
            ending: false,
            ready,
            turned: None,
            started: now,
            outbox: BTreeMap::new(),
            made: (0, Value::Null),
            arrived: 0,
        };
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.pods.insert(uid.clone(), local);
        }
        self.start_next(id, &uid, now);
        self.notice(id, now);
    }

    /// The lowest address that no pod of this machine has.
    ///
    /// Addresses are reused.
    fn free_ip(&self, id: MachineId) -> String {
        let taken: Vec<&str> = self
            .machines
            .get(&id)
            .into_iter()
            .flat_map(|machine| machine.pods.values())
            .map(|pod| pod.ip.as_str())
            .collect();
        let taken = |ip: &String| taken.contains(&ip.as_str()) || self.truth.at(ip).next().is_some();
        let ips = (2_u32..).map(|number| format!("10.{}.{}.{}", 64 + id.0, number / 250, number % 250));
        ips.into_iter().find(|ip| !taken(ip)).unwrap_or_default()
    }

    fn start_next(&mut self, id: MachineId, uid: &str, now: Millis) {
        let Some(local) = self.local(id, uid) else { return };
        for index in local.startable() {
            self.soon(now, "start", uid, self.settings.start, Task::Start(id, uid.to_owned(), index));
        }
    }

    /// Starts a container, unless its pod is ending.
    pub(super) fn start(&mut self, id: MachineId, uid: &str, index: usize, api: &ApiServer, now: Millis) {
        let outage = self.outage;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.powered) else { return };
        let reaches = machine.connected && !outage;
        let node = machine.spec.node.clone();
        let Some(local) = machine.pods.get_mut(uid).filter(|local| !local.ending) else { return };
        if local.containers.get(index).is_none_or(Container::runs) {
            return;
        }
        // A kubelet updates volumes at its own pace. Here it does so when a container starts and the API server is
        // reachable.
        let newer = reaches.then(|| volumes::files(api, local.pod.namespace(), local.spec())).flatten();
        if let Some(files) = newer {
            local.files = Some(files);
        }
        let Some(files) = local.files.clone() else {
            return self.soon(now, "mount", uid, self.settings.retry, Task::Start(id, uid.to_owned(), index));
        };
        let (pod, ip) = (local.pod.clone(), local.ip.clone());
        let container = &mut local.containers[index];
        let count = u64::from(container.restarts) << 8 | index as u64;
        if let Some(before) = container.current.take() {
            container.last = Some(before);
        }
        container.restarts += u32::from(container.last.is_some());
        let (name, restarted) = (container.name.clone(), container.restarts > 0);
        let number = self.delays.number("container", part(uid) ^ count ^ u64::from(id.0));
        let container_id = format!("containerd://{number:016x}{:016x}", super::super::mix(number));
        if let Some(local) = self.local(id, uid) {
            local.containers[index].current = Some(Instance { id: container_id.clone(), started: now, end: None });
        }
        let running = Running {
            container: container_id.clone(),
            name,
            machine: id,
            node,
            namespace: pod.namespace().to_owned(),
            pod: pod.name().to_owned(),
            pod_uid: uid.to_owned(),
            ip,
            since: now,
            restarted,
            lost: false,
        };
        self.truth.running.insert(container_id.clone(), running.clone());
        if let Some(run) = pod.annotation(RUN_MILLIS).and_then(|text| text.parse::<Millis>().ok()) {
            let code = pod.annotation(EXIT_CODE).and_then(|text| text.parse().ok()).unwrap_or(0);
            self.after(now, run, Task::Exit(id, uid.to_owned(), container_id, code));
        }
        self.happenings.push(Happening::Started { running, pod, files });
        self.notice(id, now);
    }

    /// A container ends.
    ///
    /// If its kubelet has located it, it can start again.
    pub(super) fn exit(&mut self, id: MachineId, uid: &str, container_id: &str, code: i64, now: Millis) {
        let restart = self.settings.restart;
        let Some(local) = self.local(id, uid) else { return self.end_lost(container_id, now) };
        let is_it = |container: &Container| {
            container.current.as_ref().is_some_and(|is| is.id == container_id && is.end.is_none())
        };
        let Some(index) = local.containers.iter().position(is_it) else {
            return self.end_lost(container_id, now);
        };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let container = &mut local.containers[index];
        if let Some(instance) = &mut container.current {
            instance.end = Some(End { at: now, code, reason, named: true });
        }
        let container = local.containers[index].clone();
        let again = local.restarts(&container, code);
        self.end_lost(container_id, now);
        if again {
            let restart = (restart.0 << container.restarts.min(6), restart.1 << container.restarts.min(6));
            self.soon(now, "restart", uid, restart, Task::Start(id, uid.to_owned(), index));
        } else if container.init {
            self.start_next(id, uid, now);
        }
        self.notice(id, now);
    }

    /// A container that its kubelet could not locate ends.
    ///
    /// Only the truth changes.
    pub(super) fn end_lost(&mut self, container_id: &str, _now: Millis) {
        if let Some(running) = self.truth.running.remove(container_id) {
            self.happenings.push(Happening::Ended(running));
        }
    }

    /// Ends a pod's containers within their grace period.
    pub(super) fn terminate(&mut self, id: MachineId, uid: &str, grace: Millis, now: Millis) {
        let shutdown = self.settings.shutdown;
        let Some(local) = self.local(id, uid) else { return };
        local.ending = true;
        let running = local.containers.iter().filter(|container| container.runs());
        let running: Vec<_> =
            running.filter_map(|container| container.current.as_ref()).map(|is| is.id.clone()).collect();
        for container in running {
            let takes = self.delays.draw("shutdown", part(&container), shutdown);
            let code = if takes > grace { 137 } else { 0 };
            self.after(now, takes.min(grace), Task::Exit(id, uid.to_owned(), container, code));
        }
        self.notice(id, now);
    }

    /// Whether another machine has taken the node's name.
    ///
    /// The reports of this machine are then ignored, and its pods end.
    pub(super) fn is_replaced(&self, id: MachineId) -> bool {
        let Some(machine) = self.machines.get(&id) else { return true };
        self.machines.iter().any(|(other, found)| *other > id && found.spec.node == machine.spec.node)
    }

    fn terminate_all(&mut self, id: MachineId, now: Millis) {
        let pods = self.machines.get(&id).into_iter().flat_map(|machine| machine.pods.keys());
        for uid in pods.cloned().collect::<Vec<_>>() {
            self.terminate(id, &uid, 2_000, now);
        }
    }

    /// Schedules an inspection of the containers.
    pub(super) fn notice(&mut self, id: MachineId, now: Millis) {
        let node = self.machines.get(&id).map(|machine| machine.spec.node.clone()).unwrap_or_default();
        self.soon(now, "relist", &node, self.settings.relist, Task::Relist(id));
    }

    /// Computes the statuses of the observed containers, and sends those that differ.
    pub(super) fn relist(&mut self, id: MachineId, now: Millis) {
        let send = self.settings.send;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.powered) else { return };
        let (slow, clock_error) = (machine.slow, self.truth.clock_error(id));
        let mut letters = Vec::new();
        for (uid, local) in &mut machine.pods {
            let status = report::status(local, now, clock_error);
            if status != local.made.1 || local.has_ended() && local.outbox.is_empty() {
                local.made = (local.made.0 + 1, status.clone());
                local.outbox.insert(local.made.0, status);
                letters.push((uid.clone(), local.made.0));
            }
        }
        for (uid, number) in letters {
            let delay = slow + self.delays.draw("send", part(&uid), send);
            self.after(now, delay, Task::Send(id, uid, number));
        }
    }

    /// A status arrives, if its kubelet is connected.
    ///
    /// A status that a newer one has overtaken is dropped.
    pub(super) fn send(&mut self, id: MachineId, uid: &str, number: u64, api: &mut ApiServer, now: Millis) {
        let connected = self.machines.get(&id).is_some_and(|machine| machine.connected && machine.powered);
        let is_replaced = self.is_replaced(id);
        let Some(local) = self.local(id, uid) else { return };
        let Some(status) = local.outbox.remove(&number) else { return };
        if !connected {
            // The kubelet computes the status again when it is connected.
            local.made.1 = Value::Null;
            return;
        }
        if number < local.arrived {
            return;
        }
        if is_replaced {
            if local.has_ended() {
                self.machines.get_mut(&id).map(|machine| machine.pods.remove(uid));
            }
            return;
        }
        local.arrived = number;
        let at = place(local.pod.namespace(), local.pod.name());
        let ends = local.has_ended();
        let pod = api.get(Kind::Pod, &at.0, &at.1).filter(|pod| pod.uid() == uid);
        if let Some(pod) = &pod {
            let failed = pod.value["status"]["phase"] == "Failed";
            let _ = api.edit(Kind::Pod, (&at.0, &at.1), Part::Status, by(now, "kubelet"), |value| {
                merge_status(&mut value["status"], &status);
                // A pod that was reported as failed does not return to Running.
                if failed {
                    value["status"]["phase"] = json!("Failed");
                }
            });
        }
        if ends && pod.is_none_or(|pod| pod.is_deleting()) {
            self.soon(now, "take", uid, self.settings.receive, Task::TakeAway(id, uid.to_owned()));
        }
    }

    /// Deletes the object of an ended pod if it exists, and frees the pod's address.
    pub(super) fn take_away(&mut self, id: MachineId, uid: &str, api: &mut ApiServer, now: Millis) {
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.connected && machine.powered) else {
            return;
        };
        let Some(local) = machine.pods.get(uid) else { return };
        let at = place(local.pod.namespace(), local.pod.name());
        match api.delete(Kind::Pod, (&at.0, &at.1), &DeleteOptions::now(uid), by(now, "kubelet")) {
            Err(refusal) if !matches!(refusal.code, 404 | 409) => {}
            _ => {
                machine.pods.remove(uid);
            }
        }
    }
}

/// Merges conditions by their type.
///
/// The kubelet owns everything else.
fn merge_status(into: &mut Value, status: &Value) {
    let mut conditions = into["conditions"].as_array().cloned().unwrap_or_default();
    for new in status["conditions"].as_array().into_iter().flatten() {
        match conditions.iter_mut().find(|old| old["type"] == new["type"]) {
            Some(old) => *old = new.clone(),
            None => conditions.push(new.clone()),
        }
    }
    merge(into, status);
    into["conditions"] = json!(conditions);
}

/// Adopts a container that another machine ran, from the pod's status.
///
/// The kubelet reports that it cannot locate the container.
fn adopt(container: &mut Container, pod: &Value, now: Millis) {
    let field = if container.init { "initContainerStatuses" } else { "containerStatuses" };
    let all = pod["status"][field].as_array().into_iter().flatten();
    let Some(status) = all.into_iter().find(|status| status["name"] == container.name.as_str()) else { return };
    let Some(id) = status["containerID"].as_str() else { return };
    let end = End { at: now, code: 137, reason: "ContainerStatusUnknown", named: false };
    container.restarts =
        status["restartCount"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
    container.last = Some(Instance { id: id.to_owned(), started: now, end: Some(end) });
}
