//! Pure: the order of turns of the locks on one key.

use std::cmp::Reverse;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use super::held_message::HeldMessage;
use super::refusal::Refusal;
use super::status::{LAST_POSITION, full_name};
use crate::api::DistributedLock;

/// Maximum number of holders named in a waiter's condition.
///
/// Every change rewrites the status of all waiters.
const NAMED: usize = 3;

/// The place of a lock among all locks on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Other locks hold all slots of the key, or are first.
    Queued {
        /// The position in the queue, from 1.
        position: usize,
        /// The reason for the wait.
        message: HeldMessage,
    },
    /// It is this lock's turn.
    First,
}

/// The place of `lock` in the queue for its key.
///
/// `holders` are the other holders of the key. `ahead` is the number of able locks of its shape before it. With several free slots, as many
/// locks are first.
///
/// After [`LAST_POSITION`] the message has no position and no holder. Otherwise each hand-over would need a write for every waiting lock.
pub fn place(lock: &DistributedLock, holders: &[&DistributedLock], ahead: usize) -> Place {
    let (free, position) = (slots(lock).saturating_sub(holders.len()), ahead + 1);
    let message = match free {
        _ if ahead < free => return Place::First,
        _ if position > LAST_POSITION => HeldMessage::FarBack,
        0 if holders.iter().all(|peer| is_delayed(peer)) => {
            HeldMessage::DelayedBehind { holder: named(holders), position }
        }
        0 => HeldMessage::Behind { holder: named(holders), position },
        _ => HeldMessage::Waiting { position },
    };
    Place::Queued { position, message }
}

