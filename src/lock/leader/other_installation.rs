//! Locks whose quorum another installation of the operator serves. This one does not change them.

use std::sync::Arc;

use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::decide::has_finalizer;
use crate::runtime::context::Context;

/// Whether another installation serves the quorum of a lock.
///
/// That is the recorded quorum of its hold, or else the quorum that its specification selects. Without this quorum, the namespace that the
/// specification names decides.
pub(super) fn serves_quorum_of(context: &Context, lock: &DistributedLock) -> bool {
    let settings = &context.replica.settings;
    let quorum = match lock.holder().and_then(|holder| holder.quorum.as_ref()) {
        Some(recorded) => {
            context.quorums.get(&recorded.reference()).filter(|quorum| HeldQuorum::of(quorum) == *recorded)
        }
        None => selected_quorum(context, lock),
    };
    match (quorum, lock.named_quorum()) {
        (Some(quorum), _) => !settings.serves(&quorum),
        (None, Some((namespace, _name))) => !settings.quorums.contains(&namespace),
        // Only one installation grants locks without a quorum of their own.
        (None, None) => false,
    }
}

/// The quorum that the specification of a lock selects, if it exists.
pub(super) fn selected_quorum(context: &Context, lock: &DistributedLock) -> Option<Arc<RedisQuorum>> {
    match lock.named_quorum() {
        Some((namespace, name)) => context.quorums.named(&namespace, &name),
        None => context.quorums.get(&context.default_quorum()?),
    }
}

/// Whether a deleted lock waits only for the removal of its finalizer.
///
/// The installation that serves its quorum possibly does not watch the lock, and would never remove it.
pub(super) fn awaits_only_finalizer(lock: &DistributedLock) -> bool {
    let is_free = lock.holder().is_none() && lock.ending().is_none();
    lock.metadata.deletion_timestamp.is_some() && is_free && has_finalizer(lock)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::LOCK_FINALIZER;
    use crate::api::test_util::parsed;
    use crate::lock::replica::location;
    use crate::runtime::fake_api;
    use crate::runtime::scope::Scope;
    use crate::runtime::settings::Settings;

    /// An operator does not watch the quorums of other namespaces, so it cannot know that one is deleted.
    #[tokio::test]
    async fn a_quorum_of_another_namespace_is_not_a_deleted_one() {
        let settings = Settings { quorums: Scope::of(&["ours".to_owned()], &[]), ..Settings::default() };
        let mut context = fake_api::context(|_request| (500, json!({})));
        context.replica.settings = Arc::new(settings);
        let lock = |quorum: serde_json::Value, held: Option<&str>| -> DistributedLock {
            let record =
                |namespace| json!({"identity": "a", "quorum": {"namespace": namespace, "name": "q", "uid": "1"}});
            parsed(json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"key": "k", "quorumRef": quorum},
                "status": {"transitions": 1, "holder": held.map(record)}}))
        };
        let named = |namespace: &str| json!({"namespace": namespace, "name": "q"});
        for held in [None, Some("theirs")] {
            assert!(serves_quorum_of(&context, &lock(named("theirs"), held)));
            assert!(!serves_quorum_of(&context, &lock(json!(null), held)), "no other installation grants it");
        }
        assert!(!serves_quorum_of(&context, &lock(named("ours"), Some("ours"))), "the quorum is deleted");
        let quorum = |namespace: &str| HeldQuorum { namespace: namespace.into(), name: "q".into(), uid: "1".into() };
        assert_eq!(["ours", "theirs"].map(|namespace| location::exists(&context, &quorum(namespace))), [false, true]);
        assert_eq!(["ours", "theirs"].map(|namespace| context.serves(&quorum(namespace))), [true, false]);
    }

    #[test]
    fn any_operator_removes_a_deleted_lock_without_a_holder() {
        let lock = |deleted: bool, status: serde_json::Value, finalizers: serde_json::Value| -> DistributedLock {
            let deleted = deleted.then_some("1970-01-01T00:00:00Z");
            parsed(json!({"metadata": {"name": "a", "finalizers": finalizers, "deletionTimestamp": deleted},
                "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status}))
        };
        let (ours, free) = (json!([LOCK_FINALIZER]), json!({"transitions": 1}));
        assert!(awaits_only_finalizer(&lock(true, free.clone(), ours.clone())));
        assert!(!awaits_only_finalizer(&lock(false, free.clone(), ours.clone())));
        assert!(!awaits_only_finalizer(&lock(true, free, json!([]))));
        let ending = json!({"transitions": 1, "ending": {"since": "1970-01-01T00:00:00Z", "reason": "Broken"}});
        assert!(!awaits_only_finalizer(&lock(true, ending, ours)), "the other operator must end the hold");
    }
}
