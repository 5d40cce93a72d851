//! The driver on the leader: observe, decide and act, until a lock needs no further step.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::due_renewals::is_mere_renewal;
use super::leader_context::LeaderContext;
use super::progress::{AFTER_REFUSAL, AFTER_REFUSED_END, Error, Progress, Stepped, Synced};
use super::publish_grant::not_written;
use super::{grant, job_sync, labels, observation, other_installation, release, seal, status};
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::contention::LockRef;
use crate::lock::model::decide::{Rest, Step, decide};
use crate::lock::model::end::Phase;
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::key::without_slot;
use crate::lock::model::refusal::Refusal;
use crate::lock::model::status::Draft;
use crate::lock::replica::access::Access;
use crate::redlock::LockKey;
use crate::runtime::fair_queue::Class;
use crate::runtime::reconciles::Action;

/// Maximum number of steps in one reconcile.
///
/// A lock that needs more is reconciled again later, so that a fault causes no endless loop.
const MAX_STEPS: usize = 16;
/// Timers are limited to about two years, so a longer wait is divided.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The pause before the next decision, while this leader offers the Lease to another replica.
const AWAITING_SUCCESSOR: Duration = Duration::from_millis(100);

/// The pause before a lock continues with the mutex of another key.
const OTHER_KEY: Duration = Duration::from_millis(10);

/// Reconciles one lock until it needs no further step.
pub(super) async fn reconcile(leader: &LeaderContext, lock: &LockRef) -> Result<Action, Error> {
    let Some(newest) = leader.store.get(lock) else { return Ok(Action::await_change()) };
    let by_default = newest.spec.quorum_ref.is_none().then(|| leader.granting_by_default.read());
    let _granting = OptionFuture::from(by_default).await;
    let key = key_of(&newest, &observation::access(leader, &newest));
    let mutex = leader.key_mutexes.get(&key);
    let _guard = mutex.lock().await;
    let _slot = leader.reconciles.enter(lock.namespace.as_deref().unwrap_or_default(), Class::Change).await;
    // Only a lock with a slot allocates this future. Thousands can wait for a mutex or a slot.
    let done = Box::pin(reconcile_holding_key(leader, lock, &key)).await;
    // The next lock on the key needs this write before the watch reports it. In Redis, a key and the keys of its slots do not exclude each
    // other.
    leader.peers.refresh(lock);
    done
}

