//! The driver: observe, decide, act, until there is nothing left to do for a lock. Runs on the leader only.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::locks::{Error, Locks, Progress};
use crate::{
    api::{
        DistributedLock, DistributedLockStatus, HeldQuorum,
        conditions::{LockCondition, find_condition},
    },
    lock::{
        model::{
            decide::{Rest, Step, decide},
            events::LockEvent,
            refusal::Refusal,
        },
        replica::{
            access::{self, Access},
            location,
            writes::WriteError,
        },
    },
};

/// A lock that needs more steps than this in one go is looked at again later, so that a mistake cannot spin.
const MAX_STEPS: usize = 16;
/// Timers count no further than about two years; whoever waits longer looks again in between.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Until the term ends, or nobody was found who had better lead.
const AWAITING_SUCCESSOR: Duration = Duration::from_millis(100);

/// Before a lock takes the turn of another key.
const OTHER_TURN: Duration = Duration::from_millis(10);

impl Locks {
    /// Brings one lock to where nothing is left to do.
    pub async fn reconcile(self: Arc<Self>, cached: Arc<DistributedLock>) -> Result<Action, Error> {
        let reference = ObjectRef::from_obj(&*cached);
        let Some(newest) = self.newest_of(&reference) else { return Ok(Action::await_change()) };
        let name = self.turn_of(&newest, &self.access(&newest));
        let turn = self.turns.get(&name);
        let _turn = turn.lock().await;
        // In a box, since thousands may wait for their turn.
        let done = Box::pin(self.look_after(&cached, &name)).await;
        // Before the next one on the key is looked at: the watch shows a grant only later, and the members do not know that a key and its
        // slots exclude each other.
        self.index.refresh(&reference, |lock| self.newest_of(lock));
        self.publication_done(&cached.uid().unwrap_or_default());
        done
    }

    async fn look_after(&self, cached: &DistributedLock, turn: &str) -> Result<Action, Error> {
        let namespace = cached.namespace().unwrap_or_default();
        let mut slot = self.slots.enter(&namespace).await;
        let Some(mut lock) = self.newest_of(&ObjectRef::from_obj(cached)) else { return Ok(Action::await_change()) };
        if let Some(later) = self.leave_to_others(&lock).await? {
            return Ok(later);
        }
        for _ in 0..MAX_STEPS {
            let (view_lock, access) = (lock.clone(), self.access(&lock));
            if self.turn_of(&lock, &access) != turn {
                // It has got a key meanwhile, or another one.
                return Ok(Action::requeue(OTHER_TURN));
            }
            let step = decide(&self.view(&view_lock, &access));
            match self.act(&lock, access, step).await? {
                Progress::Next(newer) => lock = newer,
                Progress::Done(action) => return Ok(action),
                Progress::Ask(candidate) => {
                    // One that answers slowly keeps only locks on its own key waiting.
                    drop(slot);
                    self.ask_candidate(&lock, &candidate).await;
                    slot = self.slots.enter(&namespace).await;
                    let Some(newer) = self.newest_of(&ObjectRef::from_obj(cached)) else {
                        return Ok(Action::await_change());
                    };
                    lock = newer;
                }
            }
        }
        drop(slot);
        tracing::warn!(lock = %ObjectRef::from_obj(&*lock), "too many steps at once, looking again later");
        Ok(Action::requeue(Duration::from_secs(1)))
    }

    /// Which quorum and key a lock may use, if there is room for it. What is held goes on.
    fn access(&self, lock: &DistributedLock) -> Result<Access, Refusal> {
        let limits = &self.context.replica.settings.limits;
        let is_held = lock.status.as_ref().is_some_and(|status| status.holder.is_some());
        if !is_held && self.index.has_older(lock, limits.locks) {
            let namespace = lock.namespace().unwrap_or_default();
            return Err(Refusal::TooManyLocks { namespace, limit: limits.locks });
        }
        access::of(&self.context, lock)
    }

    /// Which turn a lock takes: that of its quorum and key, whatever its number of slots. One that has no key takes turns with nobody.
    pub(super) fn turn_of(&self, lock: &DistributedLock, access: &Result<Access, Refusal>) -> String {
        let at = |quorum: &HeldQuorum, key: &str| format!("{quorum} {}", key.split('#').next().unwrap_or_default());
        match (location::of(&self.context, lock), access) {
            (Some(record), _) => at(&record.quorum, record.key.as_str()),
            (None, Ok(access)) => at(&access.quorum, access.key.as_str()),
            (None, Err(_refused)) => lock.uid().unwrap_or_default(),
        }
    }

