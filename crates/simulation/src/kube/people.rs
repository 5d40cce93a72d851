//! What people do, and programs in their place: random and valid.
//!
//! What is done is drawn before a run as a [`Deed`], a kind and a number. Carried out, the number chooses among what there is then; so
//! a plan can be printed, repeated and made shorter.

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

/// What people work with.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Namespaces of locks and of what holds them.
    pub namespaces: Vec<String>,
    /// `namespace/name` of the quorums; the first one is the default.
    pub quorums: Vec<(String, String)>,
    pub keys: Vec<String>,
    /// The largest maxTTL of a quorum, in milliseconds.
    pub max_ttl: u64,
    /// Members of each quorum at the beginning.
    pub members: u64,
    /// How many locks people keep about.
    pub locks: usize,
    pub habits: Habits,
}

/// How people write their locks: of a hundred so many.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Name a quorum. The others take the default.
    pub named: u64,
    /// Have two slots.
    pub slots: u64,
    /// Publish transitions only.
    pub transitions: u64,
    /// Claims that are held for a minimum.
    pub minimum: u64,
    /// Claims whose holders beat.
    pub heartbeats: u64,
    /// Claims that have their key for themselves.
    pub own_keys: u64,
    /// Have a priority.
    pub priority: u64,
    /// Times to live are near to the largest.
    pub long: bool,
    /// Everything that the API has is used.
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

/// A kind of deed, for choosing which exist in a run.
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
    /// A Job with annotations that ask for a lock.
    LockedJob,
    /// A Job, and a claim that names it.
    NamedJob,
    /// A claim with an identity that a pod owns.
    OwnedClaim,
}

impl DeedKind {
    /// All but those that need an operator which looks after Jobs.
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

    /// After these a holder is not protected as it was: an oracle has to know of them.
    pub fn gives_exclusion_up(self) -> bool {
        self == Self::BreakForce
    }
}

/// Something that people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deed {
    pub kind: DeedKind,
    pub number: u64,
}

/// An object that shall be there again when its name is free.
#[derive(Clone, Debug)]
struct Wish {
    kind: Kind,
    namespace: String,
    value: Value,
    not_before: Millis,
}

/// People, and what they remember.
#[derive(Debug)]
pub struct People {
    around: Surroundings,
    wishes: Vec<Wish>,
    /// Quorums that they will delete then.
    partings: Vec<(Millis, Shared)>,
    /// Claims whose holders beat no more.
    silent: BTreeSet<String>,
    made: u64,
    last_beat: Millis,
}

/// One deed being carried out.
struct Hands<'a> {
    api: &'a mut ApiServer,
    chance: Seeded,
    by: By<'static>,
}

/// Between two looks at heartbeats.
const BEAT_PERIOD: Millis = 300;

impl People {
    pub fn new(around: Surroundings) -> Self {
        Self { around, wishes: Vec::new(), partings: Vec::new(), silent: BTreeSet::new(), made: 0, last_beat: 0 }
    }

    /// Namespaces, quorums, and something that can hold locks.
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

    /// Does something; what it was, in words, or `None` if there was nothing to do it to.
    pub fn act(&mut self, deed: Deed, api: &mut ApiServer, now: Millis) -> Option<String> {
        let manager = if deed.number & 1 == 0 { "kubectl" } else { "argocd" };
        let mut hands = Hands { api, chance: Seeded(deed.number), by: By { now, manager } };
        let done = self.act_on_locks(deed.kind, &mut hands);
        let done = done.or_else(|| self.act_on_quorums(deed.kind, &mut hands));
        let done = done.or_else(|| self.act_on_locked_jobs(deed.kind, &mut hands));
        done.or_else(|| self.act_on_workloads(deed.kind, &mut hands)).map(|what| format!("{:?}: {what}", deed.kind))
    }

    /// Whatever people keep doing: they make again what they wished for, and holders beat. To be called every 100 ms or so.
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

    /// Wishes that have not come true yet.
    pub fn wishes(&self) -> usize {
        self.wishes.len()
    }

    /// Confirms members' predecessors that are dead, where the status asks for it. With `see_to_it` those that run are ended first,
    /// as by somebody who goes there; else only the truth is told. To be called now and then when all else has been healed.
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
                // The next one when this is seen.
                break;
            }
        }
        confirmed
    }

    /// Deletes members' pods whose kubelet has lost sight of a container: such a process may never be told from the one before it.
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

    /// Programs whose claims have `heartbeat` renew a Lease of the claim's name, three times as often as asked, also while they wait.
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

    /// A name that was not used before.
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
    /// One of the objects of a kind, if there is any that fits.
    fn any(&mut self, kind: Kind, fits: impl Fn(&Shared) -> bool) -> Option<Shared> {
        let all: Vec<Shared> = self.api.objects(kind).filter(|object| fits(object)).cloned().collect();
        self.chance.pick(&all).cloned()
    }

    /// A merge patch; what came of it, in words.
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

/// An object without what the server has added: as a person has it in a file.
fn manifest(object: &Shared) -> Value {
    let metadata = &object.value["metadata"];
    json!({"metadata": {"name": metadata["name"], "annotations": metadata["annotations"], "labels": metadata["labels"]},
        "spec": object.value["spec"]})
}

#[cfg(test)]
mod tests;
