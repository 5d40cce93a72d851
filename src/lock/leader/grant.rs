//! Acquiring a lock: one attempt at the members, and what their answer means. `publish_grant` publishes what they grant.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::members::Members;
use super::parts::Parts;
use super::progress::{Progress, Stepped};
use super::publish_grant::{self, Attempt, not_written};
use super::reachability::Reachability;
use super::view;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::decide::{Contender, WaitReason};
use crate::lock::model::refusal::Refusal;
use crate::lock::model::said::Said;
use crate::lock::model::status::full_name;
use crate::lock::model::{foreign, orphans, queue};
use crate::lock::replica::access::Access;
use crate::lock::replica::liveness;
use crate::quorum::session::QuorumSession;
use crate::redlock::{
    Acquire, AcquireRequest, Grant, LockValue, MemberFailure, MemberName, Nonce, Occupant, ValueSigner, is_silence,
    jittered,
};
use crate::runtime::metrics::Metrics;
use crate::time::{Boottime, ClockOffset};

/// The pause while the members cannot be asked, or no candidate answers.
const NOT_YET_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between attempts that no majority answers, unless the lock itself asks for more.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(1);
/// How long to wait for late votes after a majority. The first status write then usually has all of them.
const LATE_VOTES: Duration = Duration::from_millis(2);
/// A pause that has run out on our clock must have run out on the timer's, too.
const TIMER_SLACK: Duration = Duration::from_millis(1);

/// Adds the finalizer, so that the object cannot vanish while the key is held.
pub(super) async fn prepare(parts: &Parts, lock: &Arc<DistributedLock>) -> Stepped {
    match parts.store.set_finalizer(lock, true).await {
        Err(error @ (RequestError::Refused(_) | RequestError::Unknown(_))) => {
            Ok(parts.postpone(lock, not_written(lock, &error)))
        }
        written => Ok(Progress::Next(written?)),
    }
}

/// Acquires the lock, and publishes the grant.
pub(super) async fn acquire(
    parts: &Parts,
    lock: &Arc<DistributedLock>,
    access: Result<Access, Refusal>,
    contender: Contender,
) -> Stepped {
    let Ok(access) = &access else { return Ok(Progress::Next(lock.clone())) };
    if liveness::has_stopped(&parts.context, lock).await {
        return Ok(parts.postpone(lock, without_heartbeat(lock)));
    }
    match attempt(parts, lock, access, contender).await {
        GrantOutcome::Granted(attempt) => publish_grant::publish(parts, lock, &attempt).await,
        GrantOutcome::Occupied(occupied) => occupied.resolve(parts, lock, access).await,
        GrantOutcome::Wait(reason) => Ok(parts.postpone(lock, reason)),
    }
}

/// What one attempt at the members came to.
enum GrantOutcome<'a> {
    /// A majority granted the lock.
    Granted(Box<Attempt<'a>>),
    /// The members have other values on the key.
    Occupied(Occupied),
    /// The members could not be asked, or no majority answered in time.
    Wait(WaitReason),
}

/// The session with a quorum, its rejoin delay and signer, and the API server's clock.
type Ready = (Arc<QuorumSession>, Duration, ValueSigner, ClockOffset);

/// Whether the members can be asked. An error says why not.
fn ready(members: &Members, lock: &DistributedLock, access: &Access) -> Result<Ready, Said> {
    let signed = members.signed(&access.quorum);
    let able = signed.and_then(|(session, signer)| Some((session.rejoin_delay()?, session, signer)));
    let (rejoin_delay, session, signer) = able.ok_or_else(|| Said::NoConnection { quorum: access.quorum.clone() })?;
    let clock = members.api_clock().ok_or(Said::NoClock)?;
    match beyond_the_fence(lock, access, session.max_ttl_in_force()) {
        Some(refused) => Err(refused),
        None => Ok((session, rejoin_delay, signer, clock)),
    }
}

