//! The end of a run: a core is healthy again, and everything has to settle within a limit.

use std::collections::BTreeSet;

use redlock_api::{DistributedLock, DistributedLockStatus, RedisQuorum};

use crate::plan::Fault;
use crate::process::Pace;
use crate::rng::hash;
use crate::world::World;
use redlock_simulation::kube::api::{Kind, Shared};
use redlock_simulation::kube::users::master_name;

mod jobs;
mod refusals;

/// Maximum number of tasks of a replica without a quorum, and for each member.
///
/// The leader has some more than a standby.
const TASKS: usize = 30;
const TASKS_PER_MEMBER: usize = 4;
/// Each replica has a locking connection and an admin connection to each member.
const CONNECTIONS_PER_MEMBER: usize = 2;
/// Number of watches of a leader.
///
/// A standby has fewer.
const WATCHES: usize = 9;
/// The error of clocks, in milliseconds.
///
/// A published validity ends at most one ttl and this time in the future.
const CLOCKS: i64 = 2_000;
/// Longer than any run.
const FOR_EVER: u64 = 1_000_000_000_000;

impl World {
    /// Breaks everything except a core for the rest of the run.
    ///
    /// The core is a majority of each quorum's members, one replica, and the API server.
    pub(crate) fn break_all_but_a_core(&mut self) {
        let replicas = self.plan.replicas.len();
        // Choose a standby, so that the leader must hand over.
        let leads = |process: usize| self.processes[process].name == self.oracle.leader;
        let others: Vec<usize> = (0..replicas).filter(|process| !leads(*process)).collect();
        let drawn = usize::try_from(hash(self.seed, [40]) % others.len().max(1) as u64).unwrap_or(0);
        let core = others.get(drawn).copied().unwrap_or(0);
        for process in (0..replicas).filter(|process| *process != core) {
            let length = FOR_EVER;
            match hash(self.seed, [41, process as u64]) % 5 {
                0 => {
                    self.queue.forget_starts(process);
                    self.kill_process(process, length);
                }
                1 | 2 => self.cut_off(process),
                3 => self.fault(&Fault::CutApi { process, length }),
                _ => {}
            }
        }
        let first = usize::try_from(hash(self.seed, [42])).unwrap_or(0);
        // The list can have become shorter, and can still grow from one member. A majority of each list has to stay.
        let wanted = |quorum: &Shared| usize::try_from(quorum.value["spec"]["members"].as_u64()?).ok();
        let listed = |quorum: &Shared, list: &str| {
            quorum.value["status"][list].as_array().map(Vec::len).filter(|length| *length > 0)
        };
        let quorums = self.api.server.objects(Kind::RedisQuorum);
        let sizes = quorums
            .flat_map(|quorum| [wanted(quorum), listed(quorum, "voters"), listed(quorum, "formerVoters")])
            .flatten();
        let members = sizes.chain([self.plan.members]).min().unwrap_or(1) + self.plan.masters;
        let broken = if self.needs_all_masters() { 0 } else { members.saturating_sub(1) / 2 };
        for number in 0..broken {
            let member = (first + number) % members;
            let name = self.master_of(member).map_or_else(|| format!("q-{member}"), master_name);
            self.outsiders.insert(name);
            let length = FOR_EVER;
            match hash(self.seed, [43, member as u64]) % 3 {
                0 => self.fault(&Fault::Freeze { member, length }),
                1 => (0..replicas)
                    .for_each(|process| self.fault(&Fault::Cut { process, member, up: true, down: true, length })),
                _ => {}
            }
        }
    }

    /// Whether a quorum with external masters waits for one of them.
    ///
    /// Masters that restarted together have lost the quorum's record. Its next vote needs that record on every master.
    fn needs_all_masters(&self) -> bool {
        let is_voting = |quorum: &Shared| {
            let members = quorum.value["status"]["members"].as_array();
            members.is_some_and(|members| members.iter().all(|member| member["state"] == "Admitted"))
        };
        self.plan.masters > 0 && !self.api.server.objects(Kind::RedisQuorum).all(is_voting)
    }

    /// Lists deviations from the state that must follow when everything has been healthy for a while.
    pub(crate) fn unrest(&mut self) -> Vec<String> {
        let mut wrong = self.unrest_of_locks();
        wrong.extend(self.unrest_of_jobs());
        wrong.extend(self.unrest_of_electors());
        wrong.extend(self.unrest_of_quorums());
        wrong.extend(self.stray_labels());
        wrong.extend(self.stray_keys());
        wrong.extend(self.clients_without_secret());
        wrong.extend(self.leaks());
        wrong
    }

    fn locks(&self) -> Vec<(Shared, DistributedLock)> {
        let objects = self.api.server.objects(Kind::DistributedLock);
        objects
            .filter_map(|object| Some((object.clone(), serde_json::from_value(object.value.clone()).ok()?)))
            .collect()
    }

