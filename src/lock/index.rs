//! Which locks to look at again when something else changed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::{
    contention::{Contention, Designation, Entry, LockRef, designation},
    queue::{Age, age},
};
use crate::{
    api::{
        DistributedLock,
        conditions::{LockCondition, is_true},
    },
    operator::cache::Change,
};

/// Locks by what they depend on.
#[derive(Debug, Default)]
pub struct Index(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    contention: Contention,
    /// The oldest first.
    by_namespace: HashMap<String, BTreeMap<Age, LockRef>>,
    /// By the quorums that they name or are held on.
    by_quorum: HashMap<Designation, HashSet<LockRef>>,
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
    entry: Entry,
    namespace: String,
    age: Age,
    quorums: Vec<Designation>,
    bond: Option<Bond>,
    generation: Option<i64>,
    nonce: Option<String>,
    /// Those behind it are told whether they wait for its lockDelay.
    ending: bool,
    over: bool,
}

impl Facts {
    fn of(lock: &DistributedLock) -> Self {
        let status = lock.status.as_ref();
        let finished = status.is_some_and(|status| is_true(&status.conditions, LockCondition::Finished));
        Self {
            entry: Entry::of(lock),
            namespace: lock.namespace().unwrap_or_default(),
            age: age(lock),
            quorums: quorums(lock),
            bond: Bond::of(lock),
            generation: lock.metadata.generation,
            nonce: status.and_then(|status| status.holder.as_ref()?.nonce.clone()),
            ending: status.is_some_and(|status| status.ending.is_some()),
            over: finished || lock.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The quorums whose changes matter to a lock: the one that it names, and those that it may be held on.
fn quorums(lock: &DistributedLock) -> Vec<Designation> {
    let status = lock.status.as_ref();
    let held = status.and_then(|status| status.holder.as_ref()?.quorum.as_ref());
    let let_go = status.and_then(|status| status.let_go.as_ref()).map(|let_go| &let_go.quorum);
    let recorded = held.into_iter().chain(let_go);
    let recorded = recorded.map(|quorum| Some((quorum.namespace.clone(), quorum.name.clone())));
    [designation(lock)].into_iter().chain(recorded).collect()
}

impl Index {
    /// Takes a change of a lock; gives the locks on its key that it matters to, itself perhaps among them. `spans` says whether the keys
    /// of its quorum belong to no namespace.
    pub fn lock_changed(&self, change: &Change<DistributedLock>, spans: bool) -> Vec<LockRef> {
        let lock = change.object();
        let reference = LockRef::from_obj(&**lock);
        let mut inner = self.inner();
        let facts = Facts::of(lock);
        let before = inner.facts.remove(&reference);
        let now = matches!(change, Change::Applied(_)).then(|| facts.clone());
        let entry = |facts: &Option<Facts>| facts.as_ref().map(|facts| facts.entry.clone());
        inner.contention.changed(&reference, entry(&before).as_ref(), entry(&now).as_ref());
        if let Some(before) = &before {
            inner.unlink(before, &reference);
        }
        let matters = before != now;
        if let Some(now) = now {
            inner.link(&now, &reference);
            inner.facts.insert(reference, now);
        }
        if matters { inner.contention.concerned(&facts.entry, spans) } else { Vec::new() }
    }

    /// The locks on the same key that a change of this one matters to, itself perhaps among them.
    pub fn concerned(&self, lock: &DistributedLock, spans: bool) -> Vec<LockRef> {
        self.inner().contention.concerned(&Entry::of(lock), spans)
    }

    /// The locks that hold the same key in their spec, whatever their quorum.
    pub fn holders(&self, lock: &DistributedLock) -> Vec<LockRef> {
        self.inner().contention.holders(&lock.key())
    }

    /// The last locks that held the same key and are finished.
    pub fn ended(&self, lock: &DistributedLock) -> Vec<LockRef> {
        self.inner().contention.ended(&lock.key())
    }

    /// Goes through those that wait before this one, in the order of their turns, as long as `more` says so.
    pub fn for_each_before(&self, lock: &DistributedLock, spans: bool, more: impl FnMut(&LockRef) -> bool) {
        let inner = self.inner();
        let _stopped = inner.contention.before(lock, spans).all(more);
    }

    /// The oldest lock that waits for the same key, of those that `is_meant`.
    pub fn oldest(
        &self,
        lock: &DistributedLock,
        spans: bool,
        is_meant: impl FnMut(&LockRef) -> Option<std::sync::Arc<DistributedLock>>,
    ) -> Option<std::sync::Arc<DistributedLock>> {
        self.inner().contention.oldest(lock, spans).find_map(is_meant)
    }

    /// The locks of this namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<LockRef> {
        self.inner().by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Whether there are so many older locks in its namespace.
    pub fn has_older(&self, lock: &DistributedLock, number: usize) -> bool {
        let inner = self.inner();
        let namespace = inner.by_namespace.get(&lock.namespace().unwrap_or_default());
        let first_beyond = namespace.filter(|locks| locks.len() > number).and_then(|locks| locks.keys().nth(number));
        first_beyond.is_some_and(|first| *first <= age(lock))
    }

    /// The youngest lock of a namespace that has not so many older ones: the one that follows when an older one goes.
    pub fn last_of(&self, namespace: &str, number: usize) -> Option<LockRef> {
        let inner = self.inner();
        let locks = inner.by_namespace.get(namespace).filter(|locks| locks.len() >= number)?;
        locks.values().nth(number.checked_sub(1)?).cloned()
    }

    /// The locks that name this quorum, or are held on it. `None` stands for the default.
    pub fn of_quorum(&self, quorum: &Designation) -> Vec<LockRef> {
        self.inner().by_quorum.get(quorum).into_iter().flatten().cloned().collect()
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
    fn link(&mut self, facts: &Facts, reference: &LockRef) {
        let namespace = self.by_namespace.entry(facts.namespace.clone()).or_default();
        namespace.insert(facts.age.clone(), reference.clone());
        for quorum in &facts.quorums {
            self.by_quorum.entry(quorum.clone()).or_default().insert(reference.clone());
        }
        if let Some(bond) = &facts.bond {
            self.bound_to.entry(bond.clone()).or_default().insert(reference.clone());
        }
    }

    fn unlink(&mut self, facts: &Facts, reference: &LockRef) {
        if let Some(namespace) = self.by_namespace.get_mut(&facts.namespace) {
            namespace.remove(&facts.age);
            if namespace.is_empty() {
                self.by_namespace.remove(&facts.namespace);
            }
        }
        for quorum in &facts.quorums {
            remove(&mut self.by_quorum, quorum, reference);
        }
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
        let (waiter, here) = (claim("b", "k"), |lock: &DistributedLock| LockRef::from_obj(lock));
        let mut holder = claim("a", "k");
        holder.status.as_mut().unwrap().holder =
            Some(crate::api::LockHolder { nonce: Some("n".into()), ..Default::default() });
        index.lock_changed(&applied(&holder), false);
        index.lock_changed(&applied(&claim("c", "other")), false);
        assert_eq!(index.lock_changed(&applied(&waiter), false), vec![here(&holder), here(&waiter)]);
        holder.status.as_mut().unwrap().votes = Some("3/3".into());
        assert!(index.lock_changed(&applied(&holder), false).is_empty());
        let since = crate::api::MilliTime::from_millis(0).unwrap();
        let ending = crate::api::Ending { since, reason: "Broken".into(), until: None, message: None };
        holder.status.as_mut().unwrap().ending = Some(ending);
        assert_eq!(index.lock_changed(&applied(&holder), false), vec![here(&holder), here(&waiter)]);
        holder.status.as_mut().unwrap().holder = None;
        assert_eq!(index.lock_changed(&applied(&holder), false), vec![here(&holder), here(&waiter)]);
        assert_eq!(index.lock_changed(&Change::Deleted(Arc::new(holder)), false), vec![here(&waiter)]);
    }

    #[test]
    fn a_pod_concerns_the_locks_that_are_bound_to_it_only() {
        let index = Index::default();
        let mut bound = claim("bound", "k");
        bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
        let mut election = claim("election", "e");
        election.spec.claim = None;
        election.spec.election = Some(Default::default());
        index.lock_changed(&applied(&bound), false);
        index.lock_changed(&applied(&claim("free", "k2")), false);
        index.lock_changed(&applied(&election), false);
        let concerned = |namespace: &str, name: &str| {
            let pod = json!({"metadata": {"namespace": namespace, "name": name}});
            index.pod_changed(&serde_json::from_value::<Pod>(pod).unwrap())
        };
        assert_eq!(concerned("ns", "p"), vec![LockRef::from_obj(&bound), LockRef::from_obj(&election)]);
        assert_eq!(concerned("ns", "q"), vec![LockRef::from_obj(&election)], "any pod may be a candidate");
        assert!(concerned("elsewhere", "p").is_empty());
    }

    #[test]
    fn one_of_thousands_that_wait_concerns_the_first_few_only() {
        let index = Index::default();
        let locks: Vec<_> = (0..10_000).map(|number| applied(&claim(&format!("claim-{number}"), "k"))).collect();
        let most = locks.iter().map(|lock| index.lock_changed(lock, false).len()).max();
        assert_eq!(most, Some(11), "those who are told their position, and the next one");
        let again: usize = locks.iter().map(|lock| index.lock_changed(lock, false).len()).sum();
        assert_eq!(again, 0, "so a new term fills the index first, and looks at each lock once");
    }

    #[test]
    fn a_quorum_concerns_the_locks_that_name_it_or_are_held_on_it() {
        let index = Index::default();
        let quorum = |name: &str| Some(("ns".to_owned(), name.to_owned()));
        let mut named = claim("named", "k");
        named.spec.quorum_ref = Some(crate::api::QuorumRef { name: "q".into(), namespace: None });
        let mut held = claim("held", "k");
        held.status = serde_json::from_value(json!({"transitions": 1, "holder": {"identity": "a",
            "quorum": {"namespace": "ns", "name": "old", "uid": "u"}}}))
        .unwrap();
        for lock in [&named, &held, &claim("default", "k")] {
            index.lock_changed(&applied(lock), false);
        }
        assert_eq!(index.of_quorum(&quorum("q")), [LockRef::from_obj(&named)]);
        assert_eq!(index.of_quorum(&quorum("old")), [LockRef::from_obj(&held)]);
        assert_eq!(index.of_quorum(&None).len(), 2, "both name none");
        assert_eq!(index.in_namespace("ns").len(), 3);
        index.lock_changed(&Change::Deleted(Arc::new(held)), false);
        assert!(index.of_quorum(&quorum("old")).is_empty());
    }

    #[test]
    fn the_oldest_locks_of_a_namespace_are_known() {
        let index = Index::default();
        let locks = ["a", "b", "c"].map(|name| claim(name, name));
        locks.iter().for_each(|lock| drop(index.lock_changed(&applied(lock), false)));
        assert_eq!([&locks[0], &locks[1], &locks[2]].map(|lock| index.has_older(lock, 2)), [false, false, true]);
        assert!(!index.has_older(&locks[2], 3) && !index.has_older(&locks[2], usize::MAX));
        index.lock_changed(&Change::Deleted(Arc::new(locks[0].clone())), false);
        assert!(!index.has_older(&locks[2], 2));
        assert_eq!(index.last_of("ns", 2), Some(LockRef::from_obj(&locks[2])), "it follows");
        assert_eq!(index.last_of("ns", 3), None);
    }

    #[test]
    fn a_heartbeat_of_a_node_concerns_nobody() {
        let index = Index::default();
        let mut bound = claim("bound", "k");
        bound.spec.claim = Some(crate::api::Claim { pod_name: Some("p".into()), ..Default::default() });
        index.lock_changed(&applied(&bound), false);
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
