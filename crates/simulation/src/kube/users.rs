//! Random and valid actions of users and of their programs.
//!
//! A plan draws each action before the run as a [`Deed`]: a kind and a number. At run time the number chooses among the
//! existing objects. Therefore a plan can be printed, repeated and shortened.

use std::collections::BTreeSet;

use redlock_api::{PREDECESSOR_DEAD_ANNOTATION, QUORUM_LABEL};
use serde_json::{Value, json};

use super::Millis;
use super::api::{ApiServer, By, DeleteOptions, Kind, Part, Propagation, Shared};
use super::chance::{Chance, Seeded};
use super::cluster::Cluster;

mod locked_jobs;
mod locks;
mod quorums;
mod specs;
mod workloads;

/// The objects that users work with.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Namespaces of locks and of their holders.
    pub namespaces: Vec<String>,
    /// Namespace and name of each quorum. The first one is the default.
    pub quorums: Vec<(String, String)>,
    pub keys: Vec<String>,
    /// The largest maxTTL of a quorum, in milliseconds.
    pub max_ttl: u64,
    /// Members of each quorum at the beginning.
    pub members: u64,
    /// External masters of each quorum at the beginning, and further ones that users can list.
    pub masters: usize,
    pub spare_masters: usize,
    /// How many locks users keep.
    pub locks: usize,
    pub habits: Habits,
}

/// The Secrets with the user of the external masters have this name, a dash, and the name of the quorum.
pub const MASTERS_SECRET: &str = "masters";

/// The name of an external master.
pub fn master_name(number: usize) -> String {
    format!("vm-{number}")
}

/// The address of an external master.
pub fn master_address(number: usize) -> String {
    format!("{}.example:6379", master_name(number))
}

/// How users write their locks, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Locks that name a quorum.
    ///
    /// The rest take the default.
    pub named: u64,
    /// Locks with two slots.
    pub slots: u64,
    /// Locks that publish transitions only.
    pub transitions: u64,
    /// Claims with `minHold`.
    pub minimum: u64,
    /// Claims with a heartbeat.
    pub heartbeats: u64,
    /// Claims that share their key with no other claim.
    pub own_keys: u64,
    /// Claims with a priority.
    pub priority: u64,
    /// Whether times to live are near the maximum.
    pub long: bool,
    /// Whether all fields of the API are used.
    pub wide: bool,
}

impl Habits {
    pub const USUAL: Self = Self {
        named: 50,
        slots: 8,
        transitions: 25,
        minimum: 10,
        heartbeats: 12,
        own_keys: 0,
        priority: 12,
        long: false,
        wide: false,
    };
}

/// A kind of deed.
///
/// A run chooses which kinds it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeedKind {
    Claim,
    PodClaim,
    JobClaim,
    ForeignClaim,
    Elect,
    EditLock,
    Suspend,
    StepDown,
    Release,
    Break,
    BreakForce,
    DeleteLock,
    RecreateLock,
    EditLockStatus,
    StopBeating,
    MoveLabel,
    EditQuorum,
    LowerMaxTtl,
    Resize,
    Roll,
    Rotate,
    MoveDefault,
    RecreateQuorum,
    ForceQuorum,
    EditQuorumStatus,
    Meddle,
    DeleteNamespace,
    DeletePod,
    EndJob,
    SuspendJob,
    EndOwner,
    Scale,
    Rollout,
    /// A Job with annotations that request a lock.
    LockedJob,
    /// A Job, and a claim that names it.
    NamedJob,
    /// A claim with an identity that a pod owns.
    OwnedClaim,
    /// The membership epoch in the status of a quorum.
    EditEpoch,
    /// Another external master in the list of a quorum.
    ReplaceMaster,
}

impl DeedKind {
    /// All kinds except those that only some ranges of seeds have.
    pub const ALL: [Self; 33] = [
        Self::Claim,
        Self::PodClaim,
        Self::JobClaim,
        Self::ForeignClaim,
        Self::Elect,
        Self::EditLock,
        Self::Suspend,
        Self::StepDown,
        Self::Release,
        Self::Break,
        Self::BreakForce,
        Self::DeleteLock,
        Self::RecreateLock,
        Self::EditLockStatus,
        Self::StopBeating,
        Self::MoveLabel,
        Self::EditQuorum,
        Self::LowerMaxTtl,
        Self::Resize,
        Self::Roll,
        Self::Rotate,
        Self::MoveDefault,
        Self::RecreateQuorum,
        Self::ForceQuorum,
        Self::EditQuorumStatus,
        Self::Meddle,
        Self::DeleteNamespace,
        Self::DeletePod,
        Self::EndJob,
        Self::SuspendJob,
        Self::EndOwner,
        Self::Scale,
        Self::Rollout,
    ];
}

/// One action of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    pub kind: DeedKind,
    pub number: u64,
}

