//! Who is not to lead a lock again at once: pods whose hold was ended, and container instances that did not answer when they were
//! asked.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

use crate::{
    api::{DistributedLock, conditions::HeldReason},
    time::{Boottime, UnixMillis},
};

/// Ends after which another candidate is to lead. Not those that say that the holder is gone, that its health is not known, or that
/// the lock is to have no holder.
const ASKED_TO_GO: [HeldReason; 5] = [
    HeldReason::SteppedDown,
    HeldReason::Broken,
    HeldReason::HolderUnhealthy,
    HeldReason::MaxHoldReached,
    HeldReason::Released,
];

/// Whether the last hold was this pod's, and was ended against it: it is another one's turn, however long no candidate could be elected
/// meanwhile. Read off the history, so that every leader knows.
pub(super) fn was_asked_to_go(lock: &DistributedLock, pod_name: &str) -> bool {
    let Some(last) = lock.status.as_ref().and_then(|status| status.history.first()) else { return false };
    last.identity == pod_name && ASKED_TO_GO.iter().any(|reason| last.reason == reason.as_str())
}

/// Whether this pod gave the lock back less than one ttl ago. If it is the only candidate, it would get a token that it does not
/// want at once. `now` is the API server's time, by which the end of the hold was written.
pub(super) fn has_just_released(lock: &DistributedLock, pod_name: &str, now: UnixMillis) -> bool {
    let Some(last) = lock.status.as_ref().and_then(|status| status.history.first()) else { return false };
    let ago = u128::try_from(now.0.saturating_sub(last.to.as_millis())).unwrap_or(0);
    last.identity == pod_name && last.reason == HeldReason::Released.as_str() && ago < lock.spec.ttl.get().as_millis()
}

/// By lock and container instance, until when.
#[derive(Debug, Default)]
pub(super) struct Exclusions(Mutex<HashMap<(String, String), Boottime>>);

impl Exclusions {
    /// Adds an instance, or prolongs its time; whether it was there already.
    pub(super) fn add(&self, lock: &str, container: &str, now: Boottime, time: Duration) -> bool {
        let mut until = self.0.lock();
        until.retain(|_, until| *until > now);
        until.insert((lock.to_owned(), container.to_owned()), now + time).is_some()
    }

    /// Whether an instance is to be passed over now.
    pub(super) fn contains(&self, lock: &str, container: &str, now: Boottime) -> bool {
        let until = self.0.lock();
        until.get(&(lock.to_owned(), container.to_owned())).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_hold_was_ended_is_passed_over_and_whose_container_died_is_not() {
        let passed_over = |reason: &str, pod| {
            let end = serde_json::json!({"identity": "a-0", "to": "1970-01-01T00:00:10.000Z", "reason": reason});
            let object = serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "l"}, "spec": {"ttl": "5s"}, "status": {"transitions": 1, "history": [end]}});
            was_asked_to_go(&serde_json::from_value(object).unwrap(), pod)
        };
        assert!(passed_over("SteppedDown", "a-0") && !passed_over("SteppedDown", "a-1"));
        assert!(!passed_over("HolderGone", "a-0") && !passed_over("Suspended", "a-0"));
    }

    #[test]
    fn who_gave_a_lock_back_does_not_get_it_within_one_ttl() {
        let end = serde_json::json!({"identity": "a-0", "to": "1970-01-01T00:00:10.000Z", "reason": "Released"});
        let object = serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "l"}, "spec": {"ttl": "5s"}, "status": {"transitions": 1, "history": [end]}});
        let lock: DistributedLock = serde_json::from_value(object).unwrap();
        let released = |pod, now| has_just_released(&lock, pod, UnixMillis(now));
        assert!(released("a-0", 14_999) && !released("a-0", 15_000) && !released("a-1", 11_000));
        assert!(was_asked_to_go(&lock, "a-0"));
    }

    #[test]
    fn an_instance_is_passed_over_for_its_lock_and_for_a_while_only() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let exclusions = Exclusions::default();
        assert!(!exclusions.add("lock", "c1", at(0), Duration::from_secs(10)));
        assert!(exclusions.contains("lock", "c1", at(9)));
        assert!(!exclusions.contains("other", "c1", at(9)) && !exclusions.contains("lock", "c2", at(9)));
        assert!(!exclusions.contains("lock", "c1", at(10)));
        assert!(exclusions.add("lock", "c1", at(9), Duration::from_secs(10)));
        assert!(exclusions.contains("lock", "c1", at(18)));
    }
}
