//! Carries out a plan.
//!
//! Most faults heal automatically.

use crate::plan::{Fault, Pause};
use crate::process::Pace;
use crate::rng::hash;
use crate::users::SHOP;
use crate::world::{Event, World};
use redlock_simulation::kube::api::Kind;

/// The time in which an external master restarts.
const RESTART: u64 = 100_000;

/// The path of a lock or quorum of the first namespace at the API server.
fn path_of(plural: &str, name: &str) -> String {
    format!("/apis/redlock-operator.io/v1alpha1/namespaces/{SHOP}/{plural}/{name}")
}

impl World {
    fn way_to(&self, process: usize, member: usize) -> Option<(usize, String)> {
        Some((process, self.servers.all[self.server_of(member)?].host.clone()))
    }

    /// The connections from a process to all current members.
    fn ways_of(&self, process: usize) -> Vec<(usize, String)> {
        self.servers.all.iter().filter(|server| server.is_up()).map(|server| (process, server.host.clone())).collect()
    }

    /// Redirects every other fault of writes to the leader, if the seed has a theme.
    ///
    /// Standbys hardly write.
    fn aimed(&self, fault: &Fault) -> Fault {
        let leads = |process: &usize| self.processes[*process].name == self.oracle.leader;
        let leader = (0..self.plan.replicas.len()).find(leads).filter(|_| self.plan.theme.is_some());
        match (fault, leader) {
            (Fault::Refuse { share, code, length, .. }, Some(process)) if share % 2 == 1 => {
                Fault::Refuse { process, share: *share, code: *code, length: *length }
            }
            (Fault::Lossy { share, length, .. }, Some(process)) if share % 2 == 1 => {
                Fault::Lossy { process, share: *share, length: *length }
            }
            _ => fault.clone(),
        }
    }

    fn leads(&self, process: usize) -> bool {
        self.processes[process].name == self.oracle.leader
    }