    async fn act(
        &self,
        lock: &Arc<DistributedLock>,
        access: Result<Access, Refusal>,
        step: Step,
    ) -> Result<Progress, Error> {
        let client = &self.context.client;
        match step {
            Step::AddFinalizer => self.add_finalizer(lock).await,
            Step::RemoveFinalizer => self.let_go(lock).await,
            Step::Delete => {
                self.written.delete(client, lock).await?;
                Ok(Progress::Done(Action::await_change()))
            }
            Step::Acquire(contender) => match access {
                Ok(access) => self.acquire(lock, &access, contender).await,
                Err(_refused) => Ok(Progress::Next(lock.clone())),
            },
            Step::ClearRequests(names) => {
                let cleared = self.written.clear_annotations(client, lock, &names).await?;
                if let Some(token) = lock.status.as_ref().and_then(|status| status.fencing_token) {
                    self.event(&cleared, LockEvent::ReleaseRefused { token });
                }
                Ok(Progress::Next(cleared))
            }
            Step::Free(freed) => self.free(lock, freed).await,
            Step::Lose(why) => self.lose(lock, &why).await,
            Step::HandOver(quorum, why) => {
                self.reachability.hand_over(&quorum, &why, true, self.context.clock.boottime());
                Ok(Progress::Done(Action::requeue(AWAITING_SUCCESSOR)))
            }
            Step::RunOut(reason, why) => self.run_out(lock, reason, &why).await,
            Step::Seal => self.seal(lock).await,
            Step::LetGo(reason, why) => self.let_go_of(lock, reason, &why).await,
            Step::SealLetGo => self.seal_let_go(lock).await,
            Step::ForgetLetGo => self.forget_let_go(lock).await,
            Step::Keep(rest) => {
                let lock = self.publish_renewal(lock, &rest).await?;
                self.ensure_label(&lock).await?;
                Ok(Progress::Done(wake(rest.wake)))
            }
            Step::Rest(rest) => {
                let lock = self.publish(lock, &rest).await?;
                self.ensure_no_label(&lock).await?;
                Ok(Progress::Done(wake(rest.wake)))
            }
        }
    }

    /// Writes the status if it says something else. Nothing is written while nothing changes.
    pub(super) async fn publish(
        &self,
        lock: &Arc<DistributedLock>,
        rest: &Rest,
    ) -> Result<Arc<DistributedLock>, Error> {
        if lock.status.as_ref() == Some(&rest.status)
            || lock.metadata.deletion_timestamp.is_some() && lock.finalizers().is_empty()
        {
            return Ok(lock.clone());
        }
        let written = self.written.replace_status(&self.context.client, lock, rest.status.clone()).await?;
        if let Some(refusal) = refused_anew(lock, &written) {
            let (accepted, message) = (refusal.reason.clone(), refusal.message.clone());
            self.event(&written, LockEvent::Refused { accepted, message });
        }
        Ok(written)
    }

    /// The same, but a mere renewal waits until the API server has time for it.
    async fn publish_renewal(&self, lock: &Arc<DistributedLock>, rest: &Rest) -> Result<Arc<DistributedLock>, Error> {
        let uid = lock.uid().unwrap_or_default();
        let Some(renewal) = &rest.renewal else { return self.publish(lock, rest).await };
        let waits = || !self.publications().may(&uid, &ObjectRef::from_obj(&**lock), renewal.urgency);
        if is_mere_renewal(lock, rest) && waits() {
            return Ok(lock.clone());
        }
        let written = self.publish(lock, rest).await?;
        self.holds.announced(&uid);
        self.context.metrics.publication_lateness.observe(renewal.lateness.as_secs_f64());
        Ok(written)
    }

    /// The object goes: no status names a holder any more.
    pub(super) async fn let_go(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        self.release_orphans(lock).await;
        match self.written.set_finalizer(&self.context.client, lock, false).await {
            Ok(_) | Err(WriteError::Gone) => {}
            Err(error) => return Err(error.into()),
        }
        let uid = lock.uid().unwrap_or_default();
        self.holds.forget(&uid);
        self.forget(&uid);
        Ok(Progress::Done(Action::await_change()))
    }
}

fn wake(after: Option<Duration>) -> Action {
    after.map_or_else(Action::await_change, |after| Action::requeue(after.min(LONGEST_WAIT)))
}

/// Whether the status would only say of a hold that it has been renewed.
fn is_mere_renewal(lock: &DistributedLock, rest: &Rest) -> bool {
    let Some(before) = &lock.status else { return false };
    let timeless = |status: &DistributedLockStatus| {
        let mut status = status.clone();
        (status.renewed_at, status.valid_until) = (None, None);
        status.conditions.retain(|condition| condition.type_ != LockCondition::PublicationDelayed.as_str());
        status
    };
    timeless(before) == timeless(&rest.status)
}

/// The condition that says why the spec cannot be served, if that was not said before.
fn refused_anew<'a>(before: &DistributedLock, after: &'a DistributedLock) -> Option<&'a Condition> {
    let refusal = |lock: &'a DistributedLock| {
        let conditions = &lock.status.as_ref()?.conditions;
        find_condition(conditions, LockCondition::Accepted).filter(|accepted| accepted.status == "False")
    };
    let said = before.status.as_ref().and_then(|status| find_condition(&status.conditions, LockCondition::Accepted));
    let now = refusal(after)?;
    let known = said.is_some_and(|said| said.status == now.status && said.reason == now.reason);
    (!known).then_some(now)
}
