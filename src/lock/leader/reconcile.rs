//! The driver: observe, decide, act, until there is nothing left to do for a lock. Runs on the leader only.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::grant::{self, Answer, Bid};
use super::members::Members;
use super::memory::Postponed;
use super::others;
use super::parts::Parts;
use super::progress::{Error, Progress, Stepped};
use super::publication::{self, Published, SETTLE_PAUSE};
use super::{jobs, release, seal, status, view};
use crate::api::{DistributedLock, HeldQuorum};
use crate::lock::model::decide::{Contender, Step, View, decide};
use crate::lock::model::orphans;
use crate::lock::model::queue::Place;
use crate::lock::model::refusal::Refusal;
use crate::lock::replica::access::{self, Access};
use crate::lock::replica::liveness;
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
    let _granting = match newest.spec.quorum_ref {
        None => Some(parts.granting_by_default.read().await),
        Some(_) => None,
    };
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

/// Observes, decides and acts until a step has come to an end.
async fn in_turn(parts: &Parts, reference: &ObjectRef<DistributedLock>, turn: &str) -> Result<Action, Error> {
    let Some(mut lock) = parts.store.get(reference) else { return Ok(Action::await_change()) };
    if others::is_of_another(&parts.context, &lock) {
        return leave(parts, &lock).await;
    }
    for _ in 0..MAX_STEPS {
        let access = access(parts, &lock);
        if turn_of(&parts.members, &lock, &access) != turn {
            // It has got a key meanwhile, or another one.
            return Ok(Action::requeue(OTHER_TURN));
        }
        let step = decide(&observe(parts, &lock, &access));
        match act(parts, &lock, access, step).await? {
            Progress::Next(newer) => lock = newer,
            Progress::News(newer) => {
                parts.peers.nudge_others(&newer);
                lock = newer;
            }
            Progress::Done(action) => return Ok(action),
            Progress::Later(postponed) => postpone(parts, &lock, postponed),
        }
    }
    tracing::warn!(lock = %reference, "too many steps at once, looking again later");
    Ok(Action::requeue(Duration::from_secs(1)))
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
    let at = |quorum: &HeldQuorum, key: &str| format!("{quorum} {}", key.split('#').next().unwrap_or_default());
    match (members.record(lock), access) {
        (Some(record), _) => at(&record.quorum, record.key.as_str()),
        (None, Ok(access)) => at(&access.quorum, access.key.as_str()),
        (None, Err(_refused)) => lock.uid().unwrap_or_default(),
    }
}

/// The one next step for a lock.
pub(super) fn next_step(parts: &Parts, lock: &DistributedLock) -> Step {
    decide(&observe(parts, lock, &access(parts, lock)))
}

/// What is known of a lock.
fn observe<'a>(parts: &Parts, lock: &'a DistributedLock, access: &Result<Access, Refusal>) -> View<'a> {
    let Parts { context, reachability, members, memory, peers, candidates, .. } = parts;
    let now = members.now();
    let held = view::held(context, members, memory, reachability.began(), lock);
    let (contender, place) = match &held {
        Some(_) => (Err("already held".to_owned().into()), Ok(Place::First)),
        None => view::prospect(peers, candidates, memory, now, lock, access),
    };
    let quorum = held.as_ref().and_then(|held| Some(held.hold.as_ref()?.terms.quorum.reference()));
    View {
        lock,
        held,
        refusal: access.as_ref().err().or(place.as_ref().err()).cloned(),
        contender,
        lease_misfit: parts.leases.misfit(lock),
        place: place.unwrap_or(Place::First),
        pause: memory.last_pause(&lock.uid().unwrap_or_default()),
        may_hand_over: quorum.is_none_or(|quorum| reachability.may_hand_over(&quorum, now)),
        now,
        api_now: context.api_now(),
    }
}

