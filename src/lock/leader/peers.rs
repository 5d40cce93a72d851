//! The other locks on a key, as the caches and this replica's own writes have them.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::broadcast;

use super::index::{Index, PART};
use super::others;
use super::store::Store;
use crate::api::{DistributedLock, HeldQuorum, KeyLayout, RedisQuorum};
use crate::lock::model::contention;
use crate::lock::model::key::without_slot;
use crate::lock::model::queue::{self, Place};
use crate::lock::model::record::HoldRecord;
use crate::lock::model::refusal::Refusal;
use crate::lock::model::status::full_name;
use crate::lock::replica::access::{self, Access};
use crate::redlock::LockKey;
use crate::runtime::cache::Change;
use crate::runtime::context::Context;

/// So many nudges may wait to be read. A reader that falls further behind looks at all locks.
const NUDGES: usize = 4096;

/// Whether a lock could hold its key now. One that could not blocks no other.
pub(super) type Eligible<'a> = &'a dyn Fn(&DistributedLock) -> bool;

/// All locks by what they depend on, and the way to have one looked at again.
pub(super) struct Peers {
    context: Context,
    store: Arc<Store>,
    /// Which locks depend on what.
    pub(super) index: Index,
    nudges: broadcast::Sender<ObjectRef<DistributedLock>>,
}

impl Peers {
    /// No lock is known yet.
    pub(super) fn new(context: Context, store: Arc<Store>) -> Self {
        Self { context, store, index: Index::default(), nudges: broadcast::channel(NUDGES).0 }
    }

    /// The locks that are to be looked at again.
    pub(super) fn nudged(&self) -> broadcast::Receiver<ObjectRef<DistributedLock>> {
        self.nudges.subscribe()
    }

    /// Asks for a reconcile.
    pub(super) fn nudge(&self, lock: ObjectRef<DistributedLock>) {
        // There is no reader only while the controller is being stopped.
        let _ = self.nudges.send(lock);
    }

    /// Takes a change of a lock; gives the locks on its key that it matters to, itself perhaps among them.
    pub(super) fn lock_changed(&self, change: &Change<DistributedLock>) -> Vec<ObjectRef<DistributedLock>> {
        let spans = self.spans_namespaces(change.object());
        self.index.lock_changed(change, spans, |lock| self.store.get(lock))
    }

    /// Takes what was written here of a lock.
    pub(super) fn refresh(&self, lock: &ObjectRef<DistributedLock>) {
        self.index.refresh(lock, |lock| self.store.get(lock));
    }

    /// Asks for a reconcile of the others on the key that this one's news concern.
    pub(super) fn nudge_others(&self, lock: &DistributedLock) {
        let own = ObjectRef::from_obj(lock);
        let concerned = self.index.concerned(lock, self.spans_namespaces(lock));
        concerned.into_iter().filter(|other| *other != own).for_each(|other| self.nudge(other));
    }

    /// The longest ttl that the quorum allows by its specification.
    pub(super) fn max_ttl(&self, access: &Access) -> Option<Duration> {
        self.context.quorums.get(&access.quorum.reference()).map(|quorum| quorum.spec.max_ttl.get())
    }

    /// The locks that a change of a quorum matters to.
    pub(super) fn of_quorum(&self, quorum: &RedisQuorum) -> Vec<ObjectRef<DistributedLock>> {
        let mut locks = self.index.of_quorum(&Some((quorum.namespace().unwrap_or_default(), quorum.name_any())));
        if self.context.default_quorum() == Some(ObjectRef::from_obj(quorum)) {
            locks.extend(self.index.of_quorum(&None));
        }
        locks
    }

    /// The lock for which there is room when this one is gone.
    pub(super) fn follows(&self, lock: &DistributedLock) -> Option<ObjectRef<DistributedLock>> {
        self.index.last_of(&lock.namespace().unwrap_or_default(), self.context.replica.settings.limits.locks)
    }

    /// Whether the keys of the quorum that a lock names belong to no namespace.
    ///
    /// Then locks of other namespaces may be on its key.
    pub(super) fn spans_namespaces(&self, lock: &DistributedLock) -> bool {
        let quorum = others::named_quorum(&self.context, lock);
        quorum.is_some_and(|quorum| quorum.spec.keys == KeyLayout::Verbatim)
    }

    fn newest(&self, locks: &[ObjectRef<DistributedLock>]) -> Vec<Arc<DistributedLock>> {
        locks.iter().filter_map(|lock| self.store.get(lock)).collect()
    }

    /// Whether a lock is on this key of this quorum. What is held counts where it is held, also when it would not be accepted now, and
    /// also when that quorum was made again under its name since.
    fn is_on(&self, access: &Access, lock: &DistributedLock) -> bool {
        match HoldRecord::of(lock) {
            Some(record) => has(&record, &access.quorum, &access.key),
            // Its status does not say where it is held.
            None if queue::holds(lock) => true,
            None => access::of(&self.context, lock)
                .is_ok_and(|other| other.quorum == access.quorum && other.key == access.key),
        }
    }

    /// The other locks on the same key of the same quorum that hold it, or may still have left it there.
    ///
    /// The answer rests on what was last written here.
    pub(super) fn holders(&self, lock: &DistributedLock, access: &Access) -> Vec<Arc<DistributedLock>> {
        let mut holders = self.newest(&self.index.holders(lock));
        holders.retain(|peer| peer.uid() != lock.uid() && queue::holds(peer) && self.is_on(access, peer));
        holders.sort_by_key(|peer| queue::age(peer));
        holders
    }

