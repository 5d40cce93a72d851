//! Index of locks by their dependencies: the locks to reconcile after a change of another object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::DistributedLock;
use crate::evidence;
use crate::lock::model::contention::{Contention, Designation, Entry, LockRef, SharedRef, refs};
use crate::lock::model::queue::{Age, age};
use crate::lock::model::verdict::is_ending;
use crate::runtime::cache::{Change, Lookup};
use crate::runtime::keys;

/// Locks by their dependencies.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    contention: Contention,
    /// Locks of a namespace, the oldest first.
    by_namespace: HashMap<String, BTreeMap<Age, SharedRef>>,
    /// Locks by the quorums that they name or are held on.
    by_quorum: Lookup<SharedRef, Designation>,
    bound_to: Lookup<SharedRef, Bond>,
    facts: HashMap<SharedRef, Box<Facts>>,
    /// Entries as last written here. The watch can be older.
    entries: HashMap<SharedRef, Box<Entry>>,
    node_states: HashMap<String, Option<String>>,
    /// The labels of a namespace, and whether it is being deleted.
    namespaces: HashMap<String, (BTreeMap<String, String>, bool)>,
}

/// The pods on which a lock depends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Bond {
    /// The pod with this namespace and name.
    Pod(String, String),
    /// The pods of the Job with this namespace and name.
    Job(String, String),
    /// Any pod in this namespace.
    Namespace(String),
}

