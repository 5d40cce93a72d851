//! Converts between the published status of members and the records of the fence. Pure.

use crate::api::{MemberState, MemberStatus, MilliTime, NodeStatus, PredecessorStatus, RedisQuorum, RedisQuorumStatus};
use crate::fence::predecessor::{Machine, NodeIdentity};
use crate::fence::{FenceStep, Process, Reason, Record, RunId, State, Verdict};

/// The published record of a member.
pub fn record_of(member: &MemberStatus) -> Record {
    let run_id = member.run_id.as_deref().map(RunId::from);
    let process = run_id.clone().map(|run_id| Process {
        run_id,
        pod_uid: member.pod_uid.clone().unwrap_or_default(),
        container_id: member.container_id.clone(),
        node_name: member.node_name.clone(),
        node: member.node.as_ref().map(identity),
    });
    let predecessor = member.predecessor.as_ref().map(|process| Process {
        run_id: RunId::from(process.run_id.as_str()),
        pod_uid: process.pod_uid.clone(),
        container_id: process.container_id.clone(),
        node_name: process.node_name.clone(),
        node: process.node.as_ref().map(identity),
    });
    let admitted = match member.state {
        MemberState::Admitted => true,
        // The silence did not end the admission.
        MemberState::Unreachable => member.admitted_at.is_some(),
        MemberState::Pending | MemberState::Starting | MemberState::Fenced => false,
    };
    Record {
        state: member.state,
        // For its fence, a member that joins is one that starts for the first time.
        reason: member.reason.map(|reason| if reason == Reason::Joining { Reason::FirstStart } else { reason }),
        admitted: admitted && run_id.is_some(),
        run_id,
        process,
        predecessor,
    }
}

/// The record of the member with this name. It is empty if there is none yet.
pub fn record_named(quorum: &RedisQuorum, name: &str) -> Record {
    quorum.member(name).map(record_of).unwrap_or_default()
}

/// The process of a member whose votes count.
///
/// An `Unreachable` member that was admitted is included. The leader cannot reach it, but other replicas perhaps can, and
/// it has forgotten nothing. Only a fencing or another process ends an admission.
pub fn admitted_run_id(quorum: &RedisQuorum, name: &str) -> Option<RunId> {
    let record = record_named(quorum, name);
    record.run_id.filter(|_| record.admitted)
}

/// The times and epochs that are published with a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    /// When it can vote if nothing else happens.
    pub rejoin_at: Option<MilliTime>,
    /// When it was admitted. The earlier time stays if the admission is not new.
    pub admitted_at: Option<MilliTime>,
    /// The membership epoch of its open users. The earlier epoch stays if the admission is not new.
    pub epoch: Option<i64>,
    /// Whether it will join the list, so that its first process is fenced for this reason.
    pub joins: bool,
}

/// Writes a record into the published status of its member.
pub fn publish(member: &mut MemberStatus, record: &Record, stamps: Stamps) {
    let published = |reason| if stamps.joins && reason == Reason::FirstStart { Reason::Joining } else { reason };
    (member.state, member.reason) = (record.state, record.reason.map(published));
    member.epoch = stamps.epoch.or(member.epoch);
    member.run_id = record.run_id.as_ref().map(ToString::to_string);
    if let Some(process) = &record.process {
        // An external master has no pod.
        member.pod_uid = Some(process.pod_uid.clone()).filter(|uid| !uid.is_empty());
        member.container_id.clone_from(&process.container_id);
        member.node_name.clone_from(&process.node_name);
        member.node = process.node.as_ref().map(published_identity);
    }
    member.predecessor = record.predecessor.as_ref().map(|process| PredecessorStatus {
        run_id: process.run_id.to_string(),
        pod_uid: process.pod_uid.clone(),
        container_id: process.container_id.clone(),
        node_name: process.node_name.clone(),
        node: process.node.as_ref().map(published_identity),
    });
    member.rejoin_at = stamps.rejoin_at;
    member.admitted_at = stamps.admitted_at.or(member.admitted_at).filter(|_| record.admitted);
    member.message = message(record, &member.name);
}