/// Carries out the one next step.
async fn act(parts: &Parts, lock: &Arc<DistributedLock>, access: Result<Access, Refusal>, step: Step) -> Stepped {
    let Parts { store, members, memory, labels, .. } = parts;
    match step {
        Step::Prepare => publication::add_finalizer(store, lock).await,
        Step::RemoveFinalizer => {
            remove_finalizer(parts, lock).await?;
            Ok(Progress::Done(Action::await_change()))
        }
        Step::Delete => {
            store.delete(lock).await?;
            Ok(Progress::Done(Action::await_change()))
        }
        Step::Acquire(contender) => match access {
            Ok(access) => acquire(parts, lock, &access, contender).await,
            Err(_refused) => Ok(Progress::Next(lock.clone())),
        },
        Step::ClearRequests(names) => Ok(Progress::Next(status::clear_requests(store, lock, &names).await?)),
        Step::Advance(phase) => release::advance(store, members, lock, &phase).await,
        Step::HandOver(quorum, why) => {
            parts.reachability.hand_over(&quorum, &why, members.now());
            Ok(Progress::Done(Action::requeue(AWAITING_SUCCESSOR)))
        }
        Step::Seal => Ok(seal::held(members, memory, lock).await),
        Step::Keep(rest) => {
            let lock = status::publish_or_ask(store, &parts.publications, lock, &rest).await?;
            let read = ensure_lease(parts, &lock).await?;
            labels.ensure(&lock).await?;
            let started = parts.jobs.ensure(&lock).await;
            let rest = rest.wake.into_iter().chain(read).min();
            Ok(Progress::Done(wake(jobs::told(store, &lock, started)?.or(rest))))
        }
        Step::Rest(rest) => {
            let lock = status::publish(store, lock, &rest.status).await?;
            let read = ensure_lease(parts, &lock).await?;
            labels.ensure_none(&lock).await?;
            parts.jobs.ensure_none(&lock).await?;
            Ok(Progress::Done(wake(rest.wake.into_iter().chain(read).min())))
        }
    }
}

/// Sees to the Lease of an election. Gives the time after which it is to be read again.
async fn ensure_lease(parts: &Parts, lock: &DistributedLock) -> Result<Option<Duration>, Error> {
    let settings = &parts.context.replica.settings;
    Ok(parts.leases.ensure(&parts.store, settings, lock, parts.members.now()).await?)
}

/// Acquires the lock, and publishes the grant.
async fn acquire(parts: &Parts, lock: &Arc<DistributedLock>, access: &Access, contender: Contender) -> Stepped {
    let Parts { context, reachability, store, members, peers, memory, .. } = parts;
    if liveness::has_stopped(context, lock).await {
        return Ok(Progress::Later(grant::without_heartbeat(lock)));
    }
    let (bid, holders) = (Bid { lock, access, contender }, peers.holders(lock, access));
    let postponed = match grant::acquire(members, reachability, &context.metrics, bid, &holders).await {
        Answer::Granted(attempt) => match publication::publish(store, members, lock, &attempt).await? {
            Published::Named(held) => {
                memory.resume(&held.uid().unwrap_or_default());
                publication::announce(store, &held, &attempt).await?;
                return Ok(Progress::News(held));
            }
            Published::Impossible => return Ok(Progress::Done(Action::requeue(SETTLE_PAUSE))),
            Published::Refused(error) | Published::Open(error) => publication::not_written(lock, &error),
        },
        Answer::Occupied(occupied) => {
            let own = orphans::of(lock, &occupied.signer, &occupied.seen);
            if own.is_some() {
                // A predecessor died between grant and status write. Its write must become impossible before the key goes.
                publication::withdraw(store, lock).await?;
            }
            let eligible = |other: &DistributedLock| view::is_eligible(memory, members.now(), other);
            let before = peers.predecessors(lock, access, &eligible);
            if let Some(orphan) = own.or_else(|| orphans::of_finished(&before, &occupied.signer, &occupied.seen)) {
                return Ok(Progress::Done(occupied.release(lock, access, &orphan).await));
            }
            occupied.explain(lock, access, &before, peers.max_ttl(access))
        }
        Answer::Unanswered(said) => grant::unanswered(lock, said, memory.unanswered(&lock.uid().unwrap_or_default())),
        Answer::Later(postponed) => postponed,
    };
    Ok(Progress::Later(postponed))
}

/// The next decision says why the lock is not acquired. The others on the key may have come to be ahead of it.
fn postpone(parts: &Parts, lock: &DistributedLock, postponed: Postponed) {
    if parts.memory.postpone(&lock.uid().unwrap_or_default(), postponed, parts.members.now()) {
        // No status need tell them: it may be just what cannot be written.
        parts.peers.nudge_others(lock);
    }
}

/// The object goes: no status names a holder any more.
async fn remove_finalizer(parts: &Parts, lock: &DistributedLock) -> Result<(), Error> {
    let access = access::of(&parts.context, lock).ok();
    release::remove_finalizer(&parts.store, &parts.members, lock, access.as_ref()).await?;
    parts.forget(lock);
    Ok(())
}

/// Leaves a lock alone whose quorum another operator serves.
async fn leave(parts: &Parts, lock: &DistributedLock) -> Result<Action, Error> {
    parts.members.holds.forget(&lock.uid().unwrap_or_default());
    if others::is_let_go(lock) {
        remove_finalizer(parts, lock).await?;
    }
    Ok(Action::await_change())
}

fn wake(after: Option<Duration>) -> Action {
    after.map_or_else(Action::await_change, |after| Action::requeue(after.min(LONGEST_WAIT)))
}
