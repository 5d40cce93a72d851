//! Which locks to look at again when something else changed.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::{
    api::{
        DistributedLock,
        conditions::{HeldReason, LockCondition, find_condition, is_true},
    },
    operator::cache::Change,
};

type LockRef = ObjectRef<DistributedLock>;

/// Locks by what they depend on.
#[derive(Debug, Default)]
pub struct Index(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_key: HashMap<String, HashSet<LockRef>>,
    bound_to: HashMap<Bond, HashSet<LockRef>>,
    facts: HashMap<LockRef, Facts>,
    node_states: HashMap<String, Option<String>>,
}

/// Which pods a lock depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bond {
    /// The one of this namespace and name.
    Pod(String, String),
    /// Any in this namespace.
    Namespace(String),
}

impl Bond {
    fn of(lock: &DistributedLock) -> Option<Self> {
        let namespace = lock.namespace().unwrap_or_default();
        let claim = lock.spec.claim.as_ref();
        let owned_by = |kind: &str| lock.owner_references().iter().find(|owner| owner.kind == kind);
        if lock.spec.election.is_some() || owned_by("Job").is_some() {
            return Some(Self::Namespace(namespace));
        }
        let pod = match (claim.and_then(|claim| claim.pod_name.clone()), owned_by("Pod")) {
            (Some(pod), None) => pod,
            (None, Some(owner)) => owner.name.clone(),
            (None, None) => return None,
            (Some(_), Some(_)) => return Some(Self::Namespace(namespace)),
        };
        Some(Self::Pod(namespace, pod))
    }
}

/// What others on the key, or pods, care about. Renewals change none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    key: String,
    bond: Option<Bond>,
    generation: Option<i64>,
    nonce: Option<String>,
    /// Not so: it is passed over in the queue.
    able: bool,
    over: bool,
}

