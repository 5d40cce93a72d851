//! The driver: observe, decide, act, until there is nothing left to do for a lock. Runs on the leader only.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType, reflector::ObjectRef},
};
use tokio::sync::broadcast;

use super::{
    exclusions::Exclusions, index::Index, labels::Wearers, reachability::Reachability, turns::Turns, unreadable::Memory,
};
use crate::{
    api::{
        DistributedLock, DistributedLockStatus, RELEASE_ANNOTATION,
        conditions::{AcceptedReason, LockCondition, find_condition},
    },
    lock::{
        model::{
            candidate::Candidate,
            decide::{Pause, Refusal, Rest, Sealing, Step, decide},
            publications::Publications,
        },
        replica::{
            access::{self, Access},
            holds::Holds,
            liveness::Asked,
            shares::Slots,
            writes::{WriteError, Written},
        },
    },
    quorum::session::Sessions,
    redlock::Nonce,
    runtime::{context::Context, leader::Term},
};

/// So many locks are looked at side by side, of one namespace half as many. More requests at once would only wait for each other in
/// the API server, and keep the leader's own Lease waiting.
const SLOTS: usize = 64;
/// A lock that needs more steps than this in one go is looked at again later, so that a mistake cannot spin.
const MAX_STEPS: usize = 16;
/// Timers count no further than about two years; whoever waits longer looks again in between.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Until the term ends, or nobody was found who had better lead.
const AWAITING_SUCCESSOR: Duration = Duration::from_millis(100);

/// Why a reconcile could not finish; it is repeated with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a write, or its answer is missing.
    #[error("failed to write to the API server")]
    Write(#[from] WriteError),
    /// The quorum could not be asked to reserve tokens.
    #[error("failed to raise the quorum's token floor")]
    TokenFloor(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Before a lock takes the turn of another key.
const OTHER_TURN: Duration = Duration::from_millis(10);

/// Everything that the reconciles of one term of leadership share.
pub struct Locks {
    /// Caches, client, clock.
    pub context: Context,
    /// The term.
    pub reachability: Reachability,
    /// Connections to the quorums.
    pub sessions: Sessions,
    /// The holds of this replica.
    pub holds: Arc<Holds>,
    /// Which locks depend on what.
    pub index: Index,
    /// This replica's own writes.
    pub written: Written,
    /// Asks for reconciles of other locks.
    pub nudges: broadcast::Sender<ObjectRef<DistributedLock>>,
    turns: Turns,
    slots: Slots,
    publications: Mutex<Publications>,
    /// What candidates have answered.
    pub(super) asked: Asked,
    pauses: Mutex<HashMap<String, Pause>>,
    sealed: Mutex<HashMap<String, (Option<Nonce>, Sealing)>>,
    /// What is remembered of locks that cannot be read, by UID.
    pub(super) unreadable: Mutex<HashMap<String, Memory>>,
    /// Who is passed over.
    pub exclusions: Exclusions,
    /// Which pods wear leader labels.
    pub wearers: Wearers,
}

impl Locks {
    /// For a new term; nothing is carried over from an earlier one but the holds.
    pub fn new(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) -> Self {
        let reachability = Reachability::new(term, context.clock.boottime());
        Self {
            written: Written::new(context.metrics.clone()),
            context,
            reachability,
            sessions,
            holds,
            index: Index::default(),
            nudges: broadcast::channel(4096).0,
            turns: Turns::default(),
            slots: Slots::new(SLOTS),
            publications: Mutex::default(),
            asked: Asked::default(),
            pauses: Mutex::default(),
            sealed: Mutex::default(),
            unreadable: Mutex::default(),
            exclusions: Exclusions::default(),
            wearers: Wearers::default(),
        }
    }

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
            return Err(Refusal { reason: AcceptedReason::TooManyLocks, message: limits.too_many_locks(lock) });
        }
        access::of(&self.context, lock)
    }

    /// As the watch has it, or as it was last written here.
    pub(super) fn newest_of(&self, lock: &ObjectRef<DistributedLock>) -> Option<Arc<DistributedLock>> {
        self.context.locks.get(lock).map(|cached| self.written.newest(cached))
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
                    let note = format!(
                        "the annotation {RELEASE_ANNOTATION} was removed and nothing was released: its value is not the token of this \
                         hold. The holder releases it with the value {token}"
                    );
                    self.event(&cleared, EventType::Warning, "ReleaseRefused", note);
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
            self.event(&written, EventType::Warning, refusal.reason.clone(), refusal.message.clone());
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

    fn publications(&self) -> MutexGuard<'_, Publications> {
        self.publications.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a lock had to publish is published, or need not be any more: the next ones may.
    fn publication_done(&self, uid: &str) {
        let told = self.publications().done(uid);
        told.into_iter().for_each(|lock| self.nudge(lock));
    }

    /// Asks for a reconcile.
    fn nudge(&self, lock: ObjectRef<DistributedLock>) {
        // Nobody listens only while the controller is being stopped.
        let _ = self.nudges.send(lock);
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

    /// Drops what is remembered of an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.pause(uid, None);
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        self.written.forget(uid);
        self.asked.forget(uid);
        let told = self.publications().forget(uid);
        told.into_iter().for_each(|lock| self.nudge(lock));
    }

    /// Postpones the next attempt, or forgets the last one.
    pub fn pause(&self, uid: &str, pause: Option<Pause>) {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        match pause {
            Some(pause) => pauses.insert(uid.to_owned(), pause),
            None => pauses.remove(uid),
        };
    }

    /// Why the last attempt failed.
    pub fn last_pause(&self, uid: &str) -> Option<Pause> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Remembers what a majority said about the end of this hold; without a nonce, about that of every attempt.
    pub fn mark_sealed(&self, uid: &str, nonce: Option<Nonce>, sealing: Sealing) {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), (nonce, sealing));
    }

    /// The hold of this lock that was last sealed here.
    pub fn sealed_nonce(&self, uid: &str) -> Option<Nonce> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).get(uid).and_then(|(nonce, _)| *nonce)
    }

    pub(super) fn sealing_of(&self, uid: &str, nonce: Option<Nonce>) -> Sealing {
        let sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        match sealed.get(uid) {
            Some((of, sealing)) if *of == nonce => *sealing,
            _ => Sealing::Unconfirmed,
        }
    }

    /// Asks for a reconcile of the others on the key that this one's news concern.
    pub fn nudge_others(&self, lock: &DistributedLock) {
        let own = ObjectRef::from_obj(lock);
        let concerned = self.index.concerned(lock, self.spans_namespaces(lock));
        concerned.into_iter().filter(|other| *other != own).for_each(|other| self.nudge(other));
    }
}

/// How far a step came.
pub enum Progress {
    /// There is more to do, from this state.
    Next(Arc<DistributedLock>),
    /// Nothing more until then.
    Done(Action),
    /// Ask this candidate for its health, and decide again.
    Ask(Box<Candidate>),
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
