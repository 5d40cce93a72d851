//! The other locks on a key, by the caches and the writes of this replica.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::broadcast;

use super::index::Index;
use super::lock_store::LockStore;
use super::memory::Memory;
use super::other_installation;
use crate::api::{DistributedLock, HeldQuorum, KeyLayout, RedisQuorum};
use crate::lock::model::contention::{self, Entry, LockRef};
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::key::without_slot;
use crate::lock::model::queue::{self, Place};
use crate::lock::model::refusal::Refusal;
use crate::lock::model::status::{LAST_POSITION, full_name};
use crate::lock::replica::access::{self, Access};
use crate::redlock::LockKey;
use crate::runtime::cache::Change;

/// Capacity of the queue of requested reconciles. A receiver that falls further behind reconciles all locks.
const MOST_REQUESTS: usize = 4096;

/// Number of locks of a queue that are read from the index together.
///
/// They are judged while it is unlocked.
const PAGE: usize = 32;

/// All locks by their dependencies, and a queue of locks to reconcile.
pub(super) struct Peers {
    store: Arc<LockStore>,
    memory: Arc<Memory>,
    /// Locks by their dependencies.
    pub(super) index: Index,
    requests: broadcast::Sender<LockRef>,
}

impl Peers {
    /// The index is empty.
    pub(super) fn new(store: Arc<LockStore>, memory: Arc<Memory>) -> Self {
        Self { store, memory, index: Index::default(), requests: broadcast::channel(MOST_REQUESTS).0 }
    }

    /// Subscribes to the locks that must be reconciled.
    pub(super) fn reconcile_requests(&self) -> broadcast::Receiver<LockRef> {
        self.requests.subscribe()
    }

    /// Requests a reconcile.
    pub(super) fn request_reconcile(&self, lock: LockRef) {
        // The queue has no receiver only while the controller stops.
        let _ = self.requests.send(lock);
    }

    /// Applies a change of a lock. Returns the concerned locks on its key, which can include itself.
    pub(super) fn lock_changed(&self, change: &Change<DistributedLock>) -> Vec<LockRef> {
        let spans = self.spans_namespaces(change.object());
        self.index.lock_changed(change, spans, |lock| self.store.get(lock))
    }

    /// Applies a write of this replica to the index.
    pub(super) fn refresh(&self, lock: &LockRef) {
        self.index.refresh(lock, |lock| self.store.get(lock));
    }

    /// Requests a reconcile of the other locks on the key that a change of this one concerns.
    pub(super) fn request_reconcile_of_other_locks(&self, lock: &DistributedLock) {
        let own = LockRef::from_obj(lock);
        let spans = self.spans_namespaces(lock);
        let concerned = self.index.read(|keys| keys.concerned(&Entry::of(lock), spans));
        concerned.into_iter().filter(|other| *other != own).for_each(|other| self.request_reconcile(other));
    }

    /// The longest ttl that the specification of the quorum allows.
    pub(super) fn max_ttl(&self, access: &Access) -> Option<Duration> {
        self.store.context.quorums.get(&access.quorum.reference()).map(|quorum| quorum.spec.max_ttl.get())
    }

    /// The locks that a change of a quorum concerns.
    pub(super) fn of_quorum(&self, quorum: &RedisQuorum) -> Vec<LockRef> {
        let mut locks = self.index.of_quorum(&Some((quorum.namespace().unwrap_or_default(), quorum.name_any())));
        if self.store.context.default_quorum() == Some(ObjectRef::from_obj(quorum)) {
            locks.extend(self.index.of_quorum(&None));
        }
        locks
    }

    /// The lock that the limit of its namespace admits after this one is deleted.
    pub(super) fn admitted_after_deletion_of(&self, lock: &DistributedLock) -> Option<LockRef> {
        self.index.last_of(&lock.namespace().unwrap_or_default(), self.store.context.replica.settings.limits.locks)
    }

    /// Whether the keys of the quorum that a lock names belong to no namespace.
    ///
    /// Then locks of other namespaces can be on its key.
    pub(super) fn spans_namespaces(&self, lock: &DistributedLock) -> bool {
        let quorum = other_installation::selected_quorum(&self.store.context, lock);
        quorum.is_some_and(|quorum| quorum.spec.keys == KeyLayout::Verbatim)
    }

