//! Faults drawn before a run: a kind and a number.
//!
//! At run time the number chooses among the existing objects.

use redlock_api::QUORUM_LABEL;

use super::super::api::{ApiServer, Kind, Shared};
use super::super::chance::{Chance, Seeded};
use super::Cluster;
use super::faults::Fault;
use super::machine::{MachineId, MachineSpec};
use super::truth::Running;

/// A kind of fault.
///
/// A run chooses which kinds it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Silent nodes, and their return.
    Cut,
    Power,
    Slow,
    RestartKubelet,
    DeleteNode,
    ReplaceNode,
    EndMachine,
    Exit,
    Lose,
    FailWithoutStatuses,
    ForceDelete,
    Ready,
    Cordon,
    OutOfService,
}

impl FaultKind {
    pub const ALL: [Self; 14] = [
        Self::Cut,
        Self::Power,
        Self::Slow,
        Self::RestartKubelet,
        Self::DeleteNode,
        Self::ReplaceNode,
        Self::EndMachine,
        Self::Exit,
        Self::Lose,
        Self::FailWithoutStatuses,
        Self::ForceDelete,
        Self::Ready,
        Self::Cordon,
        Self::OutOfService,
    ];
}

/// The preferred targets of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    Anywhere,
    /// Pods that hold locks.
    Holders,
    /// Members of quorums.
    Members,
}

/// A fault of a plan.
///
/// The same number chooses the same target in the same cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mishap {
    pub kind: FaultKind,
    pub number: u64,
    pub aim: Aim,
}

/// How often a fault hits its preferred target, in percent.
const AIMED: u64 = 80;

impl Mishap {
    /// The containers among which the fault chooses.
    ///
    /// A disconnected machine is found by its running containers.
    fn targets(self, chance: &mut Seeded, cluster: &Cluster, api: &ApiServer) -> Vec<Running> {
        let all: Vec<Running> = cluster.truth().running().cloned().collect();
        if self.aim == Aim::Anywhere || !chance.percent(AIMED) {
            return all;
        }
        let is_member = |running: &Running| {
            let pod = api.get(Kind::Pod, &running.namespace, &running.pod);
            pod.is_some_and(|pod| pod.label(QUORUM_LABEL).is_some())
        };
        if self.aim == Aim::Members {
            return all.into_iter().filter(is_member).collect();
        }
        let locks: Vec<Shared> = api.objects(Kind::DistributedLock).cloned().collect();
        let holds = |running: &Running| {
            let pod = api.get(Kind::Pod, &running.namespace, &running.pod);
            let owners = pod.map(|pod| pod.value["metadata"]["ownerReferences"].clone()).unwrap_or_default();
            locks.iter().any(|lock| {
                let holder = &lock.value["status"]["holder"];
                let owner = &lock.value["metadata"]["ownerReferences"][0]["uid"];
                holder["containerID"] == running.container.as_str()
                    || holder.is_object() && owner.is_string() && *owner == owners[0]["uid"]
                    || holder["jobUID"].is_string() && holder["jobUID"] == owners[0]["uid"]
            })
        };
        let holding: Vec<Running> = all.iter().filter(|running| holds(running)).cloned().collect();
        if holding.is_empty() { all.into_iter().filter(|running| !is_member(running)).collect() } else { holding }
    }

