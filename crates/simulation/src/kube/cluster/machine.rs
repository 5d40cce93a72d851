//! Machines, and the state of their kubelets.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use serde_json::Value;

use super::super::Millis;
use super::super::api::Shared;

/// The ID of a machine.
///
/// Two machines can have the same node name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// The properties of a machine that its Node object repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    pub node: String,
    pub machine_id: String,
    pub system_uuid: String,
    /// The ID of the cloud provider that runs it.
    pub provider_id: Option<String>,
}

impl MachineSpec {
    /// A machine with IDs of its own.
    pub fn named(node: &str) -> Self {
        let (machine_id, system_uuid) = (format!("machine-{node}"), format!("uuid-{node}"));
        Self { node: node.to_owned(), machine_id, system_uuid, provider_id: None }
    }
}

/// A machine and its kubelet.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) spec: MachineSpec,
    pub(super) connected: bool,
    pub(super) powered: bool,
    /// When the API server last received its heartbeat.
    pub(super) last_heartbeat: Millis,
    /// The pods of the machine, by UID.
    pub(super) pods: BTreeMap<String, LocalPod>,
    /// The additional delay of its statuses.
    pub(super) slow: Millis,
}

/// A pod on a machine.
#[derive(Debug)]
pub(super) struct LocalPod {
    /// The latest version that the kubelet has received.
    pub(super) pod: Shared,
    pub(super) ip: String,
    pub(super) containers: Vec<Container>,
    /// The Secrets of its volumes, when they exist.
    pub(super) files: Option<BTreeMap<(String, String), Bytes>>,
    /// Whether the pod is ending.
    ///
    /// Its containers do not start again.
    pub(super) ending: bool,
    pub(super) ready: bool,
    /// The condition Ready, and the time of its last change.
    pub(super) turned: Option<(bool, Millis)>,
    pub(super) started: Millis,
    /// Statuses on their way, by number.
    pub(super) outbox: BTreeMap<u64, Value>,
    /// The newest status made, and the newest that arrived.
    pub(super) made: (u64, Value),
    pub(super) arrived: u64,
}

/// A container of a pod, with its instances.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) init: bool,
    pub(super) restarts: u32,
    pub(super) current: Option<Instance>,
    pub(super) last: Option<Instance>,
}

/// One run of a container.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) started: Millis,
    pub(super) end: Option<End>,
}

/// The end of a container, as its kubelet reports it.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) at: Millis,
    pub(super) code: i64,
    pub(super) reason: &'static str,
    /// Whether the report has the container's ID.
    pub(super) named: bool,
}

impl Container {
    pub(super) fn runs(&self) -> bool {
        self.current.as_ref().is_some_and(|instance| instance.end.is_none())
    }

    /// The end of its run, unless it starts again.
    pub(super) fn ended(&self) -> Option<&End> {
        self.current.as_ref().and_then(|instance| instance.end.as_ref())
    }
}

impl LocalPod {
    pub(super) fn spec(&self) -> &Value {
        &self.pod.value["spec"]
    }

    pub(super) fn runs(&self) -> bool {
        self.containers.iter().any(Container::runs)
    }

    /// Whether a container with this exit code starts again.
    pub(super) fn restarts(&self, container: &Container, code: i64) -> bool {
        let policy = self.spec()["restartPolicy"].as_str().unwrap_or("Always");
        !self.ending
            && match policy {
                "Never" => false,
                "OnFailure" => code != 0,
                _ => !container.init || code != 0,
            }
    }

    /// Whether no container runs, and none will start.
    pub(super) fn has_ended(&self) -> bool {
        let done = |container: &Container| match container.ended() {
            Some(end) => !self.restarts(container, end.code),
            None => !container.runs() && self.ending,
        };
        let failed = |container: &Container| {
            container.init && container.ended().is_some_and(|end| end.code != 0) && done(container)
        };
        !self.runs() && (self.containers.iter().all(done) || self.containers.iter().any(failed))
    }

    /// The containers to start now: init containers one after another, then all regular ones.
    pub(super) fn startable(&self) -> Vec<usize> {
        let waiting = self.containers.iter().enumerate().filter(|(_, container)| container.current.is_none());
        let init = self
            .containers
            .iter()
            .position(|container| container.init && container.ended().is_none_or(|end| end.code != 0));
        match init {
            Some(first) => waiting.filter(|(index, _)| *index == first).map(|(index, _)| index).collect(),
            None => waiting.map(|(index, _)| index).collect(),
        }
    }
}