/// One attempt at the members, on each slot of the key that is free.
async fn attempt<'a>(
    parts: &Parts,
    lock: &DistributedLock,
    access: &'a Access,
    contender: Contender,
) -> GrantOutcome<'a> {
    let Parts { context, members, peers, memory, .. } = parts;
    let (session, rejoin_delay, signer, clock) = match ready(members, lock, access) {
        Ok(ready) => ready,
        Err(message) => return GrantOutcome::Wait(WaitReason { message, retry_after: Some(NOT_YET_PAUSE) }),
    };
    let uid = lock.uid().unwrap_or_default();
    let holders = peers.holders(lock, access);
    let holders: Vec<_> = holders.iter().map(|holder| &**holder).collect();
    let mut outcome = Acquire::Expired;
    for slot in queue::free_slots(lock, &holders) {
        let key = access.slot_key(slot);
        // A value is used for one attempt only: a late release of an earlier one would delete a later one's key.
        let nonce = Nonce::random();
        let value = signer.value(&uid, &nonce);
        let started = members.now();
        let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl: access.ttl, token: true };
        let electorate = session.electorate();
        let mut late;
        (outcome, late) = session.redlock().attempt(&electorate, request).await;
        measure(&context.metrics, &outcome, members.now().since(started));
        see_to_reach(&parts.reachability, &access.quorum.reference(), &outcome, members.now());
        match outcome {
            Acquire::Granted(grant) => {
                let acquired = members.now();
                // Most members answer within a moment of each other, and then one status write says it all.
                let votes = late.within(LATE_VOTES).await.unwrap_or(grant.votes);
                let grant = Grant { votes, ..grant };
                let times = (clock.latest(acquired).ceil(), clock.earliest(grant.valid_until).floor());
                let attempt =
                    Attempt { session, access, contender, key, slot, nonce, value, grant, rejoin_delay, times };
                return GrantOutcome::Granted(Box::new(attempt));
            }
            Acquire::HeldByOther { .. } => {}
            Acquire::NoQuorum { .. } | Acquire::Expired | Acquire::CountersApart => break,
        }
    }
    match outcome {
        Acquire::HeldByOther { longest, occupants, .. } => {
            GrantOutcome::Occupied(Occupied { session, signer, longest, seen: occupants })
        }
        outcome => GrantOutcome::Wait(unanswered(lock, access, &outcome, memory.unanswered(&uid))),
    }
}

/// A quorum that this leader no longer reaches may be reached by another replica.
fn see_to_reach(reachability: &Reachability, quorum: &ObjectRef<RedisQuorum>, outcome: &Acquire, now: Boottime) {
    match outcome {
        Acquire::NoQuorum { failures, .. } if is_silence(failures) => {
            if reachability.is_silenced(quorum, now) {
                reachability.hand_over(quorum, &describe(failures), now);
            }
        }
        Acquire::Expired | Acquire::CountersApart => {}
        Acquire::Granted(_) | Acquire::HeldByOther { .. } | Acquire::NoQuorum { .. } => reachability.reached(quorum),
    }
}

fn measure(metrics: &Metrics, outcome: &Acquire, took: Duration) {
    metrics.acquire_duration.observe(took.as_secs_f64());
    let outcome = match outcome {
        Acquire::Granted(_) => "granted",
        Acquire::HeldByOther { .. } => "held_by_other",
        Acquire::NoQuorum { .. } => "no_quorum",
        Acquire::Expired | Acquire::CountersApart => "too_slow",
    };
    metrics.count(&metrics.acquisitions, outcome);
}

/// The pause after an attempt that no majority answered.
///
/// It grows with each of them in a row, since attempts cost slots. Members that come back are not kept waiting for longer than a second.
fn unanswered(lock: &DistributedLock, access: &Access, outcome: &Acquire, in_a_row: u32) -> WaitReason {
    let message = match outcome {
        Acquire::NoQuorum { failures, .. } => {
            let (HeldQuorum { namespace, name, .. }, failures) = (access.quorum.clone(), describe(failures));
            Said::NoMajority { namespace, name, failures }
        }
        _ => Said::TooSlow { quorum: access.quorum.clone(), ttl: access.ttl.into() },
    };
    let pause = retry_pause(lock);
    let pause = pause.saturating_mul(1 << in_a_row.min(16)).min(LONGEST_UNANSWERED.max(pause));
    WaitReason { message, retry_after: Some(pause) }
}

/// The program of this claim seems to have ended while the claim waited. The next attempt comes one heartbeat later.
fn without_heartbeat(lock: &DistributedLock) -> WaitReason {
    let beat = lock.spec.claim.as_ref().and_then(|claim| claim.heartbeat);
    let message = Said::HeartbeatStopped { lease: full_name(lock), ttl: lock.spec.ttl };
    WaitReason { message, retry_after: Some(beat.map_or(NOT_YET_PAUSE, |beat| beat.get())) }
}

/// The answer of members that have another value on the key.
struct Occupied {
    session: Arc<QuorumSession>,
    signer: ValueSigner,
    longest: Option<Duration>,
    seen: Vec<Occupant>,
}

