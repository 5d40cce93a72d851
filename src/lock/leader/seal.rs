//! Sealing the keys of holds that run out: no replica can extend a sealed key, and the members say when it has ended.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::members::{Members, Reach};
use super::memory::Memory;
use super::progress::Progress;
use crate::api::conditions::HeldReason;
use crate::api::{DistributedLock, HeldQuorum};
use crate::lock::model::decide::{Pause, Sealing, seal_retry};
use crate::lock::model::orphans::{self, holder_nonce};
use crate::lock::model::said::Said;
use crate::redlock::{AcquireRequest, LockKey, Nonce};

/// Between two questions about a hold that was let go.
const LET_GO_RETRY: Duration = Duration::from_secs(1);

/// Seals the keys of a hold that runs out.
pub(super) async fn held(members: &Members, memory: &Memory, lock: &Arc<DistributedLock>) -> Progress {
    let uid = lock.uid().unwrap_or_default();
    let nonce = holder_nonce(lock);
    let sealing = match (nonce, members.reach_held(lock)) {
        // The status says that the lock is held, and not by which attempt.
        (None, _) => match members.record(lock) {
            Some(record) => every(members, &uid, &record.quorum, &record.key).await,
            None => Sealing::Unconfirmed,
        },
        (Some(_), None) => Sealing::Unconfirmed,
        (Some(_), Some(reach)) => {
            let sealing = reach.seal(lock.spec.lock_delay.map_or(Duration::ZERO, |delay| delay.get())).await;
            if sealing == Sealing::Gone {
                plant_delay(members, lock, &reach).await;
            }
            sealing
        }
    };
    if sealing == Sealing::Unconfirmed {
        return Progress::Done(Action::requeue(seal_retry()));
    }
    memory.mark_sealed(&uid, nonce, sealing);
    Progress::Next(lock.clone())
}

/// Sets a seal again for what is left of `lockDelay`, after the key of a lost hold has run out.
///
/// Only a seal makes the delay bind clients outside the operator. Where no majority answers, or another client has the
/// key, there is nothing to set.
async fn plant_delay(members: &Members, lock: &DistributedLock, reach: &Reach) {
    let status = lock.status.as_ref();
    let ending = status.and_then(|status| status.ending.as_ref());
    let lost = ending.filter(|ending| ending.reason == HeldReason::Expired.as_str() && lock.spec.lock_delay.is_some());
    let quorum_now = reach.session.quorum_time(members.now());
    let (Some(until), Some(now)) = (lost.and_then(|ending| ending.until), quorum_now) else { return };
    let left = u64::try_from(until.as_millis().saturating_sub(now.0)).unwrap_or(0);
    let ttl = Duration::from_millis(left).min(reach.session.max_ttl_in_force());
    if !ttl.is_zero() {
        let (key, value) = (reach.key.clone(), reach.sealed());
        let request = AcquireRequest { key, value, ttl, token: true };
        let _best_effort = reach.session.redlock().acquire(&reach.session.electorate(), request).await;
    }
}

/// Asks about a hold that was let go.
pub(super) async fn let_go(members: &Members, memory: &Memory, lock: &Arc<DistributedLock>) -> Progress {
    let uid = lock.uid().unwrap_or_default();
    let let_go = lock.status.as_ref().and_then(|status| status.let_go.as_ref());
    let nonce: Option<Nonce> = let_go.and_then(|let_go| let_go.nonce.parse().ok());
    let sealing = match let_go {
        Some(let_go) => attempt(members, &uid, &let_go.quorum, LockKey::new(let_go.key.clone()), nonce).await,
        None => Sealing::Unconfirmed,
    };
    match sealing {
        Sealing::RunsOut(_) | Sealing::Gone => memory.mark_sealed(&uid, nonce, sealing),
        Sealing::Unconfirmed => {
            let until = members.now() + LET_GO_RETRY;
            memory.pause(&uid, Pause::new(until, &Said::NoWord));
        }
    }
    Progress::Next(lock.clone())
}

/// Seals this attempt, or every one if it is not known which one it was.
pub(super) async fn attempt(
    members: &Members,
    uid: &str,
    quorum: &HeldQuorum,
    key: LockKey,
    nonce: Option<Nonce>,
) -> Sealing {
    let Some(nonce) = nonce else { return every(members, uid, quorum, &key).await };
    match members.reach(uid, quorum, key, nonce) {
        Some(reach) => reach.seal(Duration::ZERO).await,
        None => Sealing::Unconfirmed,
    }
}

/// Seals every attempt of the lock with this UID that has the key, and returns what the members said.
///
/// It is for a lock whose status does not say which attempt it means.
pub(super) async fn every(members: &Members, uid: &str, quorum: &HeldQuorum, key: &LockKey) -> Sealing {
    let Some((session, signer)) = members.signed(quorum) else { return Sealing::Unconfirmed };
    let electorate = session.electorate();
    let seen = session.redlock().inspect(&electorate, key).await;
    let mut sealing =
        if orphans::is_told_by_a_majority(&electorate, &seen) { Sealing::Gone } else { Sealing::Unconfirmed };
    for nonce in orphans::attempts(uid, &signer, &seen) {
        let value = signer.value(uid, &nonce);
        let reach = Reach { session: session.clone(), key: key.clone(), signer: signer.clone(), value };
        sealing = later(sealing, reach.seal(Duration::ZERO).await);
    }
    sealing
}

/// What is known of several keys together.
fn later(one: Sealing, other: Sealing) -> Sealing {
    match (one, other) {
        (Sealing::Unconfirmed, _) | (_, Sealing::Unconfirmed) => Sealing::Unconfirmed,
        (Sealing::RunsOut(one), Sealing::RunsOut(other)) => Sealing::RunsOut(one.max(other)),
        (Sealing::Gone, runs_out) | (runs_out, Sealing::Gone) => runs_out,
    }
}
