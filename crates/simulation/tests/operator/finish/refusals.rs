//! Checks the end of a run for locks that the operator does not accept: each refusal has to be true.

use redlock_api::{DistributedLock, GoDuration};
use serde_json::{Value, json};

use crate::users::SHOP;
use crate::world::World;
use redlock_simulation::kube::api::{Kind, Shared};

/// An upper limit of every quorum's shortest ttl here, in milliseconds.
///
/// The real one follows from its timeouts.
const SHORTEST_TTL: u128 = 1_000;

impl World {
    /// The quorum that a lock names, or the quorums that are the default at some time.
    fn quorums_of(&self, lock: &DistributedLock) -> Vec<Shared> {
        let quorums = self.api.server.objects(Kind::RedisQuorum).cloned();
        let Some(reference) = &lock.spec.quorum_ref else { return quorums.collect() };
        let namespace = reference.namespace.clone().or_else(|| lock.metadata.namespace.clone());
        let is_it = |quorum: &Shared| {
            quorum.name() == reference.name && namespace.as_deref().unwrap_or(SHOP) == quorum.namespace()
        };
        quorums.filter(is_it).collect()
    }

    /// Returns why the lock should be accepted, if the reason of its condition Accepted is false.
    pub(super) fn refused_wrongly(&self, lock: &DistributedLock, accepted: &Value) -> Option<String> {
        let quorums = self.quorums_of(lock);
        let reason = accepted["reason"].as_str().unwrap_or("none");
        let ttl = lock.spec.ttl.get();
        let wanted = ttl + lock.spec.lock_delay.map_or_else(Default::default, GoDuration::get);
        let exceeds = |quorum: &Shared| {
            let most = serde_json::from_value::<GoDuration>(quorum.value["spec"]["maxTTL"].clone());
            most.is_ok_and(|most| wanted > most.get())
        };
        let same_key = |other: &Shared| {
            other.value["spec"]["key"].as_str().unwrap_or(other.name()) == lock.key()
                && other.value["spec"]["slots"].as_i64().unwrap_or(1) != i64::from(lock.spec.slots)
        };
        let other_election = |other: &Shared| {
            lock.spec.election.is_some()
                && other.value["spec"]["election"].is_object()
                && Some(other.uid()) != lock.metadata.uid.as_deref()
                && other.value["spec"]["key"].as_str().unwrap_or(other.name()) == lock.key()
        };
        let conflicts = |other: &Shared| same_key(other) || other_election(other);
        let is_true = match reason {
            "TTLTooLong" => quorums.iter().any(exceeds),
            "TTLTooShort" => ttl.as_millis() < SHORTEST_TTL,
            "KeyShapeConflict" => self.api.server.objects(Kind::DistributedLock).any(conflicts),
            "QuorumNotFound" => quorums.is_empty() || lock.spec.quorum_ref.is_none(),
            "QuorumNotReady" => quorums.iter().all(|quorum| quorum.value["status"]["members"].is_null()),
            "NamespaceNotAllowed" => {
                let allows_all = |quorum: &Shared| quorum.value["spec"]["allowedNamespaces"]["from"] == "All";
                quorums.is_empty() || !quorums.iter().all(allows_all)
            }
            "TooManyLocks" => self.is_full(lock),
            _ => false,
        };
        (!is_true).then(|| format!("it is refused for what is not so: {accepted}"))
    }

    /// Whether the namespace of a lock has more locks than the operator's limit.
    fn is_full(&self, lock: &DistributedLock) -> bool {
        let namespace = lock.metadata.namespace.as_deref().unwrap_or_default();
        let locks = self.api.server.objects(Kind::DistributedLock).filter(|other| other.namespace() == namespace);
        self.plan.limit > 0 && locks.count() > self.plan.limit
    }
}

/// The condition Accepted in the status of a lock.
pub(super) fn accepted(object: &Shared) -> Value {
    let conditions = object.value["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|found| found["type"] == "Accepted");
    conditions.next().cloned().unwrap_or_else(|| json!({"status": "Unknown"}))
}