impl Bond {
    fn of(lock: &DistributedLock) -> Option<Self> {
        let namespace = lock.namespace().unwrap_or_default();
        let claim = lock.spec.claim.as_ref();
        if let Some(job) = claim.and_then(|claim| claim.job_name.clone()) {
            return Some(Self::Job(namespace, job));
        }
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

/// The fields of a lock on which other locks and pods depend. Renewals change none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    entry: Entry,
    namespace: String,
    age: Age,
    quorums: Vec<Designation>,
    bond: Option<Bond>,
    generation: Option<i64>,
    nonce: Option<String>,
    /// The messages of waiting locks depend on it, because they name its lockDelay.
    ending: bool,
    over: bool,
}

impl Facts {
    fn of(lock: &DistributedLock) -> Self {
        Self {
            entry: Entry::of(lock),
            namespace: lock.namespace().unwrap_or_default(),
            age: age(lock),
            quorums: quorums(lock),
            bond: Bond::of(lock),
            generation: lock.metadata.generation,
            nonce: lock.holder().and_then(|holder| holder.nonce.clone()),
            ending: lock.ending().is_some(),
            over: lock.is_finished() || lock.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The quorums whose changes concern a lock: the one that it names, and the one that it is held on.
fn quorums(lock: &DistributedLock) -> Vec<Designation> {
    let held = lock.holder().and_then(|holder| holder.quorum.as_ref());
    let recorded = held.map(|quorum| Some((quorum.namespace.clone(), quorum.name.clone())));
    [lock.named_quorum()].into_iter().chain(recorded).collect()
}

impl Index {
    /// Applies a change of a lock. Returns the concerned locks on its key, which can include itself.
    ///
    /// `spans` is true if the keys of its quorum belong to no namespace. `newest` returns a lock as this replica last wrote it.
    pub(super) fn lock_changed(
        &self,
        change: &Change<DistributedLock>,
        spans: bool,
        newest: impl Fn(&LockRef) -> Option<Arc<DistributedLock>>,
    ) -> Vec<LockRef> {
        let lock = change.object();
        let mut inner = self.0.lock();
        let reference = inner.shared(&LockRef::from_obj(&**lock));
        let facts = Box::new(Facts::of(lock));
        let before = inner.facts.remove(&reference);
        let now = matches!(change, Change::Applied(_)).then(|| facts.clone());
        inner.refresh(&reference, newest(&reference).as_deref());
        inner.link(&reference, before.as_deref(), now.as_deref());
        let matters = before != now;
        if let Some(now) = now {
            inner.facts.insert(reference, now);
        }
        if matters { inner.contention.concerned(&facts.entry, spans) } else { Vec::new() }
    }

    /// Applies a write of this replica.
    ///
    /// No other change happens between the call of `newest` and the update.
    pub(super) fn refresh(&self, lock: &LockRef, newest: impl Fn(&LockRef) -> Option<Arc<DistributedLock>>) {
        let mut inner = self.0.lock();
        let lock = inner.shared(lock);
        inner.refresh(&lock, newest(&lock).as_deref());
    }

    /// Reads the locks on a key.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Contention) -> R) -> R {
        read(&self.0.lock().contention)
    }

    /// The locks of a namespace whose labels or deletion changed.
    ///
    /// The status of a namespace that is being deleted has counts, which concern no lock.
    pub(super) fn namespace_changed(&self, change: &Change<Namespace>) -> Vec<LockRef> {
        let namespace = change.object();
        let (name, state) = (namespace.name_any(), (namespace.labels().clone(), is_ending(namespace)));
        let has_changed = has_changed(&mut self.0.lock().namespaces, &name, change, state);
        if has_changed { self.in_namespace(&name) } else { Vec::new() }
    }

    /// The locks of this namespace.
    fn in_namespace(&self, namespace: &str) -> Vec<LockRef> {
        refs(self.0.lock().by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values)).collect()
    }

    /// Whether its namespace has at least this number of older locks that exist.
    ///
    /// A reader of the watch that falls behind misses deletions.
    pub(super) fn has_older(&self, lock: &DistributedLock, number: usize, exists: impl Fn(&LockRef) -> bool) -> bool {
        let inner = self.0.lock();
        let namespace = inner.by_namespace.get(&lock.namespace().unwrap_or_default());
        namespace.filter(|locks| locks.len() > number).is_some_and(|locks| {
            locks.range(..age(lock)).filter(|(_, older)| exists(older)).take(number).count() == number
        })
    }

    /// The youngest lock of a namespace that has fewer than `number` older ones.
    ///
    /// The limit admits this lock when an older one is deleted.
    pub(super) fn last_of(&self, namespace: &str, number: usize) -> Option<LockRef> {
        let inner = self.0.lock();
        let locks = inner.by_namespace.get(namespace).filter(|locks| locks.len() >= number)?;
        locks.values().nth(number.checked_sub(1)?).map(|lock| LockRef::clone(lock))
    }

    /// The locks that name this quorum or are held on it. `None` is the default quorum.
    pub(super) fn of_quorum(&self, quorum: &Designation) -> Vec<LockRef> {
        refs(&self.0.lock().by_quorum.under(quorum)).collect()
    }

    /// The locks that depend on this pod.
    pub(super) fn pod_changed(&self, pod: &Pod) -> Vec<LockRef> {
        let (namespace, inner) = (pod.namespace().unwrap_or_default(), self.0.lock());
        // A pod without an owner can be an orphan of a deleted Job.
        let job = pod.labels().get(keys::JOB_NAME_LABEL).map(|job| Bond::Job(namespace.clone(), job.clone()));
        let bonds = [Bond::Pod(namespace.clone(), pod.name_any()), Bond::Namespace(namespace)];
        bonds.iter().chain(&job).flat_map(|bond| refs(&inner.bound_to.under(bond)).collect::<Vec<_>>()).collect()
    }

    /// The locks that depend on this Job.
    pub(super) fn job_changed(&self, job: &Job) -> Vec<LockRef> {
        let bond = Bond::Job(job.namespace().unwrap_or_default(), job.name_any());
        refs(&self.0.lock().bound_to.under(&bond)).collect()
    }

    /// The locks that depend on pods, if the readiness of a node changed.
    ///
    /// Heartbeats of nodes do not matter.
    ///
    /// A change concerns all of them, because the number of silent nodes decides about each.
    pub(super) fn node_changed(&self, change: &Change<Node>) -> Vec<LockRef> {
        let node = change.object();
        let ready = evidence::readiness(node).map(|ready| ready.status.clone());
        let has_changed = has_changed(&mut self.0.lock().node_states, &node.name_any(), change, ready);
        if has_changed { self.bound() } else { Vec::new() }
    }

    /// The locks that depend on pods.
    pub(super) fn bound(&self) -> Vec<LockRef> {
        refs(&self.0.lock().bound_to.all()).collect()
    }

    /// Every lock.
    pub(super) fn all(&self) -> Vec<LockRef> {
        refs(self.0.lock().facts.keys()).collect()
    }
}

/// Records the state of an object, or drops it with the object.
///
/// Returns whether it differs from the state before.
fn has_changed<K, S: Clone + PartialEq>(
    states: &mut HashMap<String, S>,
    name: &str,
    change: &Change<K>,
    state: S,
) -> bool {
    match change {
        Change::Applied(_) => states.insert(name.to_owned(), state.clone()) != Some(state),
        Change::Deleted(_) | Change::Vanished(_) => {
            states.remove(name);
            true
        }
    }
}

impl Inner {
    /// The one reference to a lock that all tables share.
    fn shared(&self, reference: &LockRef) -> SharedRef {
        let filed = self.facts.get_key_value(reference).map(|(shared, _)| shared);
        let filed = filed.or_else(|| Some(self.entries.get_key_value(reference)?.0));
        // Version and UID change under the same name, so the reference has neither.
        let named = || LockRef::new(&reference.name).within(reference.namespace.as_deref().unwrap_or_default());
        filed.cloned().unwrap_or_else(|| SharedRef::new(named()))
    }

    fn refresh(&mut self, reference: &SharedRef, newest: Option<&DistributedLock>) {
        let now = newest.map(|newest| Box::new(Entry::of(newest)));
        let before = match &now {
            Some(now) => self.entries.insert(reference.clone(), now.clone()),
            None => self.entries.remove(reference),
        };
        if before != now {
            self.contention.changed(reference, before.as_deref(), now.as_deref());
        }
    }

    /// Indexes a lock by its dependencies. A deleted lock has none.
    fn link(&mut self, reference: &SharedRef, before: Option<&Facts>, now: Option<&Facts>) {
        if let Some(before) = before
            && let Some(namespace) = self.by_namespace.get_mut(&before.namespace)
        {
            namespace.remove(&before.age);
            if namespace.is_empty() {
                self.by_namespace.remove(&before.namespace);
            }
        }
        if let Some(now) = now {
            let namespace = self.by_namespace.entry(now.namespace.clone()).or_default();
            namespace.insert(now.age.clone(), reference.clone());
        }
        self.by_quorum.set(reference.clone(), now.map(|now| now.quorums.clone()).unwrap_or_default());
        self.bound_to.set(reference.clone(), now.and_then(|now| now.bond.clone()).into_iter().collect());
    }
}

#[cfg(test)]
mod tests;
