//! Pure: the order in which locks on one key get their turn.

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::{
    DistributedLock,
    conditions::{LockCondition, is_true},
};

/// Where a lock stands among all on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another object on the key has a holder; the position counts from 1.
    Behind {
        /// Who holds the key, for people.
        holder: String,
        /// How many get their turn before this one, plus one.
        position: usize,
    },
    /// Nobody holds the key as far as the objects say, and others are first.
    Waiting {
        /// How many get their turn before this one, plus one.
        position: usize,
    },
    /// It is this lock's turn.
    First,
}

/// Where `lock` stands among `peers`, all the objects on its key, itself included or not. `eligible` says which of them could
/// hold the key now: a claim whose pod does not run, say, blocks nobody. With several slots, so many go first at once as are
/// free.
pub fn place(lock: &DistributedLock, peers: &[&DistributedLock], eligible: impl Fn(&DistributedLock) -> bool) -> Place {
    let others = || peers.iter().filter(|peer| peer.uid() != lock.uid());
    let ahead = others().filter(|peer| is_queued(peer) && turn(peer) < turn(lock) && eligible(peer)).count();
    let holders: Vec<_> = others()
        .filter_map(|peer| Some(format!("{} ({})", peer.status.as_ref()?.holder.as_ref()?.identity, peer.name_any())))
        .collect();
    let free = slots(lock).saturating_sub(holders.len());
    match free {
        0 => Place::Behind { holder: holders.join(", "), position: ahead + 1 },
        free if ahead < free => Place::First,
        _ => Place::Waiting { position: ahead + 1 },
    }
}

/// As the schema has it. An object that came by another way must not cost all memory.
const MOST_SLOTS: i32 = 100;

/// How many may hold the lock's key at once.
fn slots(lock: &DistributedLock) -> usize {
    usize::try_from(lock.spec.slots.clamp(1, MOST_SLOTS)).unwrap_or(1)
}

/// The slots of the key that no peer holds, in order; `None` stands for a key without slots.
pub fn free_slots(lock: &DistributedLock, peers: &[&DistributedLock]) -> Vec<Option<i32>> {
    if lock.spec.slots <= 1 {
        return vec![None];
    }
    let holder = |peer: &DistributedLock| peer.status.as_ref()?.holder.as_ref()?.slot;
    let taken: Vec<_> = peers.iter().filter_map(|peer| holder(peer)).collect();
    (0..lock.spec.slots.min(MOST_SLOTS)).filter(|slot| !taken.contains(slot)).map(Some).collect()
}

/// The oldest object that uses the key with another number of slots than `lock`, if it is older than `lock`. Both would hold
/// the key without excluding each other.
pub fn shape_conflict<'a>(lock: &DistributedLock, peers: &[&'a DistributedLock]) -> Option<&'a DistributedLock> {
    let age = |lock: &DistributedLock| {
        let created = lock.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, lock.namespace().unwrap_or_default(), lock.name_any())
    };
    let oldest = peers.iter().min_by_key(|peer| age(peer))?;
    (slots(oldest) != slots(lock) && age(oldest) < age(lock)).then_some(*oldest)
}

/// Higher priority first, then older, then by name, so that every replica sees the same order.
fn turn(lock: &DistributedLock) -> (std::cmp::Reverse<i32>, Option<Timestamp>, String, String) {
    let created = lock.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (std::cmp::Reverse(lock.spec.priority), created, lock.namespace().unwrap_or_default(), lock.name_any())
}