    pub(crate) fn fault(&mut self, fault: &Fault) {
        let fault = &self.aimed(fault);
        self.oracle.counts.faults += 1;
        self.note(format_args!("FAULT {fault:?}"));
        let healed = |length: u64, world: &mut Self| world.queue.push(world.now + length, Event::Healed(fault.clone()));
        match *fault {
            Fault::Kill { process, away } => self.kill_process(process, away),
            Fault::Terminate { process } => self.processes[process].terminate(),
            Fault::Stop { process, length } => {
                self.processes[process].pace = Pace::Stopped;
                healed(length, self);
            }
            Fault::Suspend { process, length } => {
                self.processes[process].pace = Pace::Suspended;
                healed(length, self);
            }
            Fault::StepClock { process, by } => self.processes[process].clock.step(by * 1_000),
            Fault::SetApiClock { by } => self.api.set_clock(self.now, by),
            Fault::Cut { process, member, up, down, length } => {
                if let Some(way) = self.way_to(process, member) {
                    self.cut(&way, up, down);
                }
                healed(length, self);
            }
            Fault::Slow { process, member, by, length } => {
                if let Some(way) = self.way_to(process, member) {
                    self.network.ways.entry(way).or_default().slow = by;
                }
                healed(length, self);
            }
            Fault::CutApi { process, length } => {
                self.api_weather(process, |weather| weather.cut = true);
                healed(length, self);
            }
            Fault::SlowApi { process, by, length } => {
                self.api_weather(process, |weather| weather.slow = by);
                healed(length, self);
            }
            Fault::Deaf { process, length } => {
                self.api_weather(process, |weather| weather.deaf = true);
                healed(length, self);
            }
            Fault::Lag { process, by, length } => {
                self.api_weather(process, |weather| weather.lag = by);
                healed(length, self);
            }
            Fault::Refuse { process, share, code, length } => {
                self.api_weather(process, |weather| weather.refused = Some((share, code)));
                healed(length, self);
            }
            Fault::Lossy { process, share, length } => {
                self.api_weather(process, |weather| weather.lossy = share);
                healed(length, self);
            }
            Fault::EndWatches { process, mercy } => self.cut_watches(process, mercy),
            Fault::Compact => {
                let version = self.api.server.version();
                self.api.server.compact(version);
                (0..self.plan.replicas.len()).for_each(|process| self.cut_watches(process, true));
            }
            Fault::Outage { length } => {
                (0..self.plan.replicas.len())
                    .for_each(|process| self.api_weather(process, |weather| weather.cut = true));
                healed(length, self);
            }
            Fault::Crash { member } => {
                if let Some(number) = self.master_of(member) {
                    self.restart_master(number, 0, RESTART);
                } else if let Some(container) = self.container_of(member) {
                    self.inflict(&redlock_simulation::kube::cluster::Fault::Exit { container, code: 137 });
                }
            }
            Fault::CutAll { process, length } => {
                for way in self.ways_of(process) {
                    self.cut(&way, true, true);
                }
                healed(length, self);
            }
            Fault::Part { length } => {
                for process in 0..self.plan.replicas.len() {
                    if self.processes[process].name == self.oracle.leader {
                        self.fault(&Fault::CutAll { process, length });
                    } else {
                        // The replica reaches the API server again later than the leader reaches the members.
                        self.fault(&Fault::CutApi { process, length: length + 2_000_000 });
                    }
                }
            }
            Fault::Blackout { away } => {
                (0..self.plan.voters()).for_each(|member| self.fault(&Fault::Crash { member }));
                (0..self.plan.replicas.len()).for_each(|process| self.kill_process(process, away));
            }
            Fault::RestartMaster { number, kept, away } => self.restart_master(number, kept, away),
            Fault::FlushMaster { number } => self.flush_master(number),
            Fault::Forget { member } => {
                if let Some(server) = self.server_of(member) {
                    self.servers.all[server].server.forget();
                }
            }
            Fault::Cluster(mishap) => {
                if let Some(fault) = mishap.resolve(&self.cluster.cluster, &self.api.server) {
                    self.note(format_args!("{fault:?}"));
                    self.inflict(&fault);
                }
            }
            Fault::Standstill { how, length } => {
                self.pause_all(how, length);
                healed(length, self);
            }
            Fault::Relist { process, length } => {
                self.api_weather(process, |weather| weather.cut = true);
                healed(length, self);
            }
            Fault::DeafTo { process, kind, length } => {
                self.api_weather(process, |weather| weather.deaf_to = Some(kind));
                healed(length, self);
            }
            Fault::Sick { number, length } => {
                if let Some(pod) = self.pod_to_sicken(number) {
                    self.sicken(&pod, true);
                    self.queue.push(self.now + length, Event::Recovers { pod });
                }
            }
            Fault::Deed(deed) => self.deed(deed),
            Fault::AtLeader(ref fault) => {
                let leader = (0..self.plan.replicas.len()).find(|process| self.leads(*process));
                leader.into_iter().for_each(|process| self.fault(&fault.at(process)));
            }
            Fault::AtStandby(which, ref fault) => {
                let standby = (0..self.plan.replicas.len()).filter(|process| !self.leads(*process)).nth(which);
                standby.into_iter().for_each(|process| self.fault(&fault.at(process)));
            }
            Fault::Create(path, ref object) => drop(self.api_create(path, object)),
            Fault::DeleteLock(lock) => {
                self.api_request(
                    "DELETE",
                    &path_of("distributedlocks", lock),
                    "application/json",
                    &serde_json::json!({}),
                );
            }
            Fault::Annotate((plural, object), name, value) => {
                let patch = serde_json::json!({"metadata": {"annotations": {name: value}}});
                self.api_request("PATCH", &path_of(plural, object), "application/merge-patch+json", &patch);
            }
            Fault::Freeze { member, length } => {
                if let Some(server) = self.server_of(member) {
                    self.freeze_server(server);
                }
                healed(length, self);
            }
            Fault::StepMember { member, by } => {
                self.oracle.stepped = true;
                if let Some(server) = self.server_of(member) {
                    self.servers.all[server].wrong += by * 1_000;
                }
            }
            Fault::DeletePod { member } => {
                let path = format!("/api/v1/namespaces/{}/pods/q-{member}-0", SHOP);
                self.api_request("DELETE", &path, "application/json", &serde_json::Value::Null);
            }
        }
    }