    /// The election that can use this key, of all that hold it or wait for it.
    fn election(&self, lock: &DistributedLock, access: &Access) -> Option<Arc<DistributedLock>> {
        let mut elections = self.newest(&self.index.elections(lock));
        elections.retain(|other| (queue::holds(other) || queue::is_queued(other)) && self.is_on(access, other));
        queue::election_in_use(&elections).cloned()
    }

    /// The first locks that wait before this one and could have the key now.
    ///
    /// There are as many of them as this lock's place depends on.
    fn first_before(
        &self,
        lock: &DistributedLock,
        access: &Access,
        election: Option<&DistributedLock>,
        eligible: Eligible<'_>,
    ) -> Vec<Arc<DistributedLock>> {
        // Another election than this one is refused.
        let is_refused = |other: &DistributedLock| {
            other.spec.election.is_some() && election.is_some_and(|election| election.uid() != other.uid())
        };
        let others = in_parts(|skip| self.index.before(lock, access.spans_namespaces, skip));
        let others = others.filter_map(|other| self.store.get(&other));
        let others = others.filter(|other| queue::is_queued(other) && !is_refused(other));
        let others = others.filter(|other| eligible(other) && self.is_on(access, other));
        others.take(queue::enough(lock)).collect()
    }

    /// The others on the key that may have left a value or a seal there, itself not among them.
    pub(super) fn predecessors(
        &self,
        lock: &DistributedLock,
        access: &Access,
        eligible: Eligible<'_>,
    ) -> Vec<Arc<DistributedLock>> {
        let mut peers = self.newest(&self.index.ended(lock));
        peers.retain(|peer| self.is_on(access, peer));
        peers.extend(self.holders(lock, access));
        peers.extend(self.first_before(lock, access, self.election(lock, access).as_deref(), eligible));
        peers
    }

    /// Whether the spec can be served beside the others on the key, and whose turn it is.
    pub(super) fn place(
        &self,
        lock: &DistributedLock,
        access: &Access,
        eligible: Eligible<'_>,
    ) -> Result<Place, Refusal> {
        let holders = self.holders(lock, access);
        let holders: Vec<_> = holders.iter().map(|holder| &**holder).collect();
        let oldest = in_parts(|skip| self.index.oldest(lock, access.spans_namespaces, skip));
        let mut oldest = oldest.filter_map(|other| self.store.get(&other));
        let oldest =
            oldest.find(|other| queue::is_queued(other) && contention::is_accepted(other) && self.is_on(access, other));
        if let Some(conflict) = queue::shape_conflict(lock, &holders, oldest.as_deref()) {
            return Err(conflict);
        }
        let election = self.election(lock, access);
        if lock.spec.election.is_some()
            && let Some(other) = election.as_deref().filter(|election| election.uid() != lock.uid())
        {
            return Err(Refusal::OtherElection { other: full_name(other) });
        }
        Ok(queue::place(lock, &holders, self.first_before(lock, access, election.as_deref(), eligible).len()))
    }
}

/// The locks of a queue, read part by part. None is judged while the index is locked, since every reconcile needs it.
fn in_parts(
    part: impl Fn(usize) -> Vec<ObjectRef<DistributedLock>>,
) -> impl Iterator<Item = ObjectRef<DistributedLock>> {
    (0..).step_by(PART).map(part).take_while(|part| !part.is_empty()).flatten()
}

/// Whether a hold has the key, or one of its slots, on the quorum of that name. The members of a quorum that was deleted by force and
/// made again know nothing of it, while its holder goes by what was published: only the status of that lock keeps others out, until
/// it has run out or was let go.
fn has(record: &HoldRecord, quorum: &HeldQuorum, key: &LockKey) -> bool {
    record.quorum.reference() == quorum.reference() && without_slot(&record.key) == key.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_read_in_parts_until_its_end() {
        let locks: Vec<_> = (0..100).map(|number| ObjectRef::new(&format!("l-{number}")).within("ns")).collect();
        let part = |skip: usize| locks.iter().skip(skip).take(PART).cloned().collect();
        assert_eq!(in_parts(part).collect::<Vec<_>>(), locks);
        assert_eq!(in_parts(part).take(3).collect::<Vec<_>>(), locks[..3]);
    }

    #[test]
    fn what_is_held_on_a_quorum_keeps_others_off_the_one_that_is_made_again_under_its_name() {
        let quorum = |name: &str, uid: &str| HeldQuorum {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let key = |key: &str| LockKey::new(key.to_owned());
        let held = HoldRecord { quorum: quorum("q", "former"), key: key("shop/k"), rejoin_delay: Duration::ZERO };
        assert!(has(&held, &quorum("q", "former"), &key("shop/k")));
        assert!(has(&held, &quorum("q", "present"), &key("shop/k")));
        assert!(!has(&held, &quorum("other", "former"), &key("shop/k")), "another quorum is another lock");
        assert!(!has(&held, &quorum("q", "present"), &key("shop/other")));
        let slot = HoldRecord { key: key("shop/k#1"), ..held };
        assert!(has(&slot, &quorum("q", "present"), &key("shop/k")));
    }
}