/// Whether a lock waits for its turn.
fn is_queued(lock: &DistributedLock) -> bool {
    let status = lock.status.as_ref();
    lock.metadata.deletion_timestamp.is_none()
        && !lock.spec.suspend
        && status.is_none_or(|status| status.holder.is_none() && !is_true(&status.conditions, LockCondition::Finished))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, created: &str, extra: serde_json::Value) -> DistributedLock {
        let mut lock = json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created},
            "spec": {"key": "k", "claim": {"identity": name}}
        });
        for (field, value) in extra.as_object().unwrap() {
            for (name, value) in value.as_object().unwrap() {
                lock[field][name] = value.clone();
            }
        }
        serde_json::from_value(lock).unwrap()
    }

    fn all(_: &DistributedLock) -> bool {
        true
    }

    #[test]
    fn older_goes_first_and_a_tie_goes_by_name() {
        let a = claim("a", "2026-01-01T00:00:01Z", json!({}));
        let b = claim("b", "2026-01-01T00:00:00Z", json!({}));
        let c = claim("c", "2026-01-01T00:00:01Z", json!({}));
        let peers = [&a, &b, &c];
        assert_eq!(place(&b, &peers, all), Place::First);
        assert_eq!(place(&a, &peers, all), Place::Waiting { position: 2 });
        assert_eq!(place(&c, &peers, all), Place::Waiting { position: 3 });
    }

    #[test]
    fn priority_goes_before_age() {
        let old = claim("old", "2026-01-01T00:00:00Z", json!({}));
        let urgent = claim("urgent", "2026-01-01T00:00:09Z", json!({"spec": {"priority": 5}}));
        assert_eq!(place(&urgent, &[&old, &urgent], all), Place::First);
    }

    #[test]
    fn whoever_cannot_hold_the_key_blocks_nobody() {
        let suspended = claim("a", "2026-01-01T00:00:00Z", json!({"spec": {"suspend": true}}));
        let deleting =
            claim("b", "2026-01-01T00:00:00Z", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:05Z"}}));
        let vanished = claim("c", "2026-01-01T00:00:00Z", json!({}));
        let lock = claim("d", "2026-01-01T00:00:09Z", json!({}));
        let place = place(&lock, &[&suspended, &deleting, &vanished, &lock], |peer| peer.name_any() != "c");
        assert_eq!(place, Place::First);
    }

    #[test]
    fn behind_a_holder_the_position_counts_those_who_wait() {
        let status = json!({"status": {"transitions": 1, "holder": {"identity": "job-1"}}});
        let holder = claim("h", "2026-01-01T00:00:05Z", status);
        let first = claim("a", "2026-01-01T00:00:06Z", json!({}));
        let second = claim("b", "2026-01-01T00:00:07Z", json!({}));
        let peers = [&holder, &first, &second];
        assert_eq!(place(&first, &peers, all), Place::Behind { holder: "job-1 (h)".into(), position: 1 });
        assert_eq!(place(&second, &peers, all), Place::Behind { holder: "job-1 (h)".into(), position: 2 });
    }

    #[test]
    fn as_many_go_first_as_slots_are_free() {
        let two = |name: &str, created: &str, slot: Option<i32>| {
            let mut claim = claim(name, created, json!({"spec": {"slots": 2}}));
            if slot.is_some() {
                claim.status = Some(crate::api::DistributedLockStatus {
                    holder: Some(crate::api::LockHolder { slot, ..Default::default() }),
                    ..Default::default()
                });
            }
            claim
        };
        let holder = two("a", "2026-01-01T00:00:00Z", Some(0));
        let (next, last) = (two("b", "2026-01-01T00:00:01Z", None), two("c", "2026-01-01T00:00:02Z", None));
        let peers = [&holder, &next, &last];
        assert_eq!(place(&next, &peers, all), Place::First);
        assert_eq!(place(&last, &peers, all), Place::Waiting { position: 2 });
        assert_eq!(free_slots(&next, &peers), vec![Some(1)]);
        assert_eq!(free_slots(&claim("d", "2026-01-01T00:00:03Z", json!({})), &[]), vec![None]);
    }

    #[test]
    fn the_oldest_object_fixes_the_number_of_slots() {
        let old = claim("a", "2026-01-01T00:00:00Z", json!({"spec": {"slots": 2}}));
        let young = claim("b", "2026-01-01T00:00:01Z", json!({"spec": {"slots": 3}}));
        let peers = [&old, &young];
        assert_eq!(shape_conflict(&young, &peers).map(|lock| lock.name_any()), Some("a".into()));
        assert!(shape_conflict(&old, &peers).is_none());
    }
}
