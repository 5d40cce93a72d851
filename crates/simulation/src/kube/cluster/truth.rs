//! What really runs, whatever anybody reports.

use std::collections::BTreeMap;

use hyper::body::Bytes;

use super::super::Millis;
use super::super::api::Shared;
use super::machine::MachineId;

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// As `containerID` in a pod's status.
    pub container: String,
    /// Its name in the pod.
    pub name: String,
    pub machine: MachineId,
    pub node: String,
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
    pub ip: String,
    pub since: Millis,
    /// Another instance of the same container ran before.
    pub restarted: bool,
    /// Its kubelet has lost sight of it.
    pub lost: bool,
}

/// What happened to a container.
#[derive(Clone, Debug)]
pub enum Happening {
    /// It runs from now on.
    Started {
        running: Running,
        /// The pod as its kubelet knows it.
        pod: Shared,
        /// What the Secrets of its volumes hold, by volume and path.
        files: BTreeMap<(String, String), Bytes>,
    },
    /// It has ended.
    Ended(Running),
}

/// All containers that run, by their IDs.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub(super) running: BTreeMap<String, Running>,
    /// Machines that are cut off from everything else.
    pub(super) cut: BTreeMap<MachineId, bool>,
}

impl Truth {
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.running.values()
    }

    pub fn get(&self, container: &str) -> Option<&Running> {
        self.running.get(container)
    }

    pub fn is_running(&self, container: &str) -> bool {
        self.running.contains_key(container)
    }

    /// Whether any container of a pod runs.
    pub fn pod_runs(&self, uid: &str) -> bool {
        self.running.values().any(|running| running.pod_uid == uid)
    }

    /// Who answers at an address: several where a kubelet has lost sight of one.
    pub fn at<'a>(&'a self, ip: &'a str) -> impl Iterator<Item = &'a Running> {
        self.running.values().filter(move |running| running.ip == ip)
    }

    /// Whether packets reach this machine. A machine that is cut off reaches nobody, and runs on.
    pub fn is_cut(&self, machine: MachineId) -> bool {
        self.cut.get(&machine).copied().unwrap_or_default()
    }
}