/// The names of the first holders, for messages.
fn named(holders: &[&DistributedLock]) -> String {
    let name = |peer: &&DistributedLock| Some(format!("\"{}\" ({})", peer.holder()?.identity, full_name(peer)));
    let mut names: Vec<_> = holders.iter().filter_map(name).collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Whether other locks must wait for its lockDelay, because its holder did not release it.
fn is_delayed(peer: &DistributedLock) -> bool {
    peer.ending().is_some() && peer.spec.lock_delay.is_some_and(|delay| !delay.get().is_zero())
}

/// The maximum number of slots in the schema.
///
/// An object that bypassed the schema must not exhaust the memory.
const MOST_SLOTS: i32 = 100;

/// How many locks can hold the key at once.
pub(in crate::lock) fn slots(lock: &DistributedLock) -> usize {
    usize::try_from(lock.spec.slots.clamp(1, MOST_SLOTS)).unwrap_or(1)
}

/// The free slots of the key, in order. `None` is a key without slots.
pub fn free_slots(lock: &DistributedLock, holders: &[&DistributedLock]) -> Vec<Option<i32>> {
    if lock.spec.slots <= 1 {
        return vec![None];
    }
    let taken: Vec<_> = holders.iter().filter_map(|peer| peer.holder()?.slot).collect();
    (0..lock.spec.slots.min(MOST_SLOTS)).filter(|slot| !taken.contains(slot)).map(Some).collect()
}

/// The reason why `lock` cannot use its key with its number of slots.
///
/// `oldest` is the oldest lock that waits for the key.
///
/// Locks with different numbers of slots use different keys in Redis, so their holders would not exclude each other. A holder's number of slots
/// therefore decides, whatever its age. Without a holder, the oldest waiting lock decides. A lock that neither holds nor waits is ignored,
/// because it can have finished long ago.
pub fn shape_conflict(
    lock: &DistributedLock,
    holders: &[&DistributedLock],
    oldest: Option<&DistributedLock>,
) -> Option<Refusal> {
    if let Some(holder) = holders.iter().find(|peer| slots(peer) != slots(lock)) {
        return Some(Refusal::HeldWithOtherSlots { other: full_name(holder), slots: holder.spec.slots });
    }
    let oldest = oldest.filter(|oldest| holders.is_empty() && age(oldest) < age(lock))?;
    let other = || Refusal::OlderWithOtherSlots { other: full_name(oldest), slots: oldest.spec.slots };
    (slots(oldest) != slots(lock)).then(other)
}

/// The election that can use a key: the holder, or else the oldest one.
///
/// The oldest of `elections` comes first. If a key had two elections, their pods would lead alternately, and each election would wait for the
/// other.
pub fn election_in_use<T: Deref<Target = DistributedLock>>(elections: &[T]) -> Option<&T> {
    elections.iter().find(|election| election.holder().is_some()).or(elections.first())
}

/// Creation time, namespace and name of an object.
///
/// Several maps use it as their key. Each map allocates room for eleven entries, and most maps have one, so an entry must be small.
pub(in crate::lock) type Age = Arc<(Option<Timestamp>, String, String)>;
/// The sort key for the order of turns.
pub(in crate::lock) type Turn = (Reverse<i32>, Age);

/// The sort key by age, then by namespace and name.
pub(in crate::lock) fn age(lock: &DistributedLock) -> Age {
    let created = lock.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Arc::new((created, lock.namespace().unwrap_or_default(), lock.name_any()))
}

/// The sort key by priority, then by age and name. The order is the same on every replica.
pub(in crate::lock) fn turn(lock: &DistributedLock) -> Turn {
    (Reverse(lock.spec.priority), age(lock))
}

/// Whether a lock waits for its turn.
pub(in crate::lock) fn is_queued(lock: &DistributedLock) -> bool {
    let is_ready = lock.metadata.deletion_timestamp.is_none() && !lock.spec.suspend;
    is_ready && lock.holder().is_none() && !lock.is_finished()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{claim, condition, parsed};

    fn waits_at(position: usize) -> Place {
        Place::Queued { position, message: HeldMessage::Waiting { position } }
    }

    #[test]
    fn priority_goes_before_age_and_a_tie_goes_by_name() {
        let a = claim("a", 1, json!({}));
        let b = claim("b", 0, json!({}));
        let c = claim("c", 1, json!({}));
        let urgent = claim("urgent", 9, json!({"spec": {"priority": 5}}));
        assert!(turn(&urgent) < turn(&b) && turn(&b) < turn(&a) && turn(&a) < turn(&c));
        assert_eq!(place(&b, &[], 0), Place::First);
        assert_eq!(place(&c, &[], 2), waits_at(3));
    }

    #[test]
    fn suspended_deleted_and_finished_locks_do_not_wait() {
        let finished = json!({"transitions": 1, "conditions": [condition("Finished", "True", "Released")]});
        for extra in [
            json!({"spec": {"suspend": true}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:05Z"}}),
            json!({"spec": {"slots": 1}, "status": finished}),
        ] {
            let lock = claim("a", 0, extra);
            assert!(lock.holder().is_none() && !is_queued(&lock), "{lock:?}");
        }
        assert!(is_queued(&claim("d", 9, json!({}))));
    }

    fn holds(name: &str, second: u8, identity: &str) -> DistributedLock {
        claim(name, second, json!({"status": {"transitions": 1, "holder": {"identity": identity}}}))
    }

    #[test]
    fn the_queue_position_counts_only_waiting_locks() {
        let holder = holds("h", 5, "job-1");
        let lock = claim("a", 6, json!({}));
        let behind = |position| {
            let message = HeldMessage::Behind { holder: "\"job-1\" (ns/h)".into(), position };
            Place::Queued { position, message }
        };
        assert_eq!(place(&lock, &[&holder], 0), behind(1));
        assert_eq!(place(&lock, &[&holder], 1), behind(2));
        let mut ending = claim("h", 5, json!({"spec": {"lockDelay": "5s"}, "status": holder.status}));
        assert_eq!(place(&lock, &[&ending], 1), behind(2));
        let ends = json!({"since": "2026-01-01T00:00:06.000Z", "reason": "Suspended"});
        ending.status.as_mut().unwrap().ending = Some(parsed(ends));
        let Place::Queued { message, .. } = place(&lock, &[&ending], 1) else { panic!() };
        assert!(matches!(message, HeldMessage::DelayedBehind { position: 2, .. }), "{message:?}");
    }

    #[test]
    fn far_back_in_the_queue_the_message_names_no_holder() {
        let lock = claim("a", 6, json!({}));
        let holder = |identity: &str| holds("h", 5, identity);
        let far = |position| Place::Queued { position, message: HeldMessage::FarBack };
        assert_eq!(place(&lock, &[&holder("b")], 10), far(11));
        assert_eq!(place(&lock, &[], 10), far(11));
        assert_ne!(place(&lock, &[&holder("b")], 9), place(&lock, &[&holder("c")], 9));
    }

    #[test]
    fn three_holders_are_named_and_the_others_counted() {
        let holders: Vec<_> = ["a", "b", "c", "d", "e"]
            .map(|name| {
                let status = json!({"transitions": 1, "holder": {"identity": format!("job-{name}")}});
                claim(name, 0, json!({"status": status, "spec": {"slots": 5}}))
            })
            .into();
        assert_eq!(
            named(&holders.iter().collect::<Vec<_>>()),
            r#""job-a" (ns/a), "job-b" (ns/b), "job-c" (ns/c), 2 more"#
        );
    }

    #[test]
    fn as_many_locks_go_first_as_slots_are_free() {
        let two = |name: &str, second: u8, slot: Option<i32>| {
            let status = slot.map(|slot| json!({"transitions": 1, "holder": {"identity": name, "slot": slot}}));
            claim(name, second, json!({"spec": {"slots": 2}, "status": status}))
        };
        let holder = two("a", 0, Some(0));
        let next = two("b", 1, None);
        assert_eq!(place(&next, &[&holder], 0), Place::First);
        assert_eq!(place(&next, &[&holder], 1), waits_at(2));
        assert_eq!(free_slots(&next, &[&holder]), vec![Some(1)]);
        assert_eq!(free_slots(&claim("d", 3, json!({})), &[]), vec![None]);
    }

    fn shaped(name: &str, second: u8, slots: i32, status: serde_json::Value) -> DistributedLock {
        claim(name, second, json!({"spec": {"slots": slots}, "status": status}))
    }

    fn waiting() -> serde_json::Value {
        json!({"transitions": 0})
    }

    fn held() -> serde_json::Value {
        json!({"transitions": 1, "holder": {"identity": "worker-1"}})
    }

    #[test]
    fn the_holder_or_the_oldest_election_uses_the_key() {
        let old = shaped("a", 0, 1, waiting());
        let (young, holder) = (shaped("b", 1, 1, waiting()), shaped("c", 2, 1, held()));
        let name = |elections: &[&DistributedLock]| election_in_use(elections).map(|election| election.name_any());
        assert_eq!(name(&[&old, &young, &holder]).as_deref(), Some("c"));
        assert_eq!(name(&[&old, &young]).as_deref(), Some("a"));
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn among_objects_that_wait_the_oldest_fixes_the_number_of_slots() {
        let old = shaped("a", 0, 2, waiting());
        let young = shaped("b", 1, 3, waiting());
        assert!(shape_conflict(&young, &[], Some(&old)).unwrap().to_string().contains("ns/a is older"));
        assert!(shape_conflict(&old, &[], Some(&old)).is_none());
        assert!(shape_conflict(&old, &[], Some(&young)).is_none());
    }

    #[test]
    fn the_number_of_slots_of_a_holder_decides_at_any_age() {
        let waits = shaped("c", 0, 2, waiting());
        let holder = shaped("a2", 9, 1, held());
        assert!(shape_conflict(&waits, &[&holder], Some(&waits)).unwrap().to_string().contains("ns/a2 holds the key"));
        let next = shaped("d", 10, 1, waiting());
        assert!(shape_conflict(&next, &[&holder], Some(&waits)).is_none(), "the holder has the same number of slots");
    }
}
