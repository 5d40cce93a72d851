//! Faults drawn before a run: a kind and a number, which say what breaks once it is known what there is.

use super::super::api::{ApiServer, Kind};
use super::super::chance::{Chance, Seeded};
use super::Cluster;
use super::faults::Fault;
use super::machine::{MachineId, MachineSpec};
use super::truth::Running;

/// A kind of fault, for choosing which exist in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FaultKind {
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
    pub(crate) const ALL: [Self; 14] = [
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

/// A fault of a plan: the same number chooses the same thing among the same things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mishap {
    pub(crate) kind: FaultKind,
    pub(crate) number: u64,
}

impl Mishap {
    /// What this is in the cluster as it is now; `None` if there is nothing to break.
    pub(crate) fn resolve(self, cluster: &Cluster, api: &ApiServer) -> Option<Fault> {
        let mut chance = Seeded(self.number);
        let machines: Vec<_> = cluster.machines().map(|(id, spec)| (id, spec.clone())).collect();
        let (id, spec) = chance.pick(&machines)?.clone();
        let (powered, connected) = cluster.machine_state(id);
        let node = spec.node.clone();
        let container = |chance: &mut Seeded| -> Option<Running> {
            let running: Vec<_> = cluster.truth().running().cloned().collect();
            chance.pick(&running).cloned()
        };
        let pod = |chance: &mut Seeded| {
            let pods: Vec<_> =
                api.objects(Kind::Pod).map(|pod| (pod.namespace().to_owned(), pod.name().to_owned())).collect();
            chance.pick(&pods).cloned()
        };
        Some(match self.kind {
            FaultKind::Cut if connected => Fault::Cut(id),
            FaultKind::Cut => Fault::Heal(id),
            FaultKind::Power if powered => Fault::PowerOff(id),
            FaultKind::Power => Fault::PowerOn(id),
            FaultKind::Slow => Fault::Slow(id, *chance.pick(&[0, 500, 5_000])?),
            FaultKind::RestartKubelet => Fault::RestartKubelet(id),
            FaultKind::DeleteNode => Fault::DeleteNode(node),
            FaultKind::ReplaceNode => {
                let fair = !powered || machines.iter().any(|other| shares_ids(other, id, &spec));
                Fault::ReplaceNode { node, same_ids: fair && chance.percent(50) }
            }
            // Only a provider deletes a node for being gone.
            FaultKind::EndMachine => spec.provider_id.as_ref().map(|_| Fault::EndMachine(id))?,
            FaultKind::Exit => Fault::Exit {
                container: container(&mut chance)?.container,
                code: if chance.percent(50) { 0 } else { 1 },
            },
            FaultKind::Lose => Fault::Lose { container: container(&mut chance)?.container, named: chance.percent(50) },
            FaultKind::FailWithoutStatuses => {
                pod(&mut chance).map(|(namespace, pod)| Fault::FailWithoutStatuses { namespace, pod })?
            }
            FaultKind::ForceDelete => pod(&mut chance).map(|(namespace, pod)| Fault::ForceDelete { namespace, pod })?,
            FaultKind::Ready => Fault::Ready { uid: container(&mut chance)?.pod_uid, ready: chance.percent(60) },
            FaultKind::Cordon => Fault::Cordon(node, chance.percent(50)),
            // A person's word, which has to be true of every machine of that name.
            FaultKind::OutOfService => Fault::OutOfService(node.clone(), cluster.is_off(&node)),
        })
    }
}

fn shares_ids((other, found): &(MachineId, MachineSpec), id: MachineId, spec: &MachineSpec) -> bool {
    *other != id && (&found.machine_id, &found.system_uuid) == (&spec.machine_id, &spec.system_uuid)
}

impl Cluster {
    /// Whether nothing can run under this node's name.
    pub(crate) fn is_off(&self, node: &str) -> bool {
        self.machines_of(node).into_iter().all(|id| !self.machine_state(id).0)
    }

    /// Everything is on, connected and may be scheduled to. Machines whose name another one has taken stay off.
    pub(crate) fn heal_all(&mut self, api: &mut ApiServer, now: super::Millis) {
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

    /// Ends all containers of a pod, wherever they run: what a person does before declaring it dead.
    pub(crate) fn end_pod(&mut self, uid: &str, now: super::Millis) {
        let running: Vec<_> = self.truth.running().filter(|running| running.pod_uid == uid).cloned().collect();
        for running in running {
            // Its kubelet must not start another one.
            if let Some(local) = self.local(running.machine, uid) {
                local.ending = true;
            }
            self.exit(running.machine, uid, &running.container, 137, now);
        }
    }
}