impl Occupied {
    /// Releases the key if its value is of an attempt that no status names. Otherwise the lock waits.
    async fn resolve(self, parts: &Parts, lock: &Arc<DistributedLock>, access: &Access) -> Stepped {
        let Parts { store, members, peers, memory, .. } = parts;
        let own = orphans::of(lock, &self.signer, &self.seen);
        if own.is_some() {
            // A predecessor died between grant and status write. Its write must become impossible before the key goes.
            publish_grant::withdraw(store, lock).await?;
        }
        let eligible = |other: &DistributedLock| view::is_eligible(memory, members.now(), other);
        let before = peers.predecessors(lock, access, &eligible);
        if let Some(orphan) = own.or_else(|| orphans::of_finished(&before, &self.signer, &self.seen)) {
            return Ok(Progress::Done(self.release(lock, access, &orphan).await));
        }
        Ok(parts.postpone(lock, self.explain(lock, access, &before, peers.max_ttl(access))))
    }

    /// Deletes the value of an attempt that no status names, from wherever it may be.
    async fn release(&self, lock: &DistributedLock, access: &Access, orphan: &LockValue) -> Action {
        for slot in queue::free_slots(lock, &[]) {
            self.session.redlock().release(&self.session.electorate(), &access.slot_key(slot), orphan).await;
        }
        tracing::info!(lock = %full_name(lock), "released a grant that no status names");
        Action::requeue(TIMER_SLACK)
    }

    /// Who has the key: an earlier hold of this lock or of `peers`, or another client.
    fn explain(
        &self,
        lock: &DistributedLock,
        access: &Access,
        peers: &[Arc<DistributedLock>],
        max_ttl: Option<Duration>,
    ) -> WaitReason {
        let (signer, seen) = (&self.signer, &self.seen);
        let of_operator = orphans::is_of_any(peers.iter().map(|peer| &**peer).chain([lock]), signer, seen);
        let left =
            |before| self.longest.map_or_else(String::new, |left| format!(" {before} {}", foreign::coarse(left)));
        let message = if of_operator {
            Said::SealRunsOut { left: left("in") }
        } else {
            let seen = foreign::describe(seen, max_ttl);
            Said::Foreign { key: access.key.as_str().to_owned(), left: left("for"), seen }
        };
        WaitReason { message, retry_after: Some(retry_pause(lock)) }
    }
}

/// Before the next attempt, so that contenders who failed together do not meet again.
fn retry_pause(lock: &DistributedLock) -> Duration {
    let retry = &lock.spec.retry;
    jittered(retry.delay.get(), retry.jitter.get(), rand::random())
}

/// Why a key must not be set with these times. The caches may be older than what the session has learned from the API server's
/// own answers, and fences wait only for what is in force.
fn beyond_the_fence(lock: &DistributedLock, access: &Access, in_force: Duration) -> Option<Said> {
    let longest = access.ttl + lock.spec.lock_delay.map_or(Duration::ZERO, |delay| delay.get());
    let (quorum, in_force) = (access.quorum.clone(), in_force);
    let said = || Said::BeyondTheFence { longest: longest.into(), in_force: in_force.into(), quorum };
    (longest > in_force).then(said)
}

fn describe(failures: &[(MemberName, MemberFailure)]) -> String {
    let failures: Vec<_> = failures.iter().map(|(member, failure)| format!("{member}: {failure}")).collect();
    failures.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redlock::LockKey;

    #[test]
    fn nothing_is_granted_for_longer_than_fences_wait() {
        let lock = |spec: serde_json::Value| -> DistributedLock {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "l"}, "spec": spec}))
            .unwrap()
        };
        let quorum = HeldQuorum { namespace: "ns".into(), name: "q".into(), uid: "u".into() };
        let access = |ttl| Access {
            quorum: quorum.clone(),
            key: LockKey::new("ns/l".to_owned()),
            ttl: Duration::from_secs(ttl),
            renew_interval: Duration::from_secs(1),
            spans_namespaces: false,
        };
        // The spec is as the caches have it, and may allow what is no longer in force: maxTTL was lowered a moment ago.
        let refused = |ttl, spec| beyond_the_fence(&lock(spec), &access(ttl), Duration::from_secs(10));
        assert_eq!(refused(10, json!({})), None);
        assert!(refused(11, json!({})).unwrap().to_string().contains("RedisQuorum ns/q"));
        assert_eq!(refused(6, json!({"lockDelay": "4s"})), None);
        assert!(refused(6, json!({"lockDelay": "5s"})).is_some(), "a seal lives for that, too");
    }
}