    fn unrest_of_locks(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let locks = self.locks();
        let now = self.api.stamp(self.now);
        for (object, lock) in &locks {
            let (name, status) = (object.name(), lock.status.clone().unwrap_or_default());
            if object.is_deleting() {
                // The claim of a pod is held until the pod's containers have ended, and a claim with minHold for that time.
                let minimum = lock.spec.min_hold.map_or(0, |minimum| minimum.get().as_millis() as i64);
                let is_protected = status.acquired_at.is_some_and(|at| at.as_millis() + minimum > now);
                if !self.owner_runs(object) && !is_protected {
                    wrong.push(format!("lock {name} is still Terminating: {:?}", status.conditions));
                }
                continue;
            }
            let accepted = refusals::accepted(object);
            let asks = !lock.spec.suspend && status.holder.is_none() && !is_finished(&status);
            if asks
                && accepted["status"] != "True"
                && let Some(why) = self.refused_wrongly(lock, &accepted)
            {
                wrong.push(format!("{name} would wait for {}, but {why}", lock.key()));
            }
            if self.is_eligible(lock, &status) && !locks.iter().any(|(_, other)| self.serves(other, lock)) {
                wrong.push(format!("nobody holds the key of {name}, {}: {:?}", lock.key(), status.conditions));
            }
            let slots = usize::try_from(lock.spec.slots).unwrap_or(1);
            let holders =
                locks.iter().filter(|(_, other)| other.spec.slots == lock.spec.slots && self.serves(other, lock));
            if slots > 1 && status.holder.is_none() && self.is_eligible(lock, &status) && holders.count() < slots {
                wrong.push(format!("{name} waits, and one of the {slots} slots of {} is free", lock.key()));
            }
            let Some(holder) = &status.holder else { continue };
            let ahead = status.valid_until.map_or(0, |until| until.as_millis() - now);
            let longest = i64::try_from(lock.spec.ttl.get().as_millis()).unwrap_or(0).max(self.plan.max_ttl as i64);
            let is_ahead = ahead > longest + CLOCKS;
            // Readers of this status believe it by the clock that was set back, so its end waits for that time.
            if is_ahead && status.ending.is_some() && self.plan.sets_clock() {
                continue;
            }
            if holder.container_id.as_ref().is_some_and(|id| !self.cluster.cluster.truth().is_running(id)) {
                wrong.push(format!("{name} is held by a container that has ended"));
            }
            if is_ahead {
                wrong.push(format!("{name} says that it is valid for {ahead} ms more"));
            }
        }
        wrong
    }

    fn owner_runs(&self, object: &Shared) -> bool {
        let owners = object.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners
            .filter(|owner| owner["kind"] == "Pod")
            .any(|owner| owner["uid"].as_str().is_some_and(|uid| self.cluster.cluster.truth().pod_runs(uid)))
    }

    /// Whether a claim or an election waits only for the key.
    fn is_eligible(&self, lock: &DistributedLock, status: &DistributedLockStatus) -> bool {
        let is_accepted = status.conditions.iter().any(|found| found.type_ == "Accepted" && found.status == "True");
        if lock.spec.suspend || !is_accepted || is_finished(status) {
            return false;
        }
        let namespace = lock.metadata.namespace.clone().unwrap_or_default();
        let runs = |pod: &Shared| self.cluster.cluster.truth().pod_runs(pod.uid()) && !pod.is_deleting();
        if let Some(claim) = &lock.spec.claim {
            if let Some(name) = &claim.job_name {
                return self.can_be_started(&namespace, name, claim.job_uid.as_deref());
            }
            let Some(name) = &claim.pod_name else { return claim.identity.is_some() && self.has_its_heartbeat(lock) };
            let pod = self.api.server.get(Kind::Pod, &namespace, name);
            return pod.is_some_and(|pod| {
                runs(&pod) && is_ready(&pod) && claim.pod_uid.as_ref().is_none_or(|uid| uid == pod.uid())
            });
        }
        let Some(election) = &lock.spec.election else { return false };
        let labels = election.selector.match_labels.clone().unwrap_or_default();
        let pods = self.api.server.objects(Kind::Pod).filter(|pod| pod.namespace() == namespace);
        let mut fitting = pods.filter(|pod| labels.iter().all(|(name, value)| pod.label(name) == Some(value)));
        fitting.any(|pod| runs(pod) && is_ready(pod))
    }

    /// Whether `holder` holds the key that `lock` waits for.
    fn serves(&self, holder: &DistributedLock, lock: &DistributedLock) -> bool {
        // The validity of an ending hold must end before another lock gets the key.
        let now = self.api.stamp(self.now) - CLOCKS;
        let ends = |status: &DistributedLockStatus| {
            status.ending.as_ref().map(|ending| ending.until.map(|until| until.as_millis()))
        };
        let status = holder
            .status
            .as_ref()
            .filter(|status| ends(status).is_none_or(|until| until.is_some_and(|until| until > now)));
        let Some(held) = status.and_then(|status| status.holder.as_ref()) else { return false };
        let verbatim =
            self.api.server.objects(Kind::RedisQuorum).any(|found| found.value["spec"]["keys"] == "Verbatim");
        let same =
            holder.key() == lock.key() || verbatim && holder.spec.key.is_some() && holder.spec.key == lock.spec.key;
        let here =
            |name: &str| self.plan.shares_masters() || held.quorum.as_ref().is_some_and(|quorum| quorum.name == name);
        same && lock.spec.quorum_ref.as_ref().is_none_or(|reference| here(&reference.name))
    }

