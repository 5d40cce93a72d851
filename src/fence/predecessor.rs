//! Decides whether the previous process that could vote is known to be dead (rule 4).
//!
//! A force-deleted pod can still run, open, on a node that is cut off. Its clients and those of the successor would
//! form two majorities. Time proves nothing about such a process. The facts below do.

use std::time::Duration;

use super::RunId;
use crate::time::Monotonic;

/// How long a node must be Ready without the pod object to prove that its kubelet killed the pod.
/// It is longer than the sum of three times: until the control plane reports a silent kubelet, one sync of a kubelet, and a
/// grace period.
pub const NODE_READY_FOR: Duration = Duration::from_secs(120);

/// The IDs that a machine reports, independent of the name of its Node object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// `systemUUID` of the Node.
    pub system_uuid: String,
    /// `machineID` of the Node.
    pub machine_id: String,
}

/// The machine of a Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeIdentity {
    /// UID of the Node object.
    pub uid: String,
    /// `None` if the machine reports no IDs, or if several nodes report the same IDs.
    pub machine: Option<Machine>,
}

impl NodeIdentity {
    /// Whether a Node object of the same name belongs to this machine.
    ///
    /// A machine that registers again has another UID. Another machine with the same name has other IDs. If the IDs identify no
    /// machine, the UID decides.
    pub fn is(&self, reported: &Self) -> bool {
        match &self.machine {
            Some(machine) => reported.machine.as_ref() == Some(machine),
            None => !self.uid.is_empty() && self.uid == reported.uid,
        }
    }
}

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process.
    pub run_id: RunId,
    /// Its pod.
    pub pod_uid: String,
    /// Its container, or an earlier one of the same pod if the pod status lags.
    /// `None` if the pod status has not shown a container yet.
    pub container_id: Option<String>,
    /// The node of its pod.
    pub node_name: Option<String>,
    /// The machine of that node.
    pub node: Option<NodeIdentity>,
}

/// The Node objects that had the name of a node, as this replica observed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The existing object.
    pub present: Option<PresentNode>,
    /// Deleted objects, the newest last. They do not include an object whose machine has returned.
    pub deleted: Vec<DeletedNode>,
}

/// A Node object that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentNode {
    /// The machine of the object.
    pub identity: NodeIdentity,
    /// Since when this replica has observed it Ready without a break.
    pub ready_since: Option<Monotonic>,
    /// Whether it has the taint `node.kubernetes.io/out-of-service`.
    ///
    /// With this taint an administrator confirms that the node is shut down.
    pub out_of_service: bool,
}

/// A Node object that vanished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedNode {
    /// The machine of the object.
    pub identity: NodeIdentity,
    /// It had a providerID.
    /// The cloud controller deletes such a node only after the provider confirmed that the machine is gone. The deletion of a
    /// Node object of a bare-metal machine proves nothing.
    pub had_provider_id: bool,
    /// It was Ready at its last observation.
    ///
    /// The cloud controller deletes no such node. So a user or a program deleted it, and the machine can still run.
    pub was_ready: bool,
}

/// The evidence about a process that can be open.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Now.
    pub now: Monotonic,
    /// A kubelet has reported the container of this process as terminated.
    pub terminated: bool,
    /// Since when this replica has known that the pod object is gone.
    pub gone_since: Option<Monotonic>,
    /// The Node objects with the name of its node.
    pub node: &'a NodeFacts,
    /// The processes that an administrator declared dead by annotation: pod UIDs, see [`declares`].
    pub declared_dead: Option<&'a str>,
}

/// Whether an administrator's annotation names this process.
///
/// It can contain several names, separated by commas. A quorum that is being deleted records no death, so the annotation must
/// contain all names at the same time.
pub fn declares(annotation: &str, process: &str) -> bool {
    !process.is_empty() && annotation.split(',').any(|name| name.trim() == process)
}

/// Why a process is known to be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Its pod shows the container terminated.
    Terminated,
    /// Its node has been Ready for [`NODE_READY_FOR`] without the pod object.
    NodeReady,
    /// Its node has the out-of-service taint of an administrator.
    OutOfService,
    /// Its node was deleted by the cloud provider.
    NodeDeleted,
    /// An administrator declared it dead.
    Declared,
    /// It is an external master, so its votes do not count here, even if it lives.
    Discounted,
}

/// The judgement on the previous process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No earlier process of this member could vote.
    None,
    /// It is dead.
    Dead(Evidence),
    /// It can run and be open.
    Unconfirmed {
        /// When its node will have been Ready for the required time, if it stays Ready.
        until: Option<Monotonic>,
    },
}

/// Judges the process that was able to vote before.
pub fn judge(process: &Process, facts: &Facts<'_>) -> Verdict {
    if facts.terminated {
        return Verdict::Dead(Evidence::Terminated);
    }
    if let Some(evidence) = process.node.as_ref().and_then(|node| from_node(node, facts.node)) {
        return Verdict::Dead(evidence);
    }
    if facts.declared_dead.is_some_and(|declared| declares(declared, &process.pod_uid)) {
        return Verdict::Dead(Evidence::Declared);
    }
    match process.node.as_ref().and_then(|node| node_ready_at(node, facts)) {
        Some(at) if at <= facts.now => Verdict::Dead(Evidence::NodeReady),
        until => Verdict::Unconfirmed { until },
    }
}

fn from_node(node: &NodeIdentity, facts: &NodeFacts) -> Option<Evidence> {
    let is_gone = |deleted: &DeletedNode| deleted.had_provider_id && !deleted.was_ready && node.is(&deleted.identity);
    match &facts.present {
        Some(present) if present.out_of_service && node.is(&present.identity) => Some(Evidence::OutOfService),
        _ => facts.deleted.iter().any(is_gone).then_some(Evidence::NodeDeleted),
    }
}

/// When a node that has been Ready without the pod proves that the pod's process is dead.
///
/// Two conditions must hold for the full time: the node is Ready, and the pod is gone. The kubelet kills a pod because it was deleted
/// from the API, so a node that was Ready only before that proves nothing.
fn node_ready_at(node: &NodeIdentity, facts: &Facts<'_>) -> Option<Monotonic> {
    let present = facts.node.present.as_ref().filter(|present| node.is(&present.identity))?;
    Some(present.ready_since?.max(facts.gone_since?) + NODE_READY_FOR)
}

#[cfg(test)]
mod tests;
