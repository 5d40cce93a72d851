//! Pure: the locks of each key in the order of their turns, by the watch.
//!
//! A key can have thousands of waiting locks. A change of one of them concerns the holders and the first few waiting locks. The leader reconciles
//! only these again, and finds the place of a lock without a search of all locks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::queue::{Age, Turn, age, is_queued, slots, turn};
use super::status::LAST_POSITION;
use crate::api::DistributedLock;
use crate::api::conditions::{AcceptedReason, HeldReason, LockCondition, Status};

/// A lock by its name.
pub type LockRef = ObjectRef<DistributedLock>;
/// The same reference, shared by all tables.
pub type SharedRef = Arc<LockRef>;
/// Namespace and name of a quorum. `None` is the operator's default.
pub type Designation = Option<(String, String)>;

/// Maximum number of finished locks that [`Contention::ended`] returns for a key.
///
/// It is more than the maximum number of slots, to include the last holder of each slot.
const ENDED: usize = 128;

/// The fields of a lock on which the order of the locks on a key depends. Renewals change none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    key: String,
    group: Arc<Group>,
    turn: Turn,
    age: Age,
    /// Whether the operator would grant it at its turn, if it waits.
    is_able: Option<bool>,
    /// Its status names a holder, so a key in Redis can belong to it.
    holds: bool,
    /// It is an election that waits or holds.
    elects: bool,
    /// The time in seconds at which it finished, if it has held the key.
    ended: Option<i64>,
}

/// Contending locks of one shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    namespace: String,
    designation: Designation,
    slots: usize,
}

/// All locks, by key.
#[derive(Debug, Default)]
pub struct Contention(HashMap<String, OnKey>);

#[derive(Debug, Default)]
struct OnKey {
    holders: BTreeMap<Age, SharedRef>,
    elections: BTreeMap<Age, SharedRef>,
    ended: BTreeMap<(Reverse<i64>, Age), SharedRef>,
    waiting: BTreeMap<Arc<Group>, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    by_turn: BTreeMap<Turn, (SharedRef, bool)>,
    by_age: BTreeMap<Age, SharedRef>,
}

impl Entry {
    /// The entry for this state of a lock.
    pub fn of(lock: &DistributedLock) -> Self {
        let has_held = lock.status.as_ref().is_some_and(|status| status.transitions > 0);
        let finished = lock.condition(LockCondition::Finished).filter(|_| lock.is_finished() && has_held);
        let (waits, holds, age) = (is_queued(lock), lock.holder().is_some(), age(lock));
        Self {
            key: lock.key(),
            group: Arc::new(Group {
                namespace: lock.namespace().unwrap_or_default(),
                designation: lock.named_quorum(),
                slots: slots(lock),
            }),
            turn: (Reverse(lock.spec.priority), age.clone()),
            age,
            is_able: waits.then(|| is_able(lock)),
            holds,
            elects: lock.spec.election.is_some() && (waits || holds),
            ended: finished.map(|finished| finished.last_transition_time.0.as_second()),
        }
    }
}

/// Whether a waiting lock decides the number of slots of its key, if it is the oldest.
///
/// A lock without a status is included, because no leader has judged it yet. A lock without a quorum keeps its turn and also decides. The quorum
/// can become available, and the operator can grant the lock before its next status. Otherwise the locks of such a quorum would be served in the
/// order in which they are judged.
pub fn decides_slots(lock: &DistributedLock) -> bool {
    const SERVED_LATER: [AcceptedReason; 4] = [
        AcceptedReason::KeyShapeConflict,
        AcceptedReason::QuorumNotFound,
        AcceptedReason::QuorumNotReady,
        AcceptedReason::NamespaceNotAllowed,
    ];
    lock.condition(LockCondition::Accepted).is_none_or(|accepted| {
        let is_served_later = SERVED_LATER.iter().any(|reason| accepted.reason == reason.as_str());
        accepted.status == Status::True.as_str() || is_served_later
    })
}

/// Whether the operator would grant a waiting lock at its turn, by its own status.
///
/// It uses the published status, because a judgement of every queued lock for every other lock would take quadratic time.
fn is_able(lock: &DistributedLock) -> bool {
    let has_candidate = |held: &Condition| held.reason != HeldReason::NoCandidate.as_str();
    lock.condition(LockCondition::Held).is_none_or(has_candidate) && decides_slots(lock)
}

/// Copies of the references of a table.
pub fn refs<'a>(locks: impl IntoIterator<Item = &'a SharedRef>) -> impl Iterator<Item = LockRef> {
    locks.into_iter().map(|lock| LockRef::clone(lock))
}

impl Contention {
    /// Applies the change of one lock. A deleted lock has no entry in `now`.
    pub fn changed(&mut self, lock: &SharedRef, before: Option<&Entry>, now: Option<&Entry>) {
        if let Some(before) = before
            && let Some(on_key) = self.0.get_mut(&before.key)
        {
            on_key.remove(before);
            if on_key.is_empty() {
                self.0.remove(&before.key);
            }
        }
        if let Some(now) = now {
            self.0.entry(now.key.clone()).or_default().insert(now, lock);
        }
    }

