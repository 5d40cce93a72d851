//! The default quorum in force. An administrator can name another one while locks are held that name no quorum: the earlier one stays in
//! force until nothing is held there, so that no key has two holders.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;

use super::parts::Parts;
use super::store::Store;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::replica::location;
use crate::runtime::context::Context;

/// Between two looks at what is held on the earlier default.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// At the beginning of a term, before anything is granted.
pub(super) fn begin(context: &Context, store: &Store) {
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

/// Puts the default quorum of the settings in force when nothing is held on the earlier one.
pub(super) async fn tend(parts: &Parts) {
    let Parts { context, store, peers, .. } = parts;
    let wanted = &context.replica.settings.default_quorum;
    while context.default_quorum() != *wanted {
        tokio::time::sleep(LOOK_AGAIN).await;
        // No lock without a quorum of its own is acquired at this moment.
        let Ok(_nothing_granted) = parts.granting_by_default.try_write() else { continue };
        if held_elsewhere(context, store).is_none() {
            tracing::info!(quorum = wanted.as_ref().map(ToString::to_string), "this default quorum is in force now");
            context.put_default_in_force(wanted.clone());
            peers.index.of_quorum(&None).into_iter().for_each(|lock| peers.nudge(lock));
        }
    }
    std::future::pending().await
}

/// The earlier default that locks without a quorum of their own are held on, if there is one.
fn held_elsewhere(context: &Context, store: &Store) -> Option<HeldQuorum> {
    let locks: Vec<_> = context.locks.all().into_iter().map(|lock| store.newest(lock)).collect();
    let held = locks.iter().filter_map(|lock| held_by_default(lock));
    let wanted = context.replica.settings.default_quorum.as_ref();
    first_other(held, wanted, |quorum| location::exists(context, quorum))
}

/// The quorum of the hold of a lock that names none.
fn held_by_default(lock: &DistributedLock) -> Option<HeldQuorum> {
    let status = lock.status.as_ref().filter(|_| lock.spec.quorum_ref.is_none())?;
    status.holder.as_ref()?.quorum.clone()
}

/// The first of these quorums by name that exists and is not the wanted one.
fn first_other(
    held: impl Iterator<Item = HeldQuorum>,
    wanted: Option<&ObjectRef<RedisQuorum>>,
    exists: impl Fn(&HeldQuorum) -> bool,
) -> Option<HeldQuorum> {
    let others = held.filter(|quorum| Some(&quorum.reference()) != wanted && exists(quorum));
    others.min_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(name: &str) -> HeldQuorum {
        HeldQuorum { namespace: "ns".to_owned(), name: name.to_owned(), uid: name.to_owned() }
    }

    #[test]
    fn a_default_that_was_moved_is_in_force_when_nothing_is_held_on_the_earlier_one() {
        let wanted = quorum("new").reference();
        let other = |held: &[&str], gone: &str| {
            let held = held.iter().map(|name| quorum(name));
            first_other(held, Some(&wanted), |quorum| quorum.name != gone).map(|quorum| quorum.name)
        };
        assert_eq!(other(&["new", "old"], ""), Some("old".to_owned()));
        assert_eq!(other(&["new"], ""), None);
        assert_eq!(other(&["old"], "old"), None, "what is held on a quorum that is gone runs out");
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