/// An object that users create again when its name is free.
#[derive(Clone, Debug)]
struct Wish {
    kind: Kind,
    namespace: String,
    value: Value,
    not_before: Millis,
}

/// Users, and the state that they keep.
#[derive(Debug)]
pub struct Users {
    around: Surroundings,
    wishes: Vec<Wish>,
    /// Quorums that users delete, and the time of each deletion.
    partings: Vec<(Millis, Shared)>,
    /// Claims whose holders have stopped their heartbeat.
    silent: BTreeSet<String>,
    made: u64,
    last_beat: Millis,
}

/// The context in which one deed is carried out.
struct Hands<'a> {
    api: &'a mut ApiServer,
    chance: Seeded,
    by: By<'static>,
}

/// The interval between two checks of the heartbeats.
const BEAT_PERIOD: Millis = 300;

impl Users {
    pub fn new(around: Surroundings) -> Self {
        Self { around, wishes: Vec::new(), partings: Vec::new(), silent: BTreeSet::new(), made: 0, last_beat: 0 }
    }

    /// Creates namespaces, quorums, and workloads that can hold locks.
    pub fn furnish(&mut self, number: u64, api: &mut ApiServer, now: Millis) {
        let mut hands = Hands { api, chance: Seeded(number), by: By { now, manager: "kubectl" } };
        let mut namespaces: Vec<&String> = self.around.namespaces.iter().collect();
        namespaces.extend(self.around.quorums.iter().map(|(namespace, _)| namespace));
        for namespace in namespaces {
            let _ = hands.api.create(Kind::Namespace, "", json!({"metadata": {"name": namespace}}), hands.by);
        }
        for index in 0..self.around.quorums.len() {
            let (namespace, value) = self.quorum(index, &mut hands.chance);
            let _ = hands.api.create(Kind::RedisQuorum, &namespace, value, hands.by);
        }
        for namespace in self.around.namespaces.clone() {
            self.deploy(&namespace, &mut hands);
        }
    }

    /// Carries a deed out.
    ///
    /// Returns its description, or `None` if no object fits.
    pub fn act(&mut self, deed: Deed, api: &mut ApiServer, now: Millis) -> Option<String> {
        let manager = if deed.number & 1 == 0 { "kubectl" } else { "argocd" };
        let mut hands = Hands { api, chance: Seeded(deed.number), by: By { now, manager } };
        let done = self.act_on_locks(deed.kind, &mut hands);
        let done = done.or_else(|| self.act_on_quorums(deed.kind, &mut hands));
        let done = done.or_else(|| self.act_on_locked_jobs(deed.kind, &mut hands));
        done.or_else(|| self.act_on_workloads(deed.kind, &mut hands)).map(|what| format!("{:?}: {what}", deed.kind))
    }

    /// Creates wanted objects again, and renews heartbeats.
    ///
    /// Call it about every 100 ms.
    pub fn tick(&mut self, api: &mut ApiServer, now: Millis) {
        let by = By { now, manager: "kubectl" };
        for (_, quorum) in self.partings.extract_if(.., |(then, _)| *then <= now) {
            let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
            let _ = api.delete(Kind::RedisQuorum, (quorum.namespace(), quorum.name()), &options, by);
        }
        self.wishes.retain(|wish| {
            let ready = now >= wish.not_before;
            !ready
                || api
                    .create(wish.kind, &wish.namespace, wish.value.clone(), by)
                    .is_err_and(|refusal| refusal.code != 422)
        });
        if now - self.last_beat >= BEAT_PERIOD {
            self.last_beat = now;
            self.beat(api, now);
        }
    }

    /// Number of objects that users want and that do not exist.
    pub fn wishes(&self) -> usize {
        self.wishes.len()
    }

    /// Confirms the deaths of members' predecessors that a status requests.
    ///
    /// With `see_to_it` the user first ends the processes that still run. Otherwise the user confirms only deaths that
    /// have happened. Call it repeatedly after all other faults are healed.
    pub fn confirm(&mut self, api: &mut ApiServer, cluster: &mut Cluster, see_to_it: bool, now: Millis) -> usize {
        let quorums: Vec<Shared> = api.objects(Kind::RedisQuorum).cloned().collect();
        let mut confirmed = 0;
        for quorum in quorums {
            for uid in quorums::asked_for(&quorum) {
                if see_to_it {
                    cluster.end_pod(&uid, now);
                }
                let before = quorum.annotation(PREDECESSOR_DEAD_ANNOTATION).unwrap_or_default();
                if before.split(',').any(|known| known == uid) || cluster.truth().pod_runs(&uid) {
                    continue;
                }
                let all = if before.is_empty() { uid } else { format!("{before},{uid}") };
                let patch = json!({"metadata": {"annotations": {PREDECESSOR_DEAD_ANNOTATION: all}}});
                let here = (quorum.namespace(), quorum.name());
                let by = By { now, manager: "kubectl" };
                confirmed += usize::from(api.merge(Kind::RedisQuorum, here, &patch, Part::Main, by).is_ok());
                // The user confirms the next death when this confirmation is in force.
                break;
            }
        }
        confirmed
    }

