//! The default quorum in force.
//!
//! An administrator can move the default while locks without a quorum of their own are held on the earlier one. The earlier default stays
//! in force until all these holds have ended, so that no key has two holders.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;

use super::leader_context::LeaderContext;
use super::lock_store::LockStore;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::contention::LockRef;
use crate::lock::replica::location;
use crate::runtime::context::Context;

/// How often the leader checks for holds on the earlier default.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Sets the default in force at the beginning of a term, before the first grant.
pub(super) fn begin(context: &Context, store: &LockStore) {
    let wanted = context.replica.settings.default_quorum.clone();
    let earlier = held_elsewhere(context, store);
    if let Some(earlier) = &earlier {
        tracing::warn!(
            in_force = %earlier, wanted = wanted.as_ref().map(ToString::to_string),
            "locks that name no quorum are held on another default quorum: it stays in force until nothing is held there"
        );
    }
    context.put_default_in_force(earlier.map(|earlier| earlier.reference()).or(wanted));
}

/// Puts the default quorum of the settings in force when no lock is held on the earlier one.
pub(super) async fn follow(leader: &LeaderContext) {
    let LeaderContext { context, store, peers, .. } = leader;
    let wanted = &context.replica.settings.default_quorum;
    while context.default_quorum() != *wanted {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // The write lock excludes grants of locks without a quorum of their own.
        let Ok(_nothing_granted) = leader.granting_by_default.try_write() else { continue };
        if held_elsewhere(context, store).is_none() {
            tracing::info!(quorum = wanted.as_ref().map(ToString::to_string), "this default quorum is in force now");
            context.put_default_in_force(wanted.clone());
            peers.index.of_quorum(&None).into_iter().for_each(|lock| peers.request_reconcile(lock));
        }
    }
    std::future::pending().await
}

/// Returns the earlier default on which locks without a quorum of their own are held.
fn held_elsewhere(context: &Context, store: &LockStore) -> Option<HeldQuorum> {
    let locks = context.locks.all();
    let newest = locks.iter().filter_map(|lock| store.get(&LockRef::from_obj(&**lock)));
    let held = newest.filter_map(|lock| held_by_default(&lock));
    let wanted = context.replica.settings.default_quorum.as_ref();
    first_other(held, wanted, |quorum| location::exists(context, quorum))
}

/// The quorum of a hold, if the lock names no quorum.
fn held_by_default(lock: &DistributedLock) -> Option<HeldQuorum> {
    lock.holder().filter(|_| lock.spec.quorum_ref.is_none())?.quorum.clone()
}

/// The first existing quorum by name that is not the wanted one.
fn first_other(
    held: impl Iterator<Item = HeldQuorum>,
    wanted: Option<&ObjectRef<RedisQuorum>>,
    exists: impl Fn(&HeldQuorum) -> bool,
) -> Option<HeldQuorum> {
    let earlier = held.filter(|quorum| Some(&quorum.reference()) != wanted && exists(quorum));
    earlier.min_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(name: &str) -> HeldQuorum {
        HeldQuorum { namespace: "ns".to_owned(), name: name.to_owned(), uid: name.to_owned() }
    }

    #[test]
    fn a_moved_default_waits_for_holds_on_the_earlier_one() {
        let wanted = quorum("new").reference();
        let other = |held: &[&str], gone: &str| {
            let held = held.iter().map(|name| quorum(name));
            first_other(held, Some(&wanted), |quorum| quorum.name != gone).map(|quorum| quorum.name)
        };
        assert_eq!(other(&["new", "old"], ""), Some("old".to_owned()));
        assert_eq!(other(&["new"], ""), None);
        assert_eq!(other(&["old"], "old"), None, "a hold on a deleted quorum runs out");
    }

    #[test]
    fn a_lock_that_names_its_quorum_says_nothing_about_the_default() {
        let lock = |spec: serde_json::Value| -> DistributedLock {
            serde_json::from_value(
                serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "a"}, "spec": spec,
                "status": {"transitions": 1, "holder": {"identity": "a", "quorum": quorum("old")}}}),
            )
            .unwrap()
        };
        assert_eq!(held_by_default(&lock(serde_json::json!({"key": "k"}))), Some(quorum("old")));
        assert_eq!(held_by_default(&lock(serde_json::json!({"key": "k", "quorumRef": {"name": "old"}}))), None);
    }
}