impl Facts {
    fn of(lock: &DistributedLock) -> Self {
        let status = lock.status.as_ref();
        let held = status.and_then(|status| find_condition(&status.conditions, LockCondition::Held));
        let finished = status.is_some_and(|status| is_true(&status.conditions, LockCondition::Finished));
        Self {
            key: spec_key(lock),
            bond: Bond::of(lock),
            able: held.is_none_or(|held| held.reason != HeldReason::NoCandidate.as_str()),
            generation: lock.metadata.generation,
            nonce: status.and_then(|status| status.holder.as_ref()?.nonce.clone()),
            over: finished || lock.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The key as the spec gives it. Locks with the same Redis key have the same spec key, not the other way round.
fn spec_key(lock: &DistributedLock) -> String {
    lock.key()
}

impl Index {
    /// Takes a change of a lock; gives the other locks on its key if it matters to them.
    pub fn lock_changed(&self, change: &Change<DistributedLock>) -> Vec<LockRef> {
        let lock = change.object();
        let reference = LockRef::from_obj(&**lock);
        let mut inner = self.inner();
        let facts = Facts::of(lock);
        let (key, before) = (facts.key.clone(), inner.facts.remove(&reference));
        if let Some(before) = before.as_ref().filter(|before| before.bond != facts.bond || before.key != key) {
            inner.unlink(before, &reference);
        }
        let matters = match change {
            Change::Applied(_) => {
                inner.by_key.entry(key.clone()).or_default().insert(reference.clone());
                if let Some(bond) = facts.bond.clone() {
                    inner.bound_to.entry(bond).or_default().insert(reference.clone());
                }
                inner.facts.insert(reference.clone(), facts.clone());
                before != Some(facts)
            }
            Change::Deleted(_) | Change::Vanished(_) => {
                inner.unlink(&facts, &reference);
                true
            }
        };
        if !matters {
            return Vec::new();
        }
        inner.by_key.get(&key).into_iter().flatten().filter(|other| **other != reference).cloned().collect()
    }

    /// All locks with the same key in their spec, itself included.
    pub fn sharing_key(&self, lock: &DistributedLock) -> Vec<LockRef> {
        self.inner().by_key.get(&spec_key(lock)).into_iter().flatten().cloned().collect()
    }

    /// The locks that depend on this pod.
    pub fn pod_changed(&self, pod: &Pod) -> Vec<LockRef> {
        let (namespace, inner) = (pod.namespace().unwrap_or_default(), self.inner());
        let bonds = [Bond::Pod(namespace.clone(), pod.name_any()), Bond::Namespace(namespace)];
        bonds.iter().filter_map(|bond| inner.bound_to.get(bond)).flatten().cloned().collect()
    }

    /// The locks that depend on pods, if the node's readiness changed (its heartbeats matter to nobody). All of them: how many nodes
    /// are silent decides about each.
    pub fn node_changed(&self, change: &Change<Node>) -> Vec<LockRef> {
        let node = change.object();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|c| c.type_ == "Ready").map(|c| c.status.clone());
        let mut inner = self.inner();
        let same = match change {
            Change::Applied(_) => inner.node_states.insert(node.name_any(), ready.clone()) == Some(ready),
            Change::Deleted(_) | Change::Vanished(_) => {
                inner.node_states.remove(&node.name_any());
                false
            }
        };
        if same { Vec::new() } else { inner.bound_to.values().flatten().cloned().collect() }
    }

    /// The locks that depend on pods.
    pub fn bound(&self) -> Vec<LockRef> {
        self.inner().bound_to.values().flatten().cloned().collect()
    }

    /// Every lock.
    pub fn all(&self) -> Vec<LockRef> {
        self.inner().facts.keys().cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn unlink(&mut self, facts: &Facts, reference: &LockRef) {
        remove(&mut self.by_key, &facts.key, reference);
        if let Some(bond) = &facts.bond {
            remove(&mut self.bound_to, bond, reference);
        }
    }
}

fn remove<K: Eq + Hash>(map: &mut HashMap<K, HashSet<LockRef>>, key: &K, reference: &LockRef) {
    if let Some(references) = map.get_mut(key) {
        references.remove(reference);
        if references.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn claim(name: &str, key: &str) -> DistributedLock {
        serde_json::from_value(json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1},
            "spec": {"key": key, "claim": {"identity": name}}, "status": {"transitions": 0}
        }))
        .unwrap()
    }

    fn applied(lock: &DistributedLock) -> Change<DistributedLock> {
        Change::Applied(Arc::new(lock.clone()))
    }

    #[test]
    fn a_release_is_told_to_the_others_on_the_key_and_a_renewal_is_not() {
        let index = Index::default();
        let mut holder = claim("a", "k");
        holder.status.as_mut().unwrap().holder =
            Some(crate::api::LockHolder { nonce: Some("n".into()), ..Default::default() });
        let waiter = claim("b", "k");
        index.lock_changed(&applied(&holder));
        index.lock_changed(&applied(&claim("c", "other")));
        assert_eq!(index.lock_changed(&applied(&waiter)), vec![LockRef::from_obj(&holder)]);
        holder.status.as_mut().unwrap().votes = Some("3/3".into());
        assert!(index.lock_changed(&applied(&holder)).is_empty());
        holder.status.as_mut().unwrap().holder = None;
        assert_eq!(index.lock_changed(&applied(&holder)), vec![LockRef::from_obj(&waiter)]);
        assert_eq!(index.lock_changed(&Change::Deleted(Arc::new(holder))), vec![LockRef::from_obj(&waiter)]);
        assert_eq!(index.sharing_key(&waiter), vec![LockRef::from_obj(&waiter)]);
    }

    #[test]
    fn a_pod_concerns_the_locks_that_are_bound_to_it_only() {
        let index = Index::default();
        let mut bound = claim("bound", "k");
        bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
        let mut election = claim("election", "e");
        election.spec.claim = None;
        election.spec.election = Some(Default::default());
        index.lock_changed(&applied(&bound));
        index.lock_changed(&applied(&claim("free", "k2")));
        index.lock_changed(&applied(&election));
        let concerned = |namespace: &str, name: &str| {
            let pod = json!({"metadata": {"namespace": namespace, "name": name}});
            index.pod_changed(&serde_json::from_value::<Pod>(pod).unwrap())
        };
        assert_eq!(concerned("ns", "p"), vec![LockRef::from_obj(&bound), LockRef::from_obj(&election)]);
        assert_eq!(concerned("ns", "q"), vec![LockRef::from_obj(&election)], "any pod may be a candidate");
        assert!(concerned("elsewhere", "p").is_empty());
    }

    #[test]
    fn a_lock_that_is_seen_again_concerns_nobody() {
        let index = Index::default();
        let locks: Vec<_> = (0..100).map(|number| applied(&claim(&format!("claim-{number}"), "k"))).collect();
        let first: usize = locks.iter().map(|lock| index.lock_changed(lock).len()).sum();
        assert_eq!(first, 100 * 99 / 2, "each is news to those before it");
        let again: usize = locks.iter().map(|lock| index.lock_changed(lock).len()).sum();
        assert_eq!(again, 0, "so a new term fills the index first, and looks at each lock once");
    }

    #[test]
    fn a_heartbeat_of_a_node_concerns_nobody() {
        let index = Index::default();
        let mut bound = claim("bound", "k");
        bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
        index.lock_changed(&applied(&bound));
        let node = |ready: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
            .unwrap()
        };
        let node = |ready: &str| Change::Applied(Arc::new(node(ready)));
        index.node_changed(&node("True"));
        assert!(index.node_changed(&node("True")).is_empty());
        assert_eq!(index.node_changed(&node("Unknown")).len(), 1);
    }
}