    /// Deletes pods of members whose kubelet cannot locate a container.
    ///
    /// Nothing else distinguishes such a process from its predecessor.
    pub fn replace_lost(&mut self, api: &mut ApiServer, now: Millis) {
        let lost = |pod: &&Shared| {
            let containers = pod.value["status"]["containerStatuses"].as_array().into_iter().flatten();
            let mut reasons = containers.map(|container| &container["lastState"]["terminated"]["reason"]);
            pod.label(QUORUM_LABEL).is_some()
                && !pod.is_deleting()
                && reasons.any(|reason| reason == "ContainerStatusUnknown")
        };
        let lost: Vec<Shared> = api.objects(Kind::Pod).filter(lost).cloned().collect();
        let by = By { now, manager: "kubectl" };
        for pod in lost {
            let _ = api.delete(Kind::Pod, (pod.namespace(), pod.name()), &DeleteOptions::default(), by);
        }
    }

    /// Renews the Lease of each claim with `heartbeat`, at three times the required rate.
    ///
    /// Programs renew it even while they wait for the lock.
    fn beat(&mut self, api: &mut ApiServer, now: Millis) {
        let claims: Vec<Shared> = api
            .objects(Kind::DistributedLock)
            .filter(|lock| {
                let finished = lock.value["status"]["conditions"].as_array().into_iter().flatten();
                let mut finished = finished.filter(|one| one["type"] == "Finished" && one["status"] == "True");
                lock.value["spec"]["claim"]["heartbeat"].is_string() && finished.next().is_none()
            })
            .filter(|lock| !self.silent.contains(lock.uid()))
            .cloned()
            .collect();
        for claim in claims {
            let here = (claim.namespace(), claim.name());
            let spec = json!({"renewTime": format!("{}.{:06}Z", seconds_part(now), now.rem_euclid(1_000) * 1_000)});
            let by = By { now, manager: "holder" };
            let beaten = api.merge(Kind::Lease, here, &json!({"spec": spec}), Part::Main, by);
            if beaten.is_err() {
                let lease = json!({"metadata": {"name": here.1}, "spec": spec});
                let _ = api.create(Kind::Lease, here.0, lease, by);
            }
        }
    }

    /// A name that no earlier object had.
    fn name(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}-{}", self.made)
    }

    fn wish(&mut self, kind: Kind, namespace: &str, value: Value, not_before: Millis) {
        self.wishes.push(Wish { kind, namespace: namespace.to_owned(), value, not_before });
    }
}

fn seconds_part(now: Millis) -> String {
    super::api::seconds(now).trim_end_matches('Z').to_owned()
}

impl Hands<'_> {
    /// Picks one of the objects of a kind that fit.
    fn any(&mut self, kind: Kind, fits: impl Fn(&Shared) -> bool) -> Option<Shared> {
        let all: Vec<Shared> = self.api.objects(kind).filter(|object| fits(object)).cloned().collect();
        self.chance.pick(&all).cloned()
    }

    /// Sends a merge patch.
    ///
    /// Returns a description of the result.
    fn patch(&mut self, kind: Kind, object: &Shared, patch: &Value, part: Part) -> String {
        let here = (object.namespace(), object.name());
        let outcome = self.api.merge(kind, here, patch, part, self.by);
        let outcome = outcome.map_or_else(|refusal| format!(" refused with {}", refusal.code), |_| String::new());
        format!("{}/{} {patch}{outcome}", here.0, here.1)
    }

    fn delete(&mut self, kind: Kind, object: &Shared, options: &DeleteOptions) -> String {
        let _ = self.api.delete(kind, (object.namespace(), object.name()), options, self.by);
        format!("{}/{} {:?}", object.namespace(), object.name(), options.propagation)
    }

    fn create(&mut self, kind: Kind, namespace: &str, value: Value) -> (String, Option<Shared>) {
        let words = format!("{namespace}/{} {}", value["metadata"]["name"].as_str().unwrap_or_default(), value["spec"]);
        match self.api.create(kind, namespace, value, self.by) {
            Ok(made) => (words, Some(made)),
            Err(refusal) => (format!("{words} refused with {}: {}", refusal.code, refusal.message), None),
        }
    }
}

/// The object without the fields that the server added, as a user keeps it in a file.
fn manifest(object: &Shared) -> Value {
    let metadata = &object.value["metadata"];
    json!({"metadata": {"name": metadata["name"], "annotations": metadata["annotations"], "labels": metadata["labels"]},
        "spec": object.value["spec"]})
}

#[cfg(test)]
mod tests;