    fn unrest_of_quorums(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for object in self.api.server.objects(Kind::RedisQuorum) {
            let members = object.value["status"]["members"].as_array().cloned().unwrap_or_default();
            let count =
                usize::try_from(object.value["spec"]["members"].as_u64().unwrap_or_default()).unwrap_or_default();
            let waits = |name: &str| {
                !self.outsiders.contains(name)
                    && !members.iter().any(|member| member["name"] == name && member["state"] == "Admitted")
            };
            let externals = object.value["spec"]["external"].as_array().into_iter().flatten();
            let externals = externals.filter_map(|master| master["name"].as_str().map(str::to_owned));
            let wanted: BTreeSet<String> =
                (0..count).map(|member| format!("{}-{member}", object.name())).chain(externals).collect();
            let waiting: Vec<&String> = wanted.iter().filter(|name| waits(name)).collect();
            if object.is_deleting() || !waiting.is_empty() {
                wrong.push(format!("quorum {} is not ready: {waiting:?} are not admitted", object.name()));
            }
            let list = |field: &str| -> BTreeSet<String> {
                let names = object.value["status"][field].as_array().into_iter().flatten();
                names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
            };
            let (voters, former) = (list("voters"), list("formerVoters"));
            if !self.plan.core && (voters != wanted || !former.is_empty()) {
                let name = object.name();
                wrong.push(format!("the change of quorum {name} has not ended: {former:?} to {voters:?}"));
            }
        }
        wrong
    }

    /// Keys on members that no status names.
    fn stray_keys(&mut self) -> Vec<String> {
        let mut named: Vec<String> = Vec::new();
        for (_, lock) in self.locks() {
            let Some(status) = lock.status else { continue };
            named.extend(status.holder.and_then(|holder| holder.nonce));
        }
        let (now, mut stray) = (self.now, Vec::new());
        for host in self.servers.all.iter_mut().filter(|host| host.is_up()) {
            let clock = host.wall(now);
            for (key, value, left) in host.server.strings(clock) {
                if !key.starts_with('#') && !named.iter().any(|nonce| value.starts_with(nonce.as_str())) {
                    stray.push(format!("{} still has {key} for {left:?}", host.name));
                }
            }
        }
        stray
    }

    /// Tasks, watches and connections of healthy replicas beyond the expected numbers.
    fn leaks(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.plan.core {
            return wrong;
        }
        let quorums = self.api.server.objects(Kind::RedisQuorum);
        let quorums = quorums.filter_map(|object| serde_json::from_value::<RedisQuorum>(object.value.clone()).ok());
        let members =
            quorums.map(|quorum| usize::try_from(quorum.spec.members).unwrap_or_default() + quorum.spec.external.len());
        let members: usize = members.sum();
        let replicas = self.processes.iter().enumerate().take(self.plan.replicas.len());
        for (number, process) in replicas.filter(|(_, process)| process.lives() && process.pace == Pace::Running) {
            let counts = (process.tasks(), self.api.watches(number), self.network.count(number));
            let most = (
                TASKS + TASKS_PER_MEMBER * members,
                WATCHES + usize::from(self.plan.jobs),
                CONNECTIONS_PER_MEMBER * members,
            );
            if counts.0 > most.0 || counts.1 > most.1 || counts.2 > most.2 {
                wrong.push(format!("{} has {counts:?} tasks, watches, connections, and needs {most:?}", process.name));
            }
        }
        wrong
    }

    /// Checks the end of the run.
    pub(crate) fn finish(&mut self) {
        for (number, process) in self.processes.iter().enumerate().take(self.plan.replicas.len()) {
            let (tasks, watches, connections) = (process.tasks(), self.api.watches(number), self.network.count(number));
            self.trace.add(
                self.now,
                format_args!("{}: {tasks} tasks, {watches} watches, {connections} connections", process.name),
            );
        }
        for server in &self.servers.all {
            let missing = server.server.not_modelled();
            if !missing.is_empty() {
                let what = format!("{} was asked for what is not modelled: {missing:?}", server.name);
                self.oracle.violations.push(what);
            }
        }
        let wrong = self.unrest();
        self.oracle.violations.extend(wrong.into_iter().map(|what| format!("at the end: {what}")));
    }
}

fn is_finished(status: &DistributedLockStatus) -> bool {
    status.conditions.iter().any(|found| found.type_ == "Finished" && found.status == "True")
}

fn is_ready(pod: &Shared) -> bool {
    let conditions = pod.value["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == "Ready" && found["status"] == "True")
}
