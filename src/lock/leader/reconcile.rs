//! The driver: observe, decide, act, until there is nothing left to do for a lock. Runs on the leader only.

use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::members::Members;
use super::parts::Parts;
use super::progress::{Error, Progress, Stepped};
use super::{grant, job_sync, others, release, seal, status, view};
use crate::api::{DistributedLock, HeldQuorum};
use crate::lock::model::decide::{Rest, Step, View, decide};
use crate::lock::model::key::without_slot;
use crate::lock::model::queue::Place;
use crate::lock::model::refusal::Refusal;
use crate::lock::model::said::Said;
use crate::lock::replica::access::{self, Access};
use crate::redlock::LockKey;
use crate::runtime::fair_queue::Class;

/// How many steps one reconciliation of a lock may take.
/// A lock that needs more is reconciled again later, so that a mistake cannot spin.
const MAX_STEPS: usize = 16;
/// Timers count no further than about two years; a longer wait looks again in between.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Until the term ends, or no replica was found that reaches the quorum.
const AWAITING_SUCCESSOR: Duration = Duration::from_millis(100);

/// Before a lock takes the turn of another key.
const OTHER_TURN: Duration = Duration::from_millis(10);

/// Brings one lock to where nothing is left to do.
pub(super) async fn reconcile(parts: &Parts, lock: &ObjectRef<DistributedLock>) -> Result<Action, Error> {
    let Some(newest) = parts.store.get(lock) else { return Ok(Action::await_change()) };
    let by_default = newest.spec.quorum_ref.is_none().then(|| parts.granting_by_default.read());
    let _granting = OptionFuture::from(by_default).await;
    let name = turn_of(&parts.members, &newest, &access(parts, &newest));
    let turn = parts.turns.get(&name);
    let _turn = turn.lock().await;
    let _slot = parts.reconciles.enter(lock.namespace.as_deref().unwrap_or_default(), Class::Change).await;
    // In a box, which only a lock with a slot makes: thousands can wait for a turn or a slot.
    let done = Box::pin(in_turn(parts, lock, &name)).await;
    // Before the next one on the key is looked at: the watch shows a grant only later, and the members do not know that a key and its
    // slots exclude each other.
    parts.peers.refresh(lock);
    done
}

/// Takes one step after the other until there is nothing left to do.
async fn in_turn(parts: &Parts, reference: &ObjectRef<DistributedLock>, turn: &str) -> Result<Action, Error> {
    let Some(mut lock) = parts.store.get(reference) else { return Ok(Action::await_change()) };
    if others::is_of_another(&parts.context, &lock) {
        return leave(parts, &lock).await;
    }
    for _ in 0..MAX_STEPS {
        match take_step(parts, &lock, turn).await? {
            Progress::Next(newer) => lock = newer,
            Progress::Done(action) => return Ok(action),
        }
    }
    tracing::warn!(lock = %reference, "too many steps at once, looking again later");
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// Observes, decides and acts once.
async fn take_step(parts: &Parts, lock: &Arc<DistributedLock>, turn: &str) -> Stepped {
    let access = access(parts, lock);
    if turn_of(&parts.members, lock, &access) != turn {
        // It has got a key meanwhile, or another one.
        return Ok(Progress::Done(Action::requeue(OTHER_TURN)));
    }
    let step = decide(&observe(parts, lock, &access));
    act(parts, lock, access, step).await
}

/// Which quorum and key a lock may use, if there is room for it. What is held goes on.
fn access(parts: &Parts, lock: &DistributedLock) -> Result<Access, Refusal> {
    let limits = &parts.context.replica.settings.limits;
    let is_held = lock.status.as_ref().is_some_and(|status| status.holder.is_some());
    if !is_held && parts.peers.index.has_older(lock, limits.locks) {
        let namespace = lock.namespace().unwrap_or_default();
        return Err(Refusal::TooManyLocks { namespace, limit: limits.locks });
    }
    access::of(&parts.context, lock)
}

/// Which turn a lock takes: that of its quorum and key, whatever its number of slots. One that has no key takes its own.
fn turn_of(members: &Members, lock: &DistributedLock, access: &Result<Access, Refusal>) -> String {
    let at = |quorum: &HeldQuorum, key: &LockKey| format!("{quorum} {}", without_slot(key));
    match (members.record(lock), access) {
        (Some(record), _) => at(&record.quorum, &record.key),
        (None, Ok(access)) => at(&access.quorum, &access.key),
        (None, Err(_refused)) => lock.uid().unwrap_or_default(),
    }
}

/// The one next step for a lock.
pub(super) fn next_step(parts: &Parts, lock: &DistributedLock) -> Step {
    decide(&observe(parts, lock, &access(parts, lock)))
}

/// What is known of a lock.
fn observe<'a>(parts: &Parts, lock: &'a DistributedLock, access: &Result<Access, Refusal>) -> View<'a> {
    let Parts { context, reachability, members, memory, peers, .. } = parts;
    let now = members.now();
    let held = view::held(context, members, memory, reachability.began(), lock);
    let (contender, place) = match &held {
        Some(_) => (Err(Said::NoCandidate { why: "already held".to_owned() }.into()), Ok(Place::First)),
        None => view::prospect(context, peers, memory, now, lock, access),
    };
    let quorum = held.as_ref().and_then(|held| Some(held.hold.as_ref()?.terms.quorum.reference()));
    View {
        lock,
        held,
        refusal: access.as_ref().err().or(place.as_ref().err()).cloned(),
        contender,
        lease_misfit: parts.leases.misfit(lock),
        place: place.unwrap_or(Place::First),
        pause: memory.pause(&lock.uid().unwrap_or_default(), now),
        may_hand_over: quorum.is_none_or(|quorum| reachability.may_hand_over(&quorum, now)),
        now,
        api_now: context.api_now(),
    }
}