    /// The fault in the current cluster, or `None` if there is no target.
    pub fn resolve(self, cluster: &Cluster, api: &ApiServer) -> Option<Fault> {
        let mut chance = Seeded(self.number);
        let machines: Vec<_> = cluster.machines().map(|(id, spec)| (id, spec.clone())).collect();
        let targets = self.targets(&mut chance, cluster, api);
        let aimed = chance.pick(&targets).cloned().filter(|_| self.aim != Aim::Anywhere);
        let any = chance.pick(&machines)?.clone();
        let aimed_at = |(id, _): &&(MachineId, MachineSpec)| aimed.as_ref().is_some_and(|aimed| aimed.machine == *id);
        let (id, spec) = machines.iter().find(aimed_at).cloned().unwrap_or(any);
        let (powered, connected) = cluster.machine_state(id);
        let node = spec.node.clone();
        let container = |chance: &mut Seeded| aimed.clone().or_else(|| chance.pick(&targets).cloned());
        let pod = |chance: &mut Seeded| {
            let pods: Vec<_> =
                api.objects(Kind::Pod).map(|pod| (pod.namespace().to_owned(), pod.name().to_owned())).collect();
            let aimed = aimed.as_ref().map(|aimed| (aimed.namespace.clone(), aimed.pod.clone()));
            aimed.or_else(|| chance.pick(&pods).cloned())
        };
        // Users usually delete a pod by force because its deletion hangs.
        let hanging = |chance: &mut Seeded| {
            let pods = api.objects(Kind::Pod).filter(|pod| pod.is_deleting());
            let pods: Vec<_> = pods.map(|pod| (pod.namespace().to_owned(), pod.name().to_owned())).collect();
            if chance.percent(60) { chance.pick(&pods).cloned() } else { None }
        };
        // Only the provider can determine that one of its machines is gone. Therefore users do not delete the node of
        // such a machine while it is not Ready.
        let can_be_deleted = spec.provider_id.is_none() || connected || !powered;
        Some(match self.kind {
            FaultKind::Cut if connected => Fault::Cut(id),
            FaultKind::Cut => Fault::Heal(id),
            FaultKind::Power if powered => Fault::PowerOff(id),
            FaultKind::Power => Fault::PowerOn(id),
            FaultKind::Slow => Fault::Slow(id, *chance.pick(&[0, 500, 5_000])?),
            FaultKind::RestartKubelet => Fault::RestartKubelet(id),
            FaultKind::DeleteNode | FaultKind::ReplaceNode if !can_be_deleted => return None,
            FaultKind::DeleteNode => Fault::DeleteNode(node),
            FaultKind::ReplaceNode => {
                let fair = !powered || machines.iter().any(|other| shares_ids(other, id, &spec));
                Fault::ReplaceNode { node, same_ids: fair && chance.percent(50) }
            }
            // Only a provider deletes a node because its machine is gone.
            FaultKind::EndMachine => spec.provider_id.as_ref().map(|_| Fault::EndMachine(id))?,
            FaultKind::Exit => Fault::Exit {
                container: container(&mut chance)?.container,
                code: if chance.percent(50) { 0 } else { 1 },
            },
            FaultKind::Lose => Fault::Lose { container: container(&mut chance)?.container, named: chance.percent(50) },
            FaultKind::FailWithoutStatuses => {
                pod(&mut chance).map(|(namespace, pod)| Fault::FailWithoutStatuses { namespace, pod })?
            }
            FaultKind::ForceDelete => hanging(&mut chance)
                .or_else(|| pod(&mut chance))
                .map(|(namespace, pod)| Fault::ForceDelete { namespace, pod })?,
            FaultKind::Ready => Fault::Ready { uid: container(&mut chance)?.pod_uid, ready: chance.percent(60) },
            FaultKind::Cordon => Fault::Cordon(node, chance.percent(50)),
            // A user sets this taint only if every machine with that name is off.
            FaultKind::OutOfService => Fault::OutOfService(node.clone(), cluster.is_off(&node)),
        })
    }
}

fn shares_ids((other, found): &(MachineId, MachineSpec), id: MachineId, spec: &MachineSpec) -> bool {
    *other != id && (&found.machine_id, &found.system_uuid) == (&spec.machine_id, &spec.system_uuid)
}

impl Cluster {
    /// Whether every machine with this node name is off.
    pub fn is_off(&self, node: &str) -> bool {
        self.machines_of(node).into_iter().all(|id| !self.machine_state(id).0)
    }

    /// Turns on, connects and uncordons every machine.
    ///
    /// Machines whose name another machine has taken stay off.
    pub fn heal_all(&mut self, api: &mut ApiServer, now: super::Millis) {
        let all: Vec<_> = self.machines().map(|(id, spec)| (id, spec.node.clone())).collect();
        for (id, node) in all {
            let out = Fault::OutOfService(node.clone(), false);
            for fault in [Fault::PowerOn(id), Fault::Slow(id, 0), Fault::Heal(id), Fault::Cordon(node, false), out] {
                self.inflict(&fault, api, now);
            }
            self.inflict(&Fault::RestartKubelet(id), api, now);
            for uid in
                self.machines.get(&id).into_iter().flat_map(|machine| machine.pods.keys()).cloned().collect::<Vec<_>>()
            {
                self.set_ready(&uid, true, now);
            }
        }
    }

    /// Ends all containers of a pod on all machines.
    ///
    /// A user does this before confirming the death.
    pub fn end_pod(&mut self, uid: &str, now: super::Millis) {
        let running: Vec<_> = self.truth.running().filter(|running| running.pod_uid == uid).cloned().collect();
        for running in running {
            // Its kubelet must not start the container again.
            if let Some(local) = self.local(running.machine, uid) {
                local.ending = true;
            }
            self.exit(running.machine, uid, &running.container, 137, now);
        }
    }
}