    fn newest(&self, locks: &[LockRef]) -> Vec<Arc<DistributedLock>> {
        locks.iter().filter_map(|lock| self.store.get(lock)).collect()
    }

    /// Whether a lock is on this key of this quorum.
    ///
    /// The record of a hold decides. This includes a hold that would be refused now, and one on a quorum that was created again under its name.
    fn is_on(&self, access: &Access, lock: &DistributedLock) -> bool {
        match HoldRecord::of(lock) {
            Some(record) => has(&record, &access.quorum, &access.key),
            // Its status does not say where it is held, so it counts on every key.
            None if lock.holder().is_some() => true,
            None => access::of(&self.store.context, lock)
                .is_ok_and(|other| other.quorum == access.quorum && other.key == access.key),
        }
    }

    /// The other locks on the same key of the same quorum whose hold can be on the members.
    ///
    /// Their state includes the last write of this replica.
    pub(super) fn holders(&self, lock: &DistributedLock, access: &Access) -> Vec<Arc<DistributedLock>> {
        let mut holders = self.newest(&self.index.read(|keys| keys.holders(&lock.key())));
        holders.retain(|peer| peer.uid() != lock.uid() && peer.holder().is_some() && self.is_on(access, peer));
        holders.sort_by_key(|peer| queue::age(peer));
        holders
    }

    /// The election that can use this key, among all that hold it or wait for it.
    fn election(&self, lock: &DistributedLock, access: &Access) -> Option<Arc<DistributedLock>> {
        let mut elections = self.newest(&self.index.read(|keys| keys.elections(&lock.key())));
        elections.retain(|other| (other.holder().is_some() || queue::is_queued(other)) && self.is_on(access, other));
        queue::election_in_use(&elections).cloned()
    }

    /// The first able locks that wait before this one.
    ///
    /// Their number is limited to what the place of this lock depends on.
    fn first_before(
        &self,
        lock: &DistributedLock,
        access: &Access,
        election: Option<&DistributedLock>,
    ) -> Vec<Arc<DistributedLock>> {
        // A key has one election, so another one is refused.
        let is_refused = |other: &DistributedLock| {
            other.spec.election.is_some() && election.is_some_and(|election| election.uid() != other.uid())
        };
        let spans = access.spans_namespaces;
        let others = in_pages(|skip| self.index.read(|keys| page(keys.before(lock, spans), skip)));
        let others = others.filter_map(|other| self.store.get(&other));
        let others = others.filter(|other| queue::is_queued(other) && !is_refused(other));
        let others = others.filter(|other| self.is_able(other) && self.is_on(access, other));
        // A larger position is not reported.
        others.take(queue::slots(lock).max(LAST_POSITION)).collect()
    }

    /// Whether a lock could make an attempt now. Otherwise it blocks no other.
    fn is_able(&self, lock: &DistributedLock) -> bool {
        !self.memory.is_unable(&lock.uid().unwrap_or_default(), self.store.context.clock.boottime())
    }

    /// The other locks on the key that can have left a value or a seal there.
    pub(super) fn predecessors(&self, lock: &DistributedLock, access: &Access) -> Vec<Arc<DistributedLock>> {
        let mut peers = self.newest(&self.index.read(|keys| keys.ended(&lock.key())));
        peers.retain(|peer| self.is_on(access, peer));
        peers.extend(self.holders(lock, access));
        peers.extend(self.first_before(lock, access, self.election(lock, access).as_deref()));
        peers
    }

    /// The place of a lock in the queue, or the reason why its spec conflicts with other locks on the key.
    pub(super) fn place(&self, lock: &DistributedLock, access: &Access) -> Result<Place, Refusal> {
        let holders = self.holders(lock, access);
        let holders: Vec<_> = holders.iter().map(|holder| &**holder).collect();
        let spans = access.spans_namespaces;
        let oldest = in_pages(|skip| self.index.read(|keys| page(keys.oldest(lock, spans), skip)));
        let mut oldest = oldest.filter_map(|other| self.store.get(&other));
        let decides = |other: &DistributedLock| queue::is_queued(other) && contention::decides_slots(other);
        let oldest = oldest.find(|other| decides(other) && self.is_able(other) && self.is_on(access, other));
        if let Some(conflict) = queue::shape_conflict(lock, &holders, oldest.as_deref()) {
            return Err(conflict);
        }
        let election = self.election(lock, access);
        if lock.spec.election.is_some()
            && let Some(other) = election.as_deref().filter(|election| election.uid() != lock.uid())
        {
            return Err(Refusal::OtherElection { other: full_name(other) });
        }
        Ok(queue::place(lock, &holders, self.first_before(lock, access, election.as_deref()).len()))
    }
}