/// Observes, decides and acts until no step is left. The caller has the mutex of the key.
async fn reconcile_holding_key(leader: &LeaderContext, reference: &LockRef, key: &str) -> Result<Action, Error> {
    let Some(mut lock) = leader.store.get(reference) else { return Ok(Action::await_change()) };
    if other_installation::serves_quorum_of(&leader.context, &lock) {
        return leave(leader, &lock).await;
    }
    for _ in 0..MAX_STEPS {
        let access = observation::access(leader, &lock);
        if key_of(&lock, &access) != key {
            // The lock has another key since the caller took the mutex.
            return Ok(Action::requeue(OTHER_KEY));
        }
        let step = decide(&observation::observe(leader, &lock, &access));
        match act(leader, &lock, access.ok(), step).await? {
            Progress::Next(newer) => lock = newer,
            Progress::Done(action) => return Ok(action),
        }
    }
    tracing::warn!(lock = %reference, "one reconcile took too many steps, and the next one continues");
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// The name of a lock's mutex: quorum and key without the slot. A lock without a key has its own.
fn key_of(lock: &DistributedLock, access: &Result<Access, Refusal>) -> String {
    let at = |quorum: &HeldQuorum, key: &LockKey| format!("{quorum} {}", without_slot(key));
    match (HoldRecord::of(lock), access) {
        (Some(record), _) => at(&record.quorum, &record.key),
        (None, Ok(access)) => at(&access.quorum, &access.key),
        (None, Err(_refused)) => lock.uid().unwrap_or_default(),
    }
}

/// Carries out a step. Each arm names the module that does it.
async fn act(leader: &LeaderContext, lock: &Arc<DistributedLock>, access: Option<Access>, step: Step) -> Stepped {
    match step {
        Step::Prepare => grant::prepare(leader, lock).await,
        Step::Acquire(contender) => grant::acquire(leader, lock, access, contender).await,
        Step::Advance(phase) => advance(leader, lock, &phase).await,
        Step::Seal => seal_hold(leader, lock).await,
        Step::HandOver(quorum, why) => Ok(hand_over(leader, &quorum, &why)),
        Step::Keep(rest) => keep(leader, lock, &rest).await,
        Step::Rest(rest) => leave_free(leader, lock, &rest).await,
        Step::RemoveFinalizer => release::remove_finalizer(leader, lock).await,
        Step::Delete => Ok(Progress::Done(leader.store.delete(lock).await.map(|()| Action::await_change())?)),
    }
}

/// Removes the leader label, then replaces the value of the key, so that no replica can extend it.
///
/// The key is sealed even if the label could not be removed.
async fn seal_hold(leader: &LeaderContext, lock: &Arc<DistributedLock>) -> Stepped {
    let label = labels::ensure_none(&leader.context, lock).await;
    let sealed = seal::held(&leader.members, &leader.memory, lock).await;
    label.map(|()| sealed)
}

/// Offers the Lease to another replica, which possibly reaches this quorum.
fn hand_over(leader: &LeaderContext, quorum: &ObjectRef<RedisQuorum>, why: &str) -> Progress {
    leader.reachability.hand_over(quorum, why, leader.members.now());
    Progress::Done(Action::requeue(AWAITING_SUCCESSOR))
}

/// Publishes the status of a held lock, or puts a mere renewal into the queue of renewals.
///
/// Its metadata, its Lease, its leader label and its Job follow that status.
async fn keep(leader: &LeaderContext, lock: &Arc<DistributedLock>, rest: &Rest) -> Stepped {
    let lock = match rest.publish_by {
        Some(publish_by) if is_mere_renewal(lock, &rest.status) => {
            leader.due_renewals.enqueue(lock, publish_by);
            lock.clone()
        }
        _ => status::publish(&leader.store, lock, &rest.status).await?,
    };
    let lease = leader.leases.ensure(&leader.store, &lock).await;
    let label = labels::ensure(&leader.context, &lock).await;
    let job = job_sync::ensure(&leader.context, &lock).await;
    let metadata = status::correct_metadata(&leader.store, &lock).await;
    finish_reconcile(leader, &lock, rest.wake, lease, [label, job, metadata])
}

/// Publishes the status of a free lock, and removes what a hold has left on other objects.
async fn leave_free(leader: &LeaderContext, lock: &Arc<DistributedLock>, rest: &Rest) -> Stepped {
    let published = status::publish(&leader.store, lock, &rest.status).await;
    if let Err(error @ RequestError::Refused(_)) = &published
        && lock.holder().is_none()
    {
        // The earlier status can still report that the lock waits for its turn. Only this pause keeps it from blocking the other locks.
        leader.postpone(lock, not_written(lock, error));
    }
    let lock = published?;
    let lease = leader.leases.ensure(&leader.store, &lock).await;
    let label = labels::ensure_none(&leader.context, &lock).await;
    let job = job_sync::ensure_none(&leader.context, &lock).await;
    finish_reconcile(leader, &lock, rest.wake, lease, [label, job])
}

/// Finishes a reconciliation after the writes to other objects.
///
/// The status names a refused write, and the operator repeats it after a pause.
fn finish_reconcile(
    leader: &LeaderContext,
    lock: &Arc<DistributedLock>,
    wake_after: Option<Duration>,
    lease: Synced,
    others: impl IntoIterator<Item = Result<(), Error>>,
) -> Stepped {
    let (mut refusal, mut wakes) = (None, vec![wake_after]);
    let others = others.into_iter().map(|written| written.map(|()| None));
    for outcome in iter::once(lease).chain(others) {
        match outcome {
            Err(Error::Refused(refused)) => {
                refusal = refusal.or(Some(*refused));
                wakes.push(Some(AFTER_REFUSAL));
            }
            outcome => wakes.push(outcome?),
        }
    }
    if leader.memory.record_refusal(&lock.uid().unwrap_or_default(), refusal) {
        return Ok(Progress::Next(lock.clone()));
    }
    let wake = wakes.into_iter().flatten().min();
    Ok(Progress::Done(wake.map_or_else(Action::await_change, |after| Action::requeue(after.min(LONGEST_WAIT)))))
}

/// Advances the end of a hold. The status names a refused write without which the hold does not end.
async fn advance(leader: &LeaderContext, lock: &Arc<DistributedLock>, phase: &Phase) -> Stepped {
    let LeaderContext { store, memory, .. } = leader;
    match release::advance(leader, lock, phase).await {
        Err(Error::Refused(refusal)) => {
            memory.record_refusal(&lock.uid().unwrap_or_default(), Some((*refusal).clone()));
            let status = Draft::of(lock, store.context.api_now()).accepted(Some(&refusal)).finish();
            status::publish(store, lock, &status).await?;
            Ok(Progress::Done(Action::requeue(AFTER_REFUSED_END)))
        }
        advanced => advanced,
    }
}

/// Handles a lock whose quorum another installation serves. Only its finalizer can need a write.
async fn leave(leader: &LeaderContext, lock: &DistributedLock) -> Result<Action, Error> {
    leader.members.holds.forget(&lock.uid().unwrap_or_default());
    if other_installation::awaits_only_finalizer(lock) {
        release::remove_finalizer(leader, lock).await?;
    }
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::DistributedLockStatus;
    use crate::api::test_util::parsed;
    use crate::lock::leader::tests;
    use crate::runtime::fake_api;

    /// Whether a lock blocks others on its key after the API server answered its status with this code.
    async fn blocks_other_locks(code: u16, status: Value) -> bool {
        let context = fake_api::context(move |_| fake_api::failure(code, "Invalid", "denied"));
        let leader = tests::leader(context);
        let lock = Arc::new(parsed(json!({"metadata": {"name": "app", "namespace": "ns", "uid": "u"},
            "spec": {"claim": {"identity": "a"}}, "status": status})));
        let rest = Rest { status: DistributedLockStatus::default(), wake: None, publish_by: None };
        assert!(leave_free(&leader, &lock, &rest).await.is_err());
        !leader.memory.is_unable("u", leader.members.now())
    }

    #[tokio::test]
    async fn a_waiting_lock_without_its_status_blocks_no_other() {
        let (free, held) = (json!({"transitions": 1}), json!({"transitions": 1, "holder": {"identity": "a"}}));
        assert!(!blocks_other_locks(422, free.clone()).await);
        assert!(blocks_other_locks(503, free).await, "the API server did not refuse the write");
        assert!(blocks_other_locks(422, held).await, "the lock has a holder");
    }
}
