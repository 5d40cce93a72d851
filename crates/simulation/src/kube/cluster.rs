//! Simulated components of a cluster: machines with kubelets, controllers, a scheduler.
//!
//! Each component follows the server's log of changes, and reacts after delays of its own. A kubelet reports its
//! observations, which can differ from the truth: [`truth`] records which container runs where.

use std::collections::{BTreeMap, BTreeSet};

use super::Millis;
use super::api::{ApiServer, By, Change, Entry, Kind};
use super::chance::{Delays, Range, part};

mod faults;
mod garbage;
mod job_syncs;
mod jobs;
mod kubelet;
mod machine;
mod mishaps;
mod namespaces;
mod nodes;
mod report;
mod scheduler;
mod settings;
pub mod truth;
mod volumes;
mod workloads;

pub use self::faults::Fault;
use self::job_syncs::Syncs;
use self::machine::Machine;
pub use self::machine::{MachineId, MachineSpec};
pub use self::mishaps::{Aim, FaultKind, Mishap};
pub use self::settings::Settings;
pub use self::truth::Running;
use self::truth::{Happening, Truth};

/// Namespace and name.
type Place = (String, String);

/// A task that is due at some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// A controller reconciles a StatefulSet, Deployment or Job.
    Workload(Kind, Place),
    /// The Job controller applies its decision about a Job.
    SyncJob(Place),
    Schedule(Place),
    /// The owner with this UID is gone.
    Collect(String),
    /// The garbage collector checks whether the owners of a written object exist.
    CheckOwners(Kind, Place),
    /// The garbage collector handles the dependents of an owner that is being deleted.
    Dependents(Kind, Place),
    EmptyNamespace(String),
    /// A kubelet receives a change of a pod.
    ReceivePod(MachineId, Place),
    /// A container of the pod with this UID starts.
    Start(MachineId, String, usize),
    /// A container instance ends.
    Exit(MachineId, String, String, i64),
    /// A container that its kubelet cannot locate ends.
    ExitLost(String),
    /// A kubelet inspects its containers.
    Relist(MachineId),
    /// A status of a kubelet arrives at the API server.
    Send(MachineId, String, u64),
    /// A kubelet deletes a pod that has ended.
    TakeAway(MachineId, String),
    Evict(Place, String),
    /// The machine reports again after a cut, or after the notification of a loss.
    Beat(MachineId),
    Monitor,
    CollectPods,
}

/// Machines, their tasks and the truth about their containers.
#[derive(Debug)]
pub struct Cluster {
    settings: Settings,
    delays: Delays,
    queue: BTreeMap<(Millis, u64), Task>,
    /// Tasks that read the current state when they run, so one entry in the queue is enough.
    queued: BTreeSet<Task>,
    sequence: u64,
    /// The last version of the server's changes that the cluster has processed.
    processed: u64,
    machines: BTreeMap<MachineId, Machine>,
    truth: Truth,
    /// When the pod garbage collector first found each node missing.
    missed: BTreeMap<String, Millis>,
    happenings: Vec<Happening>,
    outage: bool,
    syncs: Syncs,
}

fn by(now: Millis, manager: &str) -> By<'_> {
    By { now, manager }
}

fn place(namespace: &str, name: &str) -> Place {
    (namespace.to_owned(), name.to_owned())
}

impl Cluster {
    /// Builds machines and registers their nodes.
    pub fn new(seed: u64, settings: Settings, specs: &[MachineSpec], api: &mut ApiServer, now: Millis) -> Self {
        let mut cluster = Self {
            settings,
            delays: Delays::new(seed),
            queue: BTreeMap::new(),
            queued: BTreeSet::new(),
            sequence: 0,
            processed: api.version(),
            machines: BTreeMap::new(),
            truth: Truth::default(),
            missed: BTreeMap::new(),
            happenings: Vec::new(),
            outage: false,
            syncs: Syncs::default(),
        };
        for spec in specs {
            cluster.add_machine(spec.clone(), api, now);
        }
        cluster.after(now, cluster.settings.monitor, Task::Monitor);
        cluster.after(now, cluster.settings.collect_pods, Task::CollectPods);
        cluster
    }

    /// When the next task is due.
    ///
    /// Changes of objects can add earlier ones.
    pub fn due(&self) -> Option<Millis> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    /// Whether [`Self::step`] has something to do now.
    pub fn is_due(&self, api: &ApiServer, now: Millis) -> bool {
        self.processed < api.version() || self.due().is_some_and(|due| due <= now)
    }

    /// Processes all changes and runs the due tasks.
    ///
    /// Returns what happened to containers, in order.
    pub fn step(&mut self, api: &mut ApiServer, now: Millis) -> Vec<Happening> {
        self.process_changes(api, now);
        while let Some((key, task)) = self.queue.first_key_value().map(|(key, task)| (*key, task.clone()))
            && key.0 <= now
        {
            self.queue.remove(&key);
            self.queued.remove(&task);
            self.carry_out(task, api, now);
            self.process_changes(api, now);
        }
        std::mem::take(&mut self.happenings)
    }

    /// During an outage no controller and no kubelet reaches the API server.
    pub fn set_outage(&mut self, outage: bool, now: Millis) {
        let ends = self.outage && !outage;
        self.outage = outage;
        if ends {
            for id in self.machines.keys().copied().collect::<Vec<_>>() {
                self.reconnect(id, now);
            }
        }
    }