/// Carries out the one next step.
async fn act(parts: &Parts, lock: &Arc<DistributedLock>, access: Result<Access, Refusal>, step: Step) -> Stepped {
    let Parts { store, members, peers, memory, .. } = parts;
    match step {
        Step::Prepare => grant::prepare(parts, lock).await,
        Step::Acquire(contender) => grant::acquire(parts, lock, access, contender).await,
        Step::Advance(phase) => release::advance(store, members, peers, lock, &phase).await,
        Step::Seal => Ok(seal::held(members, memory, lock).await),
        Step::HandOver(quorum, why) => {
            parts.reachability.hand_over(&quorum, &why, members.now());
            Ok(Progress::Done(Action::requeue(AWAITING_SUCCESSOR)))
        }
        Step::ClearRequests(names) => Ok(Progress::Next(status::clear_requests(store, lock, &names).await?)),
        Step::Keep(rest) => keep(parts, lock, &rest).await,
        Step::Rest(rest) => leave_free(parts, lock, &rest).await,
        Step::RemoveFinalizer => remove_finalizer(parts, lock).await,
        Step::Delete => Ok(Progress::Done(store.delete(lock).await.map(|()| Action::await_change())?)),
    }
}

/// Publishes the status of a lock that stays held.
///
/// Its Lease, its leader label and its Job follow that status.
async fn keep(parts: &Parts, lock: &Arc<DistributedLock>, rest: &Rest) -> Stepped {
    let lock = status::publish_or_ask(&parts.store, &parts.publications, lock, rest).await?;
    let read = ensure_lease(parts, &lock).await?;
    parts.labels.ensure(&lock).await?;
    let started = parts.jobs.ensure(&lock).await;
    let retry = job_sync::told(&parts.store, &lock, started)?;
    Ok(wake(retry.or(rest.wake.into_iter().chain(read).min())))
}

/// Publishes the status of a lock that is not held, and takes off what a hold has left.
async fn leave_free(parts: &Parts, lock: &Arc<DistributedLock>, rest: &Rest) -> Stepped {
    let lock = status::publish(&parts.store, lock, &rest.status).await?;
    let read = ensure_lease(parts, &lock).await?;
    parts.labels.ensure_none(&lock).await?;
    parts.jobs.ensure_none(&lock).await?;
    Ok(wake(rest.wake.into_iter().chain(read).min()))
}

/// Brings the Lease of an election to what it ought to say. Gives the time after which it is to be read again.
async fn ensure_lease(parts: &Parts, lock: &DistributedLock) -> Result<Option<Duration>, Error> {
    let settings = &parts.context.replica.settings;
    Ok(parts.leases.ensure(&parts.store, settings, lock, parts.members.now()).await?)
}

/// The object goes: no status names a holder any more.
async fn remove_finalizer(parts: &Parts, lock: &DistributedLock) -> Stepped {
    let access = access::of(&parts.context, lock).ok();
    release::remove_finalizer(&parts.store, &parts.members, lock, access.as_ref()).await?;
    parts.forget(lock);
    Ok(Progress::Done(Action::await_change()))
}

/// Leaves a lock alone whose quorum another operator serves.
async fn leave(parts: &Parts, lock: &DistributedLock) -> Result<Action, Error> {
    parts.members.holds.forget(&lock.uid().unwrap_or_default());
    if others::is_let_go(lock) {
        remove_finalizer(parts, lock).await?;
    }
    Ok(Action::await_change())
}

fn wake(after: Option<Duration>) -> Progress {
    Progress::Done(after.map_or_else(Action::await_change, |after| Action::requeue(after.min(LONGEST_WAIT))))
}