fn page<'a>(locks: impl Iterator<Item = &'a LockRef>, skip: usize) -> Vec<LockRef> {
    locks.skip(skip).take(PAGE).cloned().collect()
}

/// The locks of a queue, read in pages.
///
/// None is judged while the index is locked, since every reconcile needs it.
fn in_pages(page: impl Fn(usize) -> Vec<LockRef>) -> impl Iterator<Item = LockRef> {
    (0..).step_by(PAGE).map(page).take_while(|page| !page.is_empty()).flatten()
}

/// Whether a hold has the key, or one of its slots, on the quorum with that name.
///
/// A quorum that was deleted by force and created again has no record of earlier holds. Their holders trust the published status. Only the
/// status of such a lock excludes other locks until its hold ends.
fn has(record: &HoldRecord, quorum: &HeldQuorum, key: &LockKey) -> bool {
    record.quorum.reference() == quorum.reference() && without_slot(&record.key) == key.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{claim, parsed};
    use crate::lock::leader::tests;
    use crate::lock::model::decide::WaitReason;
    use crate::lock::model::held_message::HeldMessage;
    use crate::runtime::cache::Cache;
    use crate::runtime::fake_api;

    #[test]
    fn a_queue_is_read_in_pages_until_its_end() {
        let locks: Vec<_> = (0..100).map(|number| ObjectRef::new(&format!("l-{number}")).within("ns")).collect();
        let pages = |skip: usize| page(locks.iter(), skip);
        assert_eq!(in_pages(pages).collect::<Vec<_>>(), locks);
        assert_eq!(in_pages(pages).take(3).collect::<Vec<_>>(), locks[..3]);
    }

    #[tokio::test]
    async fn a_lock_that_cannot_hold_its_key_decides_no_number_of_slots() {
        let lock = |name: &str, second: u8, slots: i32| {
            claim(name, second, json!({"spec": {"quorumRef": {"name": "q"}, "slots": slots}}))
        };
        let quorum = json!({"metadata": {"name": "q", "namespace": "ns", "uid": "q"}, "spec": {},
            "status": {"maxTTLInForce": "30s"}});
        let mut context = fake_api::context(|_request| (404, json!({})));
        context.locks = Cache::filled(vec![lock("old", 1, 2), lock("young", 2, 1)]);
        context.quorums = Cache::filled(vec![parsed(quorum)]);
        let leader = tests::leader(context.clone());
        for lock in context.locks.all() {
            leader.peers.lock_changed(&Change::Applied(lock));
        }
        let of = |name: &str| context.locks.get(&LockRef::new(name).within("ns")).unwrap();
        let (old, young) = (of("old"), of("young"));
        let access = access::of(&context, &young).unwrap();
        assert!(matches!(leader.peers.place(&young, &access), Err(Refusal::OlderWithOtherSlots { .. })));
        let no_pod = HeldMessage::NoCandidate { why: "its pod does not exist".to_owned() };
        leader.postpone(&old, WaitReason { message: no_pod, retry_after: None });
        assert!(leader.peers.place(&young, &access).is_ok());
    }

    #[test]
    fn a_hold_excludes_other_holds_on_a_recreated_quorum() {
        let quorum = |name: &str, uid: &str| HeldQuorum {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        let key = |key: &str| LockKey::new(key.to_owned());
        let held = HoldRecord { quorum: quorum("q", "former"), key: key("shop/k"), rejoin_delay: Duration::ZERO };
        assert!(has(&held, &quorum("q", "former"), &key("shop/k")));
        assert!(has(&held, &quorum("q", "present"), &key("shop/k")));
        assert!(!has(&held, &quorum("other", "former"), &key("shop/k")), "the hold is on another quorum");
        assert!(!has(&held, &quorum("q", "present"), &key("shop/other")));
        let slot = HoldRecord { key: key("shop/k#1"), ..held };
        assert!(has(&slot, &quorum("q", "present"), &key("shop/k")));
    }
}