    /// Which containers run.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    fn at(&mut self, at: Millis, task: Task) {
        if self.queued.insert(task.clone()) {
            self.sequence += 1;
            self.queue.insert((at, self.sequence), task);
        }
    }

    fn after(&mut self, now: Millis, delay: Millis, task: Task) {
        self.at(now + delay, task);
    }

    /// Queues a task after a delay of this link.
    fn soon(&mut self, now: Millis, link: &'static str, of: &str, range: Range, task: Task) {
        let delay = self.delays.draw(link, part(of), range);
        self.at(now + delay, task);
    }

    fn process_changes(&mut self, api: &ApiServer, now: Millis) {
        let news: Vec<Entry> = api.changes_after(self.processed).cloned().collect();
        self.processed = api.version();
        for entry in news {
            self.react(&entry, now);
        }
    }

    fn react(&mut self, entry: &Entry, now: Millis) {
        let object = &entry.object;
        let here = place(object.namespace(), object.name());
        let reaction = self.settings.reaction;
        let is_gone = entry.change == Change::Deleted;
        if is_gone {
            self.soon(now, "collect", object.uid(), self.settings.collect, Task::Collect(object.uid().to_owned()));
        }
        let metadata = &object.value["metadata"];
        if !is_gone && metadata["ownerReferences"].is_array() && entry.change == Change::Added {
            self.soon(now, "owners", object.uid(), self.settings.collect, Task::CheckOwners(entry.kind, here.clone()));
        }
        if object.is_deleting() && metadata["finalizers"].is_array() {
            self.soon(now, "dependents", object.uid(), reaction, Task::Dependents(entry.kind, here.clone()));
        }
        match entry.kind {
            Kind::Pod => self.react_to_pod(entry, here, now),
            Kind::StatefulSet | Kind::Deployment | Kind::Job => {
                self.soon(now, "workload", object.uid(), reaction, Task::Workload(entry.kind, here));
            }
            Kind::Namespace if object.is_deleting() => {
                let name = object.name().to_owned();
                self.soon(now, "namespace", &name, self.settings.empty_namespace, Task::EmptyNamespace(name.clone()));
            }
            _ => {}
        }
    }

    fn react_to_pod(&mut self, entry: &Entry, here: Place, now: Millis) {
        let pod = &entry.object;
        match pod.value["spec"]["nodeName"].as_str() {
            Some(node) => {
                for id in self.machines_of(node) {
                    self.soon(now, "hear", pod.uid(), self.settings.receive, Task::ReceivePod(id, here.clone()));
                }
            }
            None if entry.change != Change::Deleted => {
                self.soon(now, "schedule", pod.uid(), self.settings.reaction, Task::Schedule(here));
            }
            None => {}
        }
        for owner in pod.value["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let words = (owner["apiVersion"].as_str(), owner["kind"].as_str(), owner["name"].as_str());
            if let (Some(version), Some(kind), Some(name)) = words
                && let Some(kind) = Kind::named(version, kind)
            {
                let task = Task::Workload(kind, place(pod.namespace(), name));
                self.soon(now, "workload", pod.uid(), self.settings.reaction, task);
            }
        }
    }

    fn machines_of(&self, node: &str) -> Vec<MachineId> {
        self.machines.iter().filter(|(_, machine)| machine.spec.node == node).map(|(id, _)| *id).collect()
    }

    fn carry_out(&mut self, task: Task, api: &mut ApiServer, now: Millis) {
        // Containers start and end even during an outage, because only reports need the API server.
        match task {
            Task::Start(machine, uid, index) => return self.start(machine, &uid, index, api, now),
            Task::Exit(machine, uid, container, code) => return self.exit(machine, &uid, &container, code, now),
            Task::ExitLost(container) => return self.end_lost(&container, now),
            Task::Relist(machine) => return self.relist(machine, now),
            _ => {}
        }
        if self.outage {
            // Retry. Controllers return at different times after an outage.
            return self.soon(now, "outage", "", self.settings.retry, task);
        }
        match task {
            Task::Workload(kind, place) => self.workload(kind, &place, api, now),
            Task::SyncJob(place) => self.carry_out_sync(&place, api, now),
            Task::Schedule(place) => self.schedule(&place, api, now),
            Task::Collect(uid) => self.collect(&uid, api, now),
            Task::CheckOwners(kind, place) => self.check_owners(kind, &place, api, now),
            Task::Dependents(kind, place) => self.dependents(kind, &place, api, now),
            Task::EmptyNamespace(name) => self.empty_namespace(&name, api, now),
            Task::ReceivePod(machine, place) => self.receive_pod(machine, &place, api, now),
            Task::Send(machine, uid, number) => self.send(machine, &uid, number, api, now),
            Task::TakeAway(machine, uid) => self.take_away(machine, &uid, api, now),
            Task::Evict(place, uid) => self.evict(&place, &uid, api, now),
            Task::Beat(machine) => self.beat(machine, api, now),
            Task::Monitor => self.monitor(api, now),
            Task::CollectPods => self.collect_pods(api, now),
            Task::Start(..) | Task::Exit(..) | Task::ExitLost(_) | Task::Relist(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
