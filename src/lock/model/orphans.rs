//! Pure: values on the members that no status names, because a leader died between two of its writes.
//!
//! A signed value identifies its lock. The status of that lock decides whether the value is an orphan.

use std::sync::Arc;

use kube::ResourceExt;

use crate::api::DistributedLock;
use crate::redlock::{KeyState, LockValue, Nonce, Occupant, ValueSigner};

/// The values that these members have on a key.
fn stored_values(occupants: &[Occupant]) -> impl Iterator<Item = &str> {
    occupants.iter().filter_map(|occupant| match &occupant.holder {
        KeyState::String { value, .. } => Some(value.expose()),
        _ => None,
    })
}

/// A value of this lock that its status does not name.
///
/// If the status has an invalid nonce, it can refer to any value.
pub fn of(lock: &DistributedLock, signer: &ValueSigner, occupants: &[Occupant]) -> Option<LockValue> {
    let uid = lock.uid()?;
    stored_values(occupants).find_map(|value| {
        let nonce = signer.recognise(&uid, value)?;
        (!is_named(lock, &nonce)).then(|| signer.value(&uid, &nonce))
    })
}

/// A value of a finished claim, whose leader died before it could delete the key.
///
/// A finished claim has no grant whose status write is open.
pub fn of_finished(peers: &[Arc<DistributedLock>], signer: &ValueSigner, occupants: &[Occupant]) -> Option<LockValue> {
    peers.iter().filter(|peer| peer.is_finished()).find_map(|peer| of(peer, signer, occupants))
}

/// Whether a value or a seal of one of these locks is among the occupants.
pub fn is_of_any<'a>(
    locks: impl Iterator<Item = &'a DistributedLock>,
    signer: &ValueSigner,
    occupants: &[Occupant],
) -> bool {
    let mut uids = locks.filter_map(ResourceExt::uid);
    uids.any(|uid| stored_values(occupants).any(|value| signer.is_of(&uid, value)))
}

/// The nonce of the hold in the status.
pub fn holder_nonce(lock: &DistributedLock) -> Option<Nonce> {
    lock.holder()?.nonce.as_deref()?.parse().ok()
}

/// Whether the status can refer to this attempt.
///
/// The holder that the status names relies on its hold, so its value is no orphan.
fn is_named(lock: &DistributedLock, nonce: &Nonce) -> bool {
    let named = lock.holder().map(|holder| holder.nonce.as_deref().unwrap_or_default());
    named.is_some_and(|named| named.parse().map_or(true, |named: Nonce| named == *nonce))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{self, condition};
    use crate::redlock::StoredValue;

    fn lock(uid: &str, status: serde_json::Value) -> Arc<DistributedLock> {
        let mut lock = test_util::lock(json!({"key": "k"}), status);
        lock.metadata.uid = Some(uid.to_owned());
        Arc::new(lock)
    }

    #[test]
    fn a_value_of_an_election_on_the_key_is_of_this_operator() {
        let (signer, nonce) = (ValueSigner::new(b"key"), Nonce::from_bytes([7; 10]));
        let (election, other) = (lock("election", json!({"transitions": 0})), lock("other", json!({"transitions": 0})));
        let value = signer.value("election", &nonce);
        for value in [value.clone(), signer.sealed(&value)] {
            assert!(is_of_any([&*other, &*election].into_iter(), &signer, &on_a_member(&value)));
            assert!(!is_of_any([&*other].into_iter(), &signer, &on_a_member(&value)));
        }
    }

    fn on_a_member(value: &LockValue) -> Vec<Occupant> {
        let value = StoredValue::new(value.expose());
        vec![Occupant { member: "m".into(), holder: KeyState::String { value, remaining: None } }]
    }

    #[test]
    fn a_value_of_this_lock_is_an_orphan_unless_its_status_names_it() {
        let signer = ValueSigner::new(b"key");
        let nonce = Nonce::from_bytes([7; 10]);
        let occupants = on_a_member(&signer.value("uid", &nonce));
        let holder = |nonce: &Nonce| json!({"transitions": 1, "holder": {"identity": "a", "nonce": nonce.to_string()}});
        assert!(of(&lock("uid", holder(&nonce)), &signer, &occupants).is_none());
        assert!(of(&lock("uid", holder(&Nonce::from_bytes([8; 10]))), &signer, &occupants).is_some());
        assert!(of(&lock("uid", json!({"transitions": 0})), &signer, &occupants).is_some());
        assert!(of(&lock("other", json!({"transitions": 0})), &signer, &occupants).is_none());
        for named in [json!("no nonce"), json!(null)] {
            let held = json!({"transitions": 1, "holder": {"identity": "a", "nonce": named}});
            assert!(of(&lock("uid", held), &signer, &occupants).is_none(), "{named}: it can refer to any attempt");
        }
        assert!(of(&lock("uid", json!({"transitions": 0})), &ValueSigner::new(b"another key"), &occupants).is_none());
    }

    #[test]
    fn a_value_of_a_finished_claim_is_an_orphan() {
        let signer = ValueSigner::new(b"key");
        let occupants = on_a_member(&signer.value("uid", &Nonce::from_bytes([7; 10])));
        let finished = json!({"transitions": 1, "conditions": [condition("Finished", "True", "Released")]});
        assert!(of_finished(&[lock("uid", finished)], &signer, &occupants).is_some());
        assert!(of_finished(&[lock("uid", json!({"transitions": 1}))], &signer, &occupants).is_none());
    }
}