/// Withdraws the admission of an own member, if it has one. Its process is then fenced again.
///
/// `epoch` is the earliest of its users that can be open.
pub fn withdraw(member: &mut MemberStatus, epoch: i64) {
    let record = record_of(member);
    if record.admitted {
        let record = record.after(FenceStep::WriteStarting, None, &Verdict::None);
        publish(member, &record, Stamps { epoch: member.epoch.or(Some(epoch)), ..Stamps::default() });
    }
}

/// Writes a record into the published status of the member with this name.
pub fn publish_named(status: &mut RedisQuorumStatus, name: &str, record: &Record, stamps: Stamps) {
    if let Some(member) = status.member_mut(name) {
        publish(member, record, stamps);
    }
}

/// The message that follows from the record of a member.
///
/// Several nodes can share the recorded IDs now. `unique` removes such IDs, because they prove no end.
pub fn message_of(member: &MemberStatus, unique: impl FnOnce(NodeIdentity) -> NodeIdentity) -> Option<String> {
    let mut record = record_of(member);
    if let Some(process) = &mut record.predecessor {
        process.node = process.node.take().map(unique);
    }
    message(&record, &member.name)
}

fn message(record: &Record, name: &str) -> Option<String> {
    match record.reason.filter(|_| record.state == State::Fenced)? {
        Reason::Updating => Some(format!("{name} is closed until its pod has been replaced")),
        Reason::Leaving => Some(format!("{name} leaves: it is closed for good, and its pod is removed")),
        Reason::ClockJump => Some(format!(
            "{name} is fenced because its clock was stepped: its process is ended, and the next one waits as after a crash"
        )),
        Reason::Busy => Some(format!(
            "{name} is fenced because it served no client: a script kept it busy, or its memory or connections were used up. Its pod is \
             deleted, and the next process waits as after a crash"
        )),
        Reason::PredecessorUnconfirmed => unconfirmed(record, name),
        Reason::FirstStart | Reason::Joining | Reason::Restarted => None,
    }
}

/// The message about a process whose predecessor can still run.
fn unconfirmed(record: &Record, name: &str) -> Option<String> {
    let before = record.predecessor.as_ref()?;
    let node = before.node_name.as_deref().unwrap_or("an unknown node");
    // Without IDs, only the Node object identifies the machine.
    let same = match before.node.as_ref().and_then(|node| node.machine.as_ref()) {
        Some(_) => "",
        None => " (the same Node object, since its IDs identify no machine)",
    };
    Some(format!(
        "the process of {name} before this one (pod UID {uid}) may still run on node {node}. {name} votes again once that node{same} has \
         been Ready for 2 minutes without that pod, carries the taint node.kubernetes.io/out-of-service, or was deleted by the cloud \
         provider. If you know that it is dead, annotate the RedisQuorum with {annotation}={uid} (several are separated by commas)",
        uid = before.pod_uid,
        annotation = crate::api::PREDECESSOR_DEAD_ANNOTATION,
    ))
}

fn identity(node: &NodeStatus) -> NodeIdentity {
    let machine = node.system_uuid.clone().zip(node.machine_id.clone());
    let machine = machine.filter(|(system, machine)| !system.is_empty() && !machine.is_empty());
    let machine = machine.map(|(system_uuid, machine_id)| Machine { system_uuid, machine_id });
    NodeIdentity { uid: node.uid.clone(), machine }
}

fn published_identity(node: &NodeIdentity) -> NodeStatus {
    let machine = node.machine.as_ref();
    let system_uuid = machine.map(|machine| machine.system_uuid.clone());
    let machine_id = machine.map(|machine| machine.machine_id.clone());
    NodeStatus { uid: node.uid.clone(), system_uuid, machine_id }
}

#[cfg(test)]
mod tests;
