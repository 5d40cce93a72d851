//! Pure: the state of an election, from its object.

use crate::hold::{Holding, is_taken};
use redlock_api::DistributedLock;
use redlock_api::conditions::{LockCondition, find_condition};

/// The state of an election, from its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ObjectState {
    /// A pod leads. `is_own` means the pod of the application.
    Held { holding: Holding, is_own: bool },
    /// It is certain that no pod leads only if the hold ends, or another lock has the key.
    NotHeld { why: String, is_certain: bool },
}

pub(super) fn read(lock: &DistributedLock, pod_uid: &str) -> ObjectState {
    let status = lock.status.clone().unwrap_or_default();
    if let Some(ending) = status.ending {
        let message = ending.message.unwrap_or_default();
        let why = format!("{message} ({})", ending.reason).trim().to_owned();
        return ObjectState::NotHeld { why, is_certain: true };
    }
    if let Some(holding) = Holding::of(&status)
        && lock.metadata.deletion_timestamp.is_none()
    {
        // Without a published validity, the members must be queried.
        let is_own = status.holder.is_some_and(|holder| holder.pod_uid.as_deref() == Some(pod_uid));
        return ObjectState::Held { holding, is_own };
    }
    let held = find_condition(&status.conditions, LockCondition::Held);
    let why = held.map_or("no pod leads", |held| if held.message.is_empty() { &held.reason } else { &held.message });
    ObjectState::NotHeld { why: why.to_owned(), is_certain: held.is_some_and(|held| is_taken(&held.reason)) }
}

#[cfg(test)]
mod tests {
    use redlock_api::test_util::lock;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::objects::fake::condition;

    fn state(status: Value) -> ObjectState {
        read(&lock(json!({"election": {"selector": {"matchLabels": {"app": "scheduler"}}}}), status), "u-1")
    }

    fn held(pod_uid: &str) -> Value {
        json!({"holder": {"identity": "pod-a", "podUID": pod_uid, "nonce": "n1", "key": "shop/scheduler"},
            "fencingToken": 7, "validUntil": "2026-01-01T00:00:10.500Z"})
    }

    #[test]
    fn the_own_pod_leads_if_the_status_names_its_uid() {
        assert!(matches!(state(held("u-1")), ObjectState::Held { is_own: true, .. }));
        let ObjectState::Held { holding, is_own } = state(held("u-2")) else { panic!("held") };
        assert_eq!((is_own, holding.identity.as_str(), holding.token), (false, "pod-a", 7));
    }

    #[test]
    fn a_hold_that_ends_is_none() {
        let mut status = held("u-1");
        status["ending"] = json!({"since": "2026-01-01T00:00:01Z", "reason": "Broken", "message": "by alice"});
        assert_eq!(state(status), ObjectState::NotHeld { why: "by alice (Broken)".into(), is_certain: true });
    }

    #[test]
    fn only_another_holder_of_the_key_is_a_certain_reason() {
        let because = |reason: &str| state(json!({"conditions": [condition("Held", "False", reason, reason)]}));
        let not_held = |why: &str, is_certain| ObjectState::NotHeld { why: why.into(), is_certain };
        assert_eq!(state(json!({})), not_held("no pod leads", false));
        for reason in ["Queued", "HeldByOther", "LockDelay", "Suspended"] {
            assert_eq!(because(reason), not_held(reason, true));
        }
        for reason in ["Pending", "NoQuorum", "NotAccepted", "NoCandidate"] {
            assert_eq!(because(reason), not_held(reason, false));
        }
    }

    #[test]
    fn without_a_published_validity_the_members_decide() {
        let mut status = held("u-1");
        status["validUntil"] = Value::Null;
        assert!(matches!(state(status), ObjectState::Held { holding, .. } if holding.valid_until == 0));
    }
}
