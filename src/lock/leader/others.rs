//! Locks whose quorum another operator serves: this one leaves them alone.

use std::sync::Arc;

use kube::ResourceExt;

use crate::api::{DistributedLock, HeldQuorum, LOCK_FINALIZER, RedisQuorum};
use crate::lock::model::contention::designation;
use crate::runtime::context::Context;

/// Whether another operator serves the quorum of a lock.
///
/// It is the quorum that the lock's hold is recorded on, else the one that its specification leads to.
pub fn is_of_another(context: &Context, lock: &DistributedLock) -> bool {
    let status = lock.status.as_ref();
    let recorded = status.and_then(|status| status.holder.as_ref()?.quorum.as_ref());
    let quorum = match recorded {
        Some(recorded) => {
            context.quorums.get(&recorded.reference()).filter(|quorum| HeldQuorum::of(quorum) == *recorded)
        }
        None => named_quorum(context, lock),
    };
    quorum.is_some_and(|quorum| !context.replica.settings.serves(&quorum))
}

/// The quorum that the specification of a lock leads to, if there is one.
pub(super) fn named_quorum(context: &Context, lock: &DistributedLock) -> Option<Arc<RedisQuorum>> {
    match designation(lock) {
        Some((namespace, name)) => context.quorums.named(&namespace, &name),
        None => context.quorums.get(&context.default_quorum()?),
    }
}

/// Whether a lock that is being deleted waits for nothing but its finalizer.
///
/// The operator that serves its quorum perhaps does not watch the lock, and then would never remove it.
pub(super) fn is_let_go(lock: &DistributedLock) -> bool {
    let is_free = lock.status.as_ref().is_none_or(|status| status.holder.is_none() && status.ending.is_none());
    let has_finalizer = lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER);
    lock.metadata.deletion_timestamp.is_some() && is_free && has_finalizer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deleted_lock_without_a_holder_goes_away_whichever_operator_serves_its_quorum() {
        let lock = |deleted: bool, status: serde_json::Value, finalizers: serde_json::Value| -> DistributedLock {
            let mut lock = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "a", "finalizers": finalizers},
                "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status});
            if deleted {
                lock["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            }
            serde_json::from_value(lock).unwrap()
        };
        let (ours, free) = (json!([LOCK_FINALIZER]), json!({"transitions": 1}));
        assert!(is_let_go(&lock(true, free.clone(), ours.clone())));
        assert!(!is_let_go(&lock(false, free.clone(), ours.clone())));
        assert!(!is_let_go(&lock(true, free, json!([]))));
        let ending = json!({"transitions": 1, "ending": {"since": "1970-01-01T00:00:00Z", "reason": "Broken"}});
        assert!(!is_let_go(&lock(true, ending, ours)), "its hold is the other operator's to end");
    }
}
