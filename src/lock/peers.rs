//! The other locks on a key, as the caches and this replica's own writes have them.

use std::sync::Arc;

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{
    access::{self, Access},
    decide::Refusal,
    queue::{self, Place},
    reconcile::Locks,
    record::{self, HoldRecord},
    unreadable::{Raw, locate},
};
use crate::{
    api::{DistributedLock, HeldQuorum, KeyLayout, conditions::AcceptedReason},
    redlock::LockKey,
};

impl Locks {
    /// Locks that name no quorum contend whatever the default is: what one of them still has on the default of before keeps the
    /// others off the new one.
    pub(super) fn held_elsewhere(&self, lock: &DistributedLock, access: &Access) -> Option<String> {
        if lock.spec.quorum_ref.is_some() {
            return None;
        }
        let namespace = lock.namespace();
        if let Some(waits_for) = self.held_elsewhere_unreadable(lock, access) {
            return Some(waits_for);
        }
        let others = self.index.sharing_key(lock);
        let others =
            others.iter().filter_map(|other| self.context.locks.get(other)).map(|other| self.written.newest(other));
        others.filter(|other| other.spec.quorum_ref.is_none()).find_map(|other| {
            let held = HoldRecord::of(&self.context, &other).map(|record| record.quorum);
            let let_go =
                other.status.as_ref().and_then(|status| status.let_go.as_ref()).map(|let_go| let_go.quorum.clone());
            let quorum = held.into_iter().chain(let_go).find(|quorum| {
                let verbatim = || self.is_verbatim(quorum) || self.is_verbatim(&access.quorum);
                *quorum != access.quorum
                    && record::exists(&self.context, quorum)
                    && (other.namespace() == namespace || verbatim())
            })?;
            Some(format!(
                "{} has the key on RedisQuorum {quorum}, which was the default before: waits until that hold has ended",
                ObjectRef::from_obj(&*other)
            ))
        })
    }

    /// The same of what cannot be read: it may still be held, and where it says so.
    fn held_elsewhere_unreadable(&self, lock: &DistributedLock, access: &Access) -> Option<String> {
        let quorums = self.context.quorums.all();
        let others = self.context.locks.unreadable();
        let mut others = others.iter().map(|raw| Raw::unreadable(raw)).filter(|raw| {
            let key = raw.text("/spec/key").or(raw.metadata.name.as_deref());
            raw.field("/spec/quorumRef").is_none() && key == Some(&lock.key())
        });
        others.find_map(|other| {
            let let_go = other.field("/status/letGo/quorum").and_then(|quorum| serde_json::from_value(quorum.clone()).ok());
            let held = locate(&other, &quorums).map(|place| place.quorum);
            let quorum = held.into_iter().chain(let_go).find(|quorum| {
                let same = other.metadata.namespace == lock.namespace();
                *quorum != access.quorum
                    && record::exists(&self.context, quorum)
                    && (same || self.is_verbatim(quorum) || self.is_verbatim(&access.quorum))
            })?;
            Some(format!(
                "DistributedLock {}, which the operator cannot read, has the key on RedisQuorum {quorum}, which was the default before: \
                 waits until that hold has ended",
                other.full_name()
            ))
        })
    }

    fn is_verbatim(&self, quorum: &HeldQuorum) -> bool {
        let quorum = self.context.quorums.get(&quorum.reference());
        quorum.is_some_and(|quorum| quorum.spec.keys == KeyLayout::Verbatim)
    }

    /// All locks on the same key of the same quorum, itself included, as last written here. What is held counts where it is held,
    /// also when it would not be accepted now.
    pub fn peers(&self, lock: &DistributedLock, access: &Access) -> Vec<Arc<DistributedLock>> {
        let same = |other: &DistributedLock| match HoldRecord::of(&self.context, other) {
            Some(record) => record.quorum == access.quorum && is_slot_of(&record.key, &access.key),
            None => access::of(&self.context, other)
                .is_ok_and(|other| other.quorum == access.quorum && other.key == access.key),
        };
        self.index
            .sharing_key(lock)
            .iter()
            .filter_map(|reference| self.context.locks.get(reference))
            .map(|peer| self.written.newest(peer))
            .filter(|peer| same(peer))
            .collect()
    }

    /// Whether the spec can be served beside the others on the key, and whose turn it is.
    pub(super) fn place(&self, lock: &DistributedLock, access: &Access) -> Result<Place, Refusal> {
        let peers = self.peers(lock, access);
        let peers: Vec<_> = peers.iter().map(|peer| &**peer).collect();
        if let Some(message) = queue::shape_conflict(lock, &peers) {
            return Err(Refusal { reason: AcceptedReason::KeyShapeConflict, message });
        }
        Ok(queue::place(lock, &peers, |peer| self.is_eligible(peer)))
    }
}

/// Whether this is the key itself or one of its slots.
fn is_slot_of(held: &LockKey, key: &LockKey) -> bool {
    let rest = held.as_str().strip_prefix(key.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}
