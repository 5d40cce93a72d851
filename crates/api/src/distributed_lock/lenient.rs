//! A lock that cannot be read as a whole, as far as it can be read.
//!
//! Each field that cannot be read counts as absent. So there is one kind of locks: the operator judges this one like any other, and
//! refuses it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::lenient::{Unreadable, is_readable};

use super::{Claim, DistributedLock, DistributedLockSpec, DistributedLockStatus, Election, LockHolder, PastHold};

/// For a name that cannot be read.
const UNKNOWN: &str = "unknown";
/// The part of an error that fits into the status, in characters.
const LONGEST_ERROR: usize = 400;

impl DistributedLock {
    /// The readable fields of a lock that cannot be read as a whole.
    #[must_use]
    pub fn lenient(raw: &Unreadable) -> Self {
        let part =
            |name: &str| raw.object.get(name).filter(|part| part.is_object()).cloned().unwrap_or_else(|| json!({}));
        let (mut spec, mut status) = (part("spec"), part("status"));
        mend::<Claim>(&mut spec, "claim", json!({}));
        mend::<Election>(&mut spec, "election", json!({}));
        // A holder that cannot be read is a holder all the same, and an end is an end.
        mend::<LockHolder>(&mut status, "holder", json!({"identity": UNKNOWN}));
        let end = json!({"since": "1970-01-01T00:00:00.000Z", "reason": "Unreadable"});
        mend::<super::Stopping>(&mut status, "stopping", end.clone());
        mend::<super::Ending>(&mut status, "ending", end);
        readable_items::<Condition>(&mut status, "conditions");
        readable_items::<PastHold>(&mut status, "history");
        let mut spec: DistributedLockSpec = readable_fields(json!(DistributedLockSpec::default()), &spec);
        let status: DistributedLockStatus = readable_fields(json!(DistributedLockStatus::default()), &status);
        spec.unreadable = Some(raw.error.chars().take(LONGEST_ERROR).collect());
        spec.key = spec.key.or_else(|| status.key.clone());
        Self { metadata: raw.metadata.clone(), spec, status: Some(status) }
    }
}

/// `base` with those fields of `value` that can be read.
fn with_readable_fields<T: DeserializeOwned>(mut base: Value, value: &Value) -> Value {
    for (name, field) in value.as_object().into_iter().flatten() {
        let mut with = base.clone();
        with[name] = field.clone();
        if is_readable::<T>(&with) {
            base = with;
        }
    }
    base
}

fn readable_fields<T: DeserializeOwned + Default>(base: Value, value: &Value) -> T {
    serde_json::from_value(with_readable_fields::<T>(base, value)).unwrap_or_default()
}

/// Replaces a field that cannot be read by what can be read of it.
fn mend<T: DeserializeOwned + Serialize>(object: &mut Value, name: &str, base: Value) {
    if let Some(field) = object.get_mut(name).filter(|field| !field.is_null() && !is_readable::<T>(field)) {
        *field = with_readable_fields::<T>(base, field);
    }
}

/// Removes the items of a list that cannot be read.
fn readable_items<T: DeserializeOwned>(object: &mut Value, name: &str) {
    if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
        items.retain(is_readable::<T>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{LockCondition, is_true};
    use crate::lenient::read_object;

    /// A held claim with this value in one place.
    fn lenient(pointer: &str, value: Value) -> DistributedLock {
        let mut object = json!({"metadata": {},
            "spec": {"key": "k", "claim": {"identity": "me"}, "ttl": "20s"},
            "status": {"transitions": 3, "fencingToken": 5, "validUntil": "2026-01-01T00:00:00.000Z", "key": "k",
                "holder": {"identity": "me", "nonce": "0707", "key": "shop/k", "rejoinDelay": "40s",
                    "quorum": {"namespace": "locks", "name": "main", "uid": "q"}},
                "ending": {"since": "2026-01-01T00:00:00.000Z", "reason": "Suspended"},
                "conditions": [{"type": "Held", "status": "True", "reason": "Held", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        match object.pointer_mut(parent).unwrap() {
            Value::Array(items) => items.push(value),
            parent => parent[field] = value,
        }
        let unreadable = read_object::<DistributedLock>(object).err().unwrap_or_else(|| panic!("{pointer}"));
        DistributedLock::lenient(&unreadable)
    }

    #[test]
    fn a_field_that_cannot_be_read_takes_no_other_field_with_it() {
        let lock = lenient("/spec/ttlAfterFinished", json!("9999999h"));
        assert!(lock.spec.unreadable.is_some_and(|error| error.contains("9999999h")));
        assert_eq!(lock.spec.ttl.get().as_secs(), 20);
        let status = lock.status.unwrap();
        let holder = status.holder.unwrap();
        assert_eq!((holder.nonce.as_deref(), holder.quorum.unwrap().uid.as_str()), (Some("0707"), "q"));
        assert_eq!((status.transitions, status.ending.unwrap().reason.as_str()), (3, "Suspended"));
        assert!(is_true(&status.conditions, LockCondition::Held));
    }

    #[test]
    fn unreadable_holders_ends_and_claims_still_exist() {
        let holder = |pointer, value| lenient(pointer, value).status.unwrap().holder.unwrap();
        let of_no_quorum = holder("/status/holder/quorum", json!("main"));
        assert_eq!((of_no_quorum.quorum, of_no_quorum.nonce.as_deref()), (None, Some("0707")));
        assert_eq!(holder("/status/holder", json!("me")).identity, UNKNOWN);
        assert_eq!(holder("/status/holder/identity", json!(7)).key.as_deref(), Some("shop/k"));
        let ending = lenient("/status/ending/since", json!("soon")).status.unwrap().ending.unwrap();
        assert_eq!((ending.since.as_millis(), ending.reason.as_str()), (0, "Suspended"));
        assert_eq!(lenient("/spec/claim", json!(7)).spec.claim, Some(Claim::default()));
        assert_eq!(lenient("/spec/key", json!(7)).spec.key.as_deref(), Some("k"), "by the status");
        let conditions =
            lenient("/status/conditions/-", json!({"type": "of a later version"})).status.unwrap().conditions;
        assert_eq!(conditions.len(), 1);
    }
}