    /// Lets no process run for this time.
    fn pause_all(&mut self, how: Pause, length: u64) {
        for process in 0..self.processes.len() {
            let drawn = hash(self.seed, [61, process as u64, self.now.0]) % 3;
            match (how, drawn) {
                (Pause::Stop, _) | (Pause::Mixed, 0) => self.processes[process].pace = Pace::Stopped,
                (Pause::Suspend, _) | (Pause::Mixed, 1) => self.processes[process].pace = Pace::Suspended,
                _ => self.kill_process(process, length),
            }
        }
    }

    /// A pod that holds a lock with a liveness check.
    fn pod_to_sicken(&self, number: u64) -> Option<String> {
        let locks = self.api.server.objects(Kind::DistributedLock);
        let asked = locks.filter(|lock| lock.value["spec"]["liveness"].is_object());
        let pods: Vec<String> =
            asked.filter_map(|lock| lock.value["status"]["holder"]["podUID"].as_str().map(str::to_owned)).collect();
        let number = usize::try_from(number % pods.len().max(1) as u64).unwrap_or(0);
        pods.get(number).cloned()
    }

    pub(crate) fn heal(&mut self, fault: &Fault) {
        self.note(format_args!("healed {fault:?}"));
        match *fault {
            Fault::Stop { process, .. } | Fault::Suspend { process, .. } => {
                self.processes[process].pace = Pace::Running;
            }
            Fault::Standstill { .. } => {
                self.processes.iter_mut().for_each(|process| process.pace = Pace::Running);
            }
            Fault::Cut { process, .. } | Fault::CutAll { process, .. } => {
                let ways: Vec<_> = self.network.ways.keys().filter(|way| way.0 == process).cloned().collect();
                ways.iter().for_each(|way| self.mend(way));
            }
            Fault::Slow { process, .. } => {
                let ways = self.network.ways.iter_mut().filter(|(way, _)| way.0 == process);
                ways.for_each(|(_, weather)| weather.slow = 0);
            }
            Fault::CutApi { process, .. } => self.api_weather(process, |weather| weather.cut = false),
            Fault::Relist { process, .. } => {
                let version = self.api.server.version();
                self.api.server.compact(version);
                self.cut_watches(process, true);
                self.api_weather(process, |weather| weather.cut = false);
            }
            Fault::DeafTo { process, .. } => self.api_weather(process, |weather| weather.deaf_to = None),
            Fault::SlowApi { process, .. } => self.api_weather(process, |weather| weather.slow = 0),
            Fault::Deaf { process, .. } => self.api_weather(process, |weather| weather.deaf = false),
            Fault::Lag { process, .. } => self.api_weather(process, |weather| weather.lag = 0),
            Fault::Refuse { process, .. } => self.api_weather(process, |weather| weather.refused = None),
            Fault::Lossy { process, .. } => self.api_weather(process, |weather| weather.lossy = 0),
            Fault::Outage { .. } => {
                (0..self.plan.replicas.len())
                    .for_each(|process| self.api_weather(process, |weather| weather.cut = false));
            }
            Fault::Freeze { member, .. } => {
                if let Some(server) = self.server_of(member) {
                    self.thaw_server(server);
                }
            }
            _ => {}
        }
    }

    /// Repairs all faults except wrong clocks and dead processes.
    pub(crate) fn heal_all(&mut self) {
        self.note(format_args!("everything heals"));
        for (_, fault) in self.plan.faults.clone() {
            self.heal(&fault);
        }
        for process in 0..self.plan.replicas.len() {
            self.heal(&Fault::CutAll { process, length: 0 });
            self.heal(&Fault::CutApi { process, length: 0 });
            self.heal(&Fault::Refuse { process, share: 0, code: 0, length: 0 });
            self.heal(&Fault::Lossy { process, share: 0, length: 0 });
        }
        self.cluster_heals();
        self.users_rest();
    }
}
