//! When a replica is ready: when it can go on with what is held.
//!
//! A rolling update ends an old replica for each new one that is ready. One that has filled its caches, and knows no validity yet, can
//! renew nothing: with many locks that publish rarely all old replicas would be gone before the leader has published every validity.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use tokio::time::{sleep, timeout};

use crate::{
    api::{DistributedLock, DistributedLockStatus},
    lock::{leader::others::others_quorum, replica::holds::Holds},
    runtime::context::Context,
};

/// What is not published by then will not be: a lock that no replica can renew must not stop an update for ever.
const LONGEST: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// Resolves when this replica knows a validity of every lock that is held, or has waited for long enough.
pub(super) async fn knows_what_is_held(context: &Context, holds: &Holds) {
    let known = async {
        loop {
            let now = context.clock.boottime();
            let is_known = |uid: &str| holds.get(uid).is_some_and(|hold| hold.is_valid(now));
            if unknown(&ours(context), is_known) == 0 {
                return;
            }
            sleep(LOOK).await;
        }
    };
    if timeout(LONGEST, known).await.is_err() {
        let now = context.clock.boottime();
        let left = unknown(&ours(context), |uid| holds.get(uid).is_some_and(|hold| hold.is_valid(now)));
        tracing::warn!(locks = left, "ready, though no validity of these locks has been published");
    }
}

/// Locks that no other installation renews.
fn ours(context: &Context) -> Vec<Arc<DistributedLock>> {
    context.locks.all().into_iter().filter(|lock| others_quorum(context, lock).is_none()).collect()
}

/// How many locks are held, and not ending, whose validity is not known. A leader of an older version, which records no quorum with what
/// it grants, does not publish the quorum's clock: its validities are understood once a replica of this version leads, so that an
/// update that waited for them would only be slow.
fn unknown(locks: &[Arc<DistributedLock>], is_known: impl Fn(&str) -> bool) -> usize {
    let held = locks.iter().filter(|lock| {
        let status = lock.status.as_ref();
        let located =
            |status: &DistributedLockStatus| status.holder.as_ref().is_some_and(|holder| holder.quorum.is_some());
        status.is_some_and(|status| located(status) && status.ending.is_none())
    });
    held.filter(|lock| !is_known(&lock.uid().unwrap_or_default())).count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replica_waits_for_the_validity_of_what_is_held_and_is_to_be_renewed() {
        let lock = |name: &str, status: serde_json::Value| -> Arc<DistributedLock> {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": name, "uid": name}, "spec": {}, "status": status}))
            .map(Arc::new)
            .unwrap()
        };
        let holder = json!({"identity": "me", "quorum": {"namespace": "ns", "name": "main", "uid": "q"}});
        let ending = json!({"reason": "Suspended", "since": "2026-01-01T00:00:00Z"});
        let locks = [
            lock("held", json!({"transitions": 1, "holder": holder})),
            lock("ending", json!({"transitions": 1, "holder": holder, "ending": ending})),
            lock("waiting", json!({"transitions": 0})),
            lock("granted by an older version", json!({"transitions": 1, "holder": {"identity": "me"}})),
        ];
        assert_eq!((unknown(&locks, |_| false), unknown(&locks, |uid| uid == "held")), (1, 0));
    }
}
