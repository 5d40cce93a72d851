//! The containers that run, independent of all reports.

use std::collections::BTreeMap;

use hyper::body::Bytes;

use super::super::Millis;
use super::super::api::Shared;
use super::machine::MachineId;

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The `containerID` in a pod's status.
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
    /// Whether another instance of the same container ran before.
    pub restarted: bool,
    /// Whether its kubelet cannot locate it.
    pub lost: bool,
}

/// A change of a container.
#[derive(Clone, Debug)]
pub enum Happening {
    /// It starts now.
    Started {
        running: Running,
        /// The pod in the version of its kubelet.
        pod: Shared,
        /// The contents of its Secret volumes, by volume and path.
        files: BTreeMap<(String, String), Bytes>,
    },
    /// It has ended.
    Ended(Running),
}

/// All running containers, by their IDs.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub(super) running: BTreeMap<String, Running>,
    /// Disconnected machines.
    pub(super) cut: BTreeMap<MachineId, bool>,
    /// The error of the clock of each machine, in milliseconds.
    pub(super) clocks: BTreeMap<MachineId, Millis>,
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

    /// Whether a container of the pod runs.
    pub fn pod_runs(&self, uid: &str) -> bool {
        self.running.values().any(|running| running.pod_uid == uid)
    }

    /// The containers that answer at an address.
    ///
    /// There are several if a kubelet cannot locate one of them.
    pub fn at<'a>(&'a self, ip: &'a str) -> impl Iterator<Item = &'a Running> {
        self.running.values().filter(move |running| running.ip == ip)
    }

    /// The error of a machine's clock in milliseconds, at most one second.
    ///
    /// Its kubelet and its containers have this clock.
    pub fn clock_error(&self, machine: MachineId) -> Millis {
        self.clocks.get(&machine).copied().unwrap_or_default()
    }

    /// Whether packets reach this machine.
    ///
    /// A disconnected machine continues to run.
    pub fn is_cut(&self, machine: MachineId) -> bool {
        self.cut.get(&machine).copied().unwrap_or_default()
    }
}
