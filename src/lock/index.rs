//! Which locks to look at again when something else changed.

use std::{
    collections::{HashMap, HashSet},
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
    bound_in: HashMap<String, HashSet<LockRef>>,
    facts: HashMap<LockRef, Facts>,
    node_states: HashMap<String, Option<String>>,
}

/// What others on the key, or pods, care about. Renewals change none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    key: String,
    bound: bool,
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
            bound: lock.spec.election.is_some()
                || lock.spec.claim.as_ref().is_some_and(|claim| claim.pod_name.is_some())
                || lock.owner_references().iter().any(|owner| owner.kind == "Job" || owner.kind == "Pod"),
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
        let namespace = lock.namespace().unwrap_or_default();
        let matters = match change {
            Change::Applied(_) => {
                inner.by_key.entry(facts.key.clone()).or_default().insert(reference.clone());
                if facts.bound {
                    inner.bound_in.entry(namespace).or_default().insert(reference.clone());
                }
                inner.facts.insert(reference.clone(), facts.clone()) != Some(facts.clone())
            }
            Change::Deleted(_) | Change::Vanished(_) => {
                inner.facts.remove(&reference);
                remove(&mut inner.by_key, &facts.key, &reference);
                remove(&mut inner.bound_in, &namespace, &reference);
                true
            }
        };
        if !matters {
            return Vec::new();
        }
        inner.by_key.get(&facts.key).into_iter().flatten().filter(|other| **other != reference).cloned().collect()
    }

    /// All locks with the same key in their spec, itself included.
    pub fn sharing_key(&self, lock: &DistributedLock) -> Vec<LockRef> {
        self.inner().by_key.get(&spec_key(lock)).into_iter().flatten().cloned().collect()
    }

    /// The locks that depend on pods in the namespace of this one.
    pub fn pod_changed(&self, pod: &Pod) -> Vec<LockRef> {
        self.inner().bound_in.get(&pod.namespace().unwrap_or_default()).into_iter().flatten().cloned().collect()
    }

    /// The locks that depend on pods, if the node's readiness changed (its heartbeats matter to nobody).
    pub fn node_changed(&self, node: &Node) -> Vec<LockRef> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|c| c.type_ == "Ready").map(|c| c.status.clone());
        let mut inner = self.inner();
        if inner.node_states.insert(node.name_any(), ready.clone()) == Some(ready) {
            return Vec::new();
        }
        inner.bound_in.values().flatten().cloned().collect()
    }

    /// The locks that depend on pods.
    pub fn bound(&self) -> Vec<LockRef> {
        self.inner().bound_in.values().flatten().cloned().collect()
    }

    /// Every lock.
    pub fn all(&self) -> Vec<LockRef> {
        self.inner().facts.keys().cloned().collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove(map: &mut HashMap<String, HashSet<LockRef>>, key: &str, reference: &LockRef) {
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
    fn a_pod_concerns_the_bound_locks_of_its_namespace_only() {
        let index = Index::default();
        let mut bound = claim("bound", "k");
        bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
        index.lock_changed(&applied(&bound));
        index.lock_changed(&applied(&claim("free", "k2")));
        let pod =
            |namespace: &str| -> Pod { serde_json::from_value(json!({"metadata": {"namespace": namespace}})).unwrap() };
        assert_eq!(index.pod_changed(&pod("ns")), vec![LockRef::from_obj(&bound)]);
        assert!(index.pod_changed(&pod("elsewhere")).is_empty());
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
        index.node_changed(&node("True"));
        assert!(index.node_changed(&node("True")).is_empty());
        assert_eq!(index.node_changed(&node("Unknown")).len(), 1);
    }
}
