//! Pure: values on the members that a leader left behind which died between two of its writes. A value says by itself of which
//! lock it is; whether it is an orphan is said by that lock's status.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;

use crate::api::DistributedLock;
use crate::api::conditions::{LockCondition, is_true};
use crate::redlock::{Electorate, KeyState, LockValue, MemberFailure, MemberName, Nonce, Seen, ValueSigner};

/// In `letGo`: no leader could read which attempt had the key, so that it may be any of this lock.
pub const EVERY_ATTEMPT: &str = "*";

/// The values among what was seen.
pub fn stored_values(seen: &[Seen]) -> impl Iterator<Item = &str> {
    seen.iter().filter_map(|seen| match &seen.holder {
        KeyState::String { value, .. } => Some(value.expose()),
        _ => None,
    })
}

/// A value that was made for this lock and that its status does not name, neither as held nor as let go. A status that names
/// something which is no nonce may mean any of them.
pub fn of(lock: &DistributedLock, signer: &ValueSigner, seen: &[Seen]) -> Option<LockValue> {
    let uid = lock.uid()?;
    stored_values(seen).find_map(|value| {
        let nonce = signer.recognise(&uid, value)?;
        (!is_named(lock, &nonce)).then(|| signer.value(&uid, &nonce))
    })
}

/// A value of a finished claim: its leader died before it could delete the key. No grant of the claim can be on its way.
pub fn of_finished(peers: &[Arc<DistributedLock>], signer: &ValueSigner, seen: &[Seen]) -> Option<LockValue> {
    let finished = |lock: &DistributedLock| {
        lock.status.as_ref().is_some_and(|status| is_true(&status.conditions, LockCondition::Finished))
    };
    peers.iter().filter(|peer| finished(peer)).find_map(|peer| of(peer, signer, seen))
}

/// Whether a value, or a seal, of one of these locks was seen.
pub fn is_of_any<'a>(locks: impl Iterator<Item = &'a DistributedLock>, signer: &ValueSigner, seen: &[Seen]) -> bool {
    let mut uids = locks.filter_map(ResourceExt::uid);
    uids.any(|uid| stored_values(seen).any(|value| signer.attempt(&uid, value).is_some()))
}

/// The nonce of the hold in the status.
pub fn holder_nonce(lock: &DistributedLock) -> Option<Nonce> {
    lock.status.as_ref()?.holder.as_ref()?.nonce.as_deref()?.parse().ok()
}

/// Whether the status may mean this attempt.
///
/// The holder of what the status names, or has let go, may believe that it holds the lock.
fn is_named(lock: &DistributedLock, nonce: &Nonce) -> bool {
    let Some(status) = &lock.status else { return false };
    let held = status.holder.as_ref().map(|holder| holder.nonce.as_deref().unwrap_or_default());
    let let_go = status.let_go.as_ref().map(|let_go| let_go.nonce.as_str());
    held.into_iter().chain(let_go).any(|named| named.parse().map_or(true, |named: Nonce| named == *nonce))
}

/// The attempts on the lock with this UID whose values, or seals, were seen.
pub fn attempts(
    uid: &str,
    signer: &ValueSigner,
    seen: &[(MemberName, Result<KeyState, MemberFailure>)],
) -> BTreeSet<Nonce> {
    let values = seen.iter().filter_map(|(_, state)| match state {
        Ok(KeyState::String { value, .. }) => Some(value.expose()),
        _ => None,
    });
    values.filter_map(|value| signer.attempt(uid, value)).collect()
}