    /// The locks that a change of this one concerns.
    ///
    /// These are the holders of the key, and some waiting locks of each shape: the oldest, and all that have a position in their status.
    /// `spans` is true if the keys of the quorum belong to no namespace.
    pub fn concerned(&self, entry: &Entry, spans: bool) -> Vec<LockRef> {
        let Some(on_key) = self.0.get(&entry.key) else { return Vec::new() };
        let mut concerned: Vec<_> = refs(on_key.holders.values()).collect();
        for (group, waiting) in &on_key.waiting {
            if spans || group.namespace == entry.group.namespace {
                let able = waiting.by_turn.values().filter(|(_, is_able)| *is_able);
                concerned.extend(refs(waiting.by_age.values()).next());
                concerned.extend(refs(able.map(|(lock, _)| lock)).take(LAST_POSITION + group.slots));
            }
        }
        concerned.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        concerned.dedup();
        concerned
    }

    /// The locks that hold this key, on any quorum.
    pub fn holders(&self, key: &str) -> Vec<LockRef> {
        self.0.get(key).map(|on_key| refs(on_key.holders.values()).collect()).unwrap_or_default()
    }

    /// The elections that hold this key or wait for it, on any quorum, the oldest first.
    pub fn elections(&self, key: &str) -> Vec<LockRef> {
        self.0.get(key).map(|on_key| refs(on_key.elections.values()).collect()).unwrap_or_default()
    }

    /// The locks that have held this key and are finished, the last one first.
    pub fn ended(&self, key: &str) -> Vec<LockRef> {
        self.0.get(key).map(|on_key| refs(on_key.ended.values()).take(ENDED).collect()).unwrap_or_default()
    }

    /// The locks of the same shape before `lock` that are not unable, in the order of their turns.
    ///
    /// `spans` adds the locks of other namespaces. The caller checks their quorum.
    pub fn before<'a>(&'a self, lock: &DistributedLock, spans: bool) -> impl Iterator<Item = &'a LockRef> + use<'a> {
        let (own, shape) = (turn(lock), slots(lock));
        let groups = self.groups(lock, spans).filter(|(group, _)| group.slots == shape);
        let able = |(_, waiting): (_, &'a Waiting)| {
            let queue = waiting.by_turn.range(..&own).filter(|(_, (_, is_able))| *is_able);
            queue.map(|(turn, (lock, _))| (turn, lock)).peekable()
        };
        merged(groups.map(able).collect())
    }

    /// The waiting locks of all shapes and quorums, the oldest first.
    pub fn oldest(&self, lock: &DistributedLock, spans: bool) -> impl Iterator<Item = &LockRef> {
        merged(self.groups(lock, spans).map(|(_, waiting)| waiting.by_age.iter().peekable()).collect())
    }

    fn groups(&self, lock: &DistributedLock, spans: bool) -> impl Iterator<Item = (&Arc<Group>, &Waiting)> {
        let namespace = lock.namespace().unwrap_or_default();
        let groups = self.0.get(&lock.key()).into_iter().flat_map(|on_key| &on_key.waiting);
        groups.filter(move |(group, _)| spans || group.namespace == namespace)
    }
}

/// Merges several sorted queues of locks.
fn merged<'a, K: Ord + 'a>(
    mut queues: Vec<Peekable<impl Iterator<Item = (&'a K, &'a SharedRef)>>>,
) -> impl Iterator<Item = &'a LockRef> {
    std::iter::from_fn(move || {
        let next = queues.iter_mut().filter_map(|queue| Some((queue.peek()?.0, queue)));
        let (_, queue) = next.min_by_key(|(at, _)| *at)?;
        queue.next().map(|(_, lock)| &**lock)
    })
}

impl OnKey {
    fn insert(&mut self, entry: &Entry, lock: &SharedRef) {
        if entry.holds {
            self.holders.insert(entry.age.clone(), lock.clone());
        }
        if entry.elects {
            self.elections.insert(entry.age.clone(), lock.clone());
        }
        if let Some(ended) = entry.ended {
            self.ended.insert((Reverse(ended), entry.age.clone()), lock.clone());
        }
        if let Some(is_able) = entry.is_able {
            let waiting = self.waiting.entry(entry.group.clone()).or_default();
            waiting.by_turn.insert(entry.turn.clone(), (lock.clone(), is_able));
            waiting.by_age.insert(entry.age.clone(), lock.clone());
        }
    }

    fn remove(&mut self, entry: &Entry) {
        self.holders.remove(&entry.age);
        self.elections.remove(&entry.age);
        if let Some(ended) = entry.ended {
            self.ended.remove(&(Reverse(ended), entry.age.clone()));
        }
        if let Some(waiting) = self.waiting.get_mut(&entry.group) {
            waiting.by_turn.remove(&entry.turn);
            waiting.by_age.remove(&entry.age);
            if waiting.by_turn.is_empty() {
                self.waiting.remove(&entry.group);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.elections.is_empty() && self.ended.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