/// Whether a majority has told what it has on a key.
///
/// What none of these members has can then be held nowhere.
pub fn is_told_by_a_majority(electorate: &Electorate, seen: &[(MemberName, Result<KeyState, MemberFailure>)]) -> bool {
    let has_told = |name: &MemberName| seen.iter().any(|(member, state)| member == name && state.is_ok());
    let told = |list: &Vec<MemberName>| list.iter().filter(|name| has_told(name)).count();
    electorate.lists().iter().all(|list| told(list) * 2 > list.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redlock::StoredValue;

    fn lock(uid: &str, status: serde_json::Value) -> Arc<DistributedLock> {
        let object = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "l", "namespace": "ns", "uid": uid}, "spec": {"key": "k"}, "status": status});
        Arc::new(serde_json::from_value(object).unwrap())
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

    fn on_a_member(value: &LockValue) -> Vec<Seen> {
        let value = StoredValue::new(value.expose());
        vec![Seen { member: "m".into(), holder: KeyState::String { value, remaining: None } }]
    }

    #[test]
    fn a_value_of_this_lock_is_an_orphan_unless_its_status_names_it() {
        let signer = ValueSigner::new(b"key");
        let nonce = Nonce::from_bytes([7; 10]);
        let seen = on_a_member(&signer.value("uid", &nonce));
        let holder = |nonce: &Nonce| json!({"transitions": 1, "holder": {"identity": "a", "nonce": nonce.to_string()}});
        assert!(of(&lock("uid", holder(&nonce)), &signer, &seen).is_none());
        assert!(of(&lock("uid", holder(&Nonce::from_bytes([8; 10]))), &signer, &seen).is_some());
        assert!(of(&lock("uid", json!({"transitions": 0})), &signer, &seen).is_some());
        let let_go = |nonce: &Nonce| {
            json!({"transitions": 1, "letGo": {"nonce": nonce.to_string(), "key": "ns/k",
            "quorum": {"namespace": "ns", "name": "main", "uid": "q"}}})
        };
        assert!(of(&lock("uid", let_go(&nonce)), &signer, &seen).is_none());
        assert!(of(&lock("other", json!({"transitions": 0})), &signer, &seen).is_none());
        for named in [json!("no nonce"), json!(null)] {
            let held = json!({"transitions": 1, "holder": {"identity": "a", "nonce": named}});
            assert!(of(&lock("uid", held), &signer, &seen).is_none(), "{named}: it may mean any attempt");
        }
        let every = json!({"transitions": 1, "letGo": {"nonce": EVERY_ATTEMPT, "key": "ns/k",
            "quorum": {"namespace": "ns", "name": "main", "uid": "q"}}});
        assert!(of(&lock("uid", every), &signer, &seen).is_none());
        assert!(of(&lock("uid", json!({"transitions": 0})), &ValueSigner::new(b"another key"), &seen).is_none());
    }

    #[test]
    fn every_attempt_of_a_lock_is_found_by_its_values_and_by_its_seals() {
        let signer = ValueSigner::new(b"key");
        let nonces = [7, 8, 9].map(|byte| Nonce::from_bytes([byte; 10]));
        let member = |name: &str, value: &LockValue| {
            let value = StoredValue::new(value.expose());
            (MemberName::new(name), Ok(KeyState::String { value, remaining: None }))
        };
        let seen = [
            member("a", &signer.value("uid", &nonces[0])),
            member("b", &signer.sealed(&signer.value("uid", &nonces[1]))),
            member("c", &signer.value("another", &nonces[2])),
            (MemberName::new("d"), Err(MemberFailure::NotAdmitted)),
        ];
        assert_eq!(attempts("uid", &signer, &seen), BTreeSet::from([nonces[0], nonces[1]]));
        let electorate = |names: &[&str]| {
            Electorate::joint(Vec::new(), names.iter().map(|name| MemberName::new(*name)).collect(), vec![])
        };
        for (names, told) in [(&["a", "b", "d"][..], true), (&["a", "d"], false), (&["a", "x", "d"], false)] {
            let (old, all) = (electorate(names), electorate(&["a", "b", "c"]));
            let joint = Electorate::joint(Vec::new(), old.lists()[0].clone(), all.lists()[0].clone());
            assert_eq!(is_told_by_a_majority(&joint, &seen), told, "{names:?}");
        }
    }

    #[test]
    fn a_value_of_another_claim_is_an_orphan_once_that_claim_is_finished() {
        let signer = ValueSigner::new(b"key");
        let seen = on_a_member(&signer.value("uid", &Nonce::from_bytes([7; 10])));
        let finished = json!({"transitions": 1, "conditions": [{"type": "Finished", "status": "True", "reason": "Released",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        assert!(of_finished(&[lock("uid", finished)], &signer, &seen).is_some());
        assert!(of_finished(&[lock("uid", json!({"transitions": 1}))], &signer, &seen).is_none());
    }
}
