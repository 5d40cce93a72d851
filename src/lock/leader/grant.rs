//! Acquiring a lock: one attempt at the members, and the meaning of their answers. `publish_grant` publishes a grant.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::leader_context::LeaderContext;
use super::member_access::MemberAccess;
use super::progress::{Error, Progress, Stepped};
use super::publish_grant::{self, Attempt, not_written};
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, HeldQuorum, LockHolder, RedisQuorum};
use crate::lock::model::decide::{WaitReason, requests};
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::hold::described;
use crate::lock::model::status::full_name;
use crate::lock::model::{foreign, orphans, queue};
use crate::lock::replica::access::Access;
use crate::lock::replica::{liveness, location};
use crate::quorum::session::QuorumSession;
use crate::redlock::{Acquire, AcquireRequest, Grant, LockKey, Nonce, Occupant, ValueSigner, is_silence, jittered};
use crate::runtime::context::Context;
use crate::runtime::reconciles::Action;
use crate::time::{Boottime, ClockOffset};

/// The pause while the quorum is not connected, or no candidate answers.
const NOT_YET_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between attempts that no majority answers, unless `spec.retry` sets a longer one.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(1);
/// How long to wait for late votes after a majority.
///
/// The first status write then usually has all of them.
const LATE_VOTES: Duration = Duration::from_millis(2);
/// The pause after the release of a key, before the next attempt.
const AFTER_RELEASE: Duration = Duration::from_millis(1);

/// Adds the finalizer, so that the object cannot vanish while the key is held.
///
/// It also removes requests of an earlier hold. Before that it sets the label by which the policy selects the Lease of an election.
pub(super) async fn prepare(leader: &LeaderContext, lock: &Arc<DistributedLock>) -> Stepped {
    match leader.leases.correct(&leader.store, lock).await {
        Err(error @ Error::Refused(_)) => return Ok(leader.postpone(lock, not_written(lock, &error))),
        labelled => labelled?,
    };
    match leader.store.prepare(lock, &requests(lock)).await {
        Err(error @ (RequestError::Refused(_) | RequestError::Unknown(_))) => {
            Ok(leader.postpone(lock, not_written(lock, &error)))
        }
        written => Ok(Progress::Next(written?)),
    }
}

/// Acquires the lock, and publishes the grant.
pub(super) async fn acquire(
    leader: &LeaderContext,
    lock: &Arc<DistributedLock>,
    access: Option<Access>,
    contender: LockHolder,
) -> Stepped {
    let Some(access) = &access else { return Ok(Progress::Next(lock.clone())) };
    if liveness::has_stopped(&leader.context, lock).await {
        return Ok(leader.postpone(lock, without_heartbeat(lock)));
    }
    match ready(&leader.members, lock, access) {
        Ok(ready) => attempt(leader, lock, access, contender, ready).await,
        Err(message) => Ok(leader.postpone(lock, WaitReason { message, retry_after: Some(NOT_YET_PAUSE) })),
    }
}

/// The session with a quorum, its rejoin delay and signer, and the API server's clock.
type Ready = (Arc<QuorumSession>, Duration, ValueSigner, ClockOffset);

/// Returns the requirements of an attempt. An error is the reason why it cannot be made.
fn ready(members: &MemberAccess, lock: &DistributedLock, access: &Access) -> Result<Ready, HeldMessage> {
    let no_connection = || HeldMessage::NoConnection { quorum: access.quorum.clone() };
    let (session, signer) = location::signed(&members.sessions, &access.quorum).ok_or_else(no_connection)?;
    let rejoin_delay = session.rejoin_delay().ok_or_else(no_connection)?;
    let clock = members.context.api_clock().ok_or(HeldMessage::NoClock)?;
    match exceeds_max_ttl(lock, access, session.max_ttl_in_force()) {
        Some(refused) => Err(refused),
        None => Ok((session, rejoin_delay, signer, clock)),
    }
}

/// Makes one attempt on the free slots of the key, in their order, and handles its outcome.
async fn attempt(
    leader: &LeaderContext,
    lock: &Arc<DistributedLock>,
    access: &Access,
    contender: LockHolder,
    (session, rejoin_delay, signer, clock): Ready,
) -> Stepped {
    let LeaderContext { members, peers, memory, .. } = leader;
    let uid = lock.uid().unwrap_or_default();
    let holders = peers.holders(lock, access);
    let holders: Vec<_> = holders.iter().map(|holder| &**holder).collect();
    let (mut outcome, mut key) = (Acquire::Expired, access.key.clone());
    for slot in queue::free_slots(lock, &holders) {
        key = access.slot_key(slot);
        // A value is used for one attempt only. A late release of an earlier value would delete a later key.
        let nonce = Nonce::random();
        let value = signer.value(&uid, &nonce);
        let started = members.now();
        let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl: access.ttl, token: true };
        let electorate = session.electorate();
        let mut late;
        (outcome, late) = session.redlock().attempt(&electorate, request).await;
        record(leader, &access.quorum.reference(), &outcome, started);
        match outcome {
            Acquire::Granted(grant) => {
                let acquired = members.now();
                // Most members answer within a moment of each other, so one status write has all votes.
                let votes = late.within(LATE_VOTES).await.unwrap_or(grant.votes);
                // The publication can take long, and must not keep connections to former members.
                drop(late);
                drop(electorate);
                let grant = Grant { votes, ..grant };
                let times = (clock.latest(acquired).ceil(), clock.earliest(grant.valid_until).floor());
                let holder = LockHolder {
                    nonce: Some(nonce.to_string()),
                    slot,
                    quorum: Some(access.quorum.clone()),
                    key: Some(key.as_str().to_owned()),
                    rejoin_delay: Some(rejoin_delay.into()),
                    ..contender
                };
                let attempt = Attempt { session, access, key, nonce, value, grant, holder, times };
                return publish_grant::publish(leader, lock, &attempt).await;
            }
            Acquire::HeldByOther { .. } => {}
            Acquire::NoQuorum { .. } | Acquire::Expired | Acquire::CountersApart => break,
        }
    }
    match outcome {
        Acquire::HeldByOther { longest, occupants, .. } => {
            Occupied { session, signer, key, longest, occupants }.resolve(leader, lock, access).await
        }
        outcome => Ok(leader.postpone(lock, unanswered(lock, access, &outcome, memory.unanswered(&uid)))),
    }
}

/// Records the outcome of an attempt, and hands leadership over after a long silence.
fn record(leader: &LeaderContext, quorum: &ObjectRef<RedisQuorum>, outcome: &Acquire, started: Boottime) {
    let LeaderContext { context: Context { metrics, .. }, reachability, members, .. } = leader;
    let now = members.now();
    metrics.acquire_duration.observe(now.since(started).as_secs_f64());
    let name = match outcome {
        Acquire::Granted(_) => "granted",
        Acquire::HeldByOther { .. } => "held_by_other",
        Acquire::NoQuorum { .. } => "no_quorum",
        Acquire::Expired | Acquire::CountersApart => "too_slow",
    };
    metrics.count(&metrics.acquisitions, name);
    match outcome {
        Acquire::NoQuorum { failures, .. } if is_silence(failures) => {
            reachability.unanswered(quorum, &described(failures), now);
        }
        Acquire::Expired | Acquire::CountersApart => {}
        Acquire::Granted(_) | Acquire::HeldByOther { .. } | Acquire::NoQuorum { .. } => reachability.reached(quorum),
    }
}

/// The pause after an attempt that no majority answered.
///
/// It grows with each such attempt in a row, since attempts cost slots. It is at most a second or `retry.delay`, so that members that return are used soon.
fn unanswered(lock: &DistributedLock, access: &Access, outcome: &Acquire, in_a_row: u32) -> WaitReason {
    let message = match outcome {
        Acquire::NoQuorum { failures, .. } => {
            let (HeldQuorum { namespace, name, .. }, failures) = (access.quorum.clone(), described(failures));
            HeldMessage::NoMajority { namespace, name, failures }
        }
        _ => HeldMessage::TooSlow { quorum: access.quorum.clone(), ttl: access.ttl.into() },
    };
    let pause = retry_pause(lock);
    let pause = pause.saturating_mul(1 << in_a_row.min(16)).min(LONGEST_UNANSWERED.max(pause));
    WaitReason { message, retry_after: Some(pause) }
}

/// The reason to wait when the heartbeat of a waiting claim has stopped.
///
/// The next attempt comes one heartbeat later.
fn without_heartbeat(lock: &DistributedLock) -> WaitReason {
    let beat = lock.spec.claim.as_ref().and_then(|claim| claim.heartbeat);
    let message = HeldMessage::HeartbeatStopped { lease: full_name(lock), ttl: lock.spec.ttl };
    WaitReason { message, retry_after: Some(beat.map_or(NOT_YET_PAUSE, |beat| beat.get())) }
}

/// The state of a key for which the members have another value.
struct Occupied {
    session: Arc<QuorumSession>,
    signer: ValueSigner,
    /// The key of the last slot.
    key: LockKey,
    longest: Option<Duration>,
    /// The values on that key.
    occupants: Vec<Occupant>,
}

impl Occupied {
    /// Releases the key if its value belongs to an attempt that no status names. Otherwise the lock waits.
    async fn resolve(self, leader: &LeaderContext, lock: &Arc<DistributedLock>, access: &Access) -> Stepped {
        let LeaderContext { store, peers, .. } = leader;
        let own = orphans::of(lock, &self.signer, &self.occupants);
        if own.is_some() {
            // An earlier leader died between the grant and its status write. That write must become impossible before the key is released.
            publish_grant::withdraw(store, lock).await?;
        }
        let before = peers.predecessors(lock, access);
        if let Some(orphan) = own.or_else(|| orphans::of_finished(&before, &self.signer, &self.occupants)) {
            // A value is used for one attempt on one slot, so no other slot has it.
            self.session.redlock().release(&self.session.electorate(), &self.key, &orphan).await;
            tracing::info!(lock = %full_name(lock), "released a grant that no status names");
            return Ok(Progress::Done(Action::requeue(AFTER_RELEASE)));
        }
        Ok(leader.postpone(lock, self.explain(lock, &before, peers.max_ttl(access))))
    }

    /// Describes the holder of the key: an earlier hold of this lock or of `peers`, or another client.
    fn explain(&self, lock: &DistributedLock, peers: &[Arc<DistributedLock>], max_ttl: Option<Duration>) -> WaitReason {
        let (signer, occupants) = (&self.signer, &self.occupants);
        let of_operator = orphans::is_of_any(peers.iter().map(|peer| &**peer).chain([lock]), signer, occupants);
        let message = if of_operator {
            let left = self.longest.map_or_else(String::new, |left| format!(" in {}", foreign::coarse(left)));
            HeldMessage::SealRunsOut { left }
        } else {
            foreign::message(&self.key, occupants, self.longest, max_ttl)
        };
        WaitReason { message, retry_after: Some(retry_pause(lock)) }
    }
}

/// The pause before the next attempt, with jitter, so that contenders do not fail together again.
fn retry_pause(lock: &DistributedLock) -> Duration {
    let retry = &lock.spec.retry;
    jittered(retry.delay.get(), retry.jitter.get(), rand::random())
}

/// Returns a message if ttl and lockDelay exceed the maxTTL in force.
///
/// Fences wait only for the maxTTL in force. The session can have read a newer one from the API server than the caches have.
fn exceeds_max_ttl(lock: &DistributedLock, access: &Access, in_force: Duration) -> Option<HeldMessage> {
    let longest = access.ttl + lock.spec.lock_delay.unwrap_or_default().get();
    let quorum = access.quorum.clone();
    let exceeds = HeldMessage::ExceedsMaxTtl { longest: longest.into(), in_force: in_force.into(), quorum };
    (longest > in_force).then_some(exceeds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;

    #[test]
    fn nothing_is_granted_for_longer_than_fences_wait() {
        let quorum = HeldQuorum { namespace: "ns".into(), name: "q".into(), uid: "u".into() };
        let access = |ttl| Access {
            quorum: quorum.clone(),
            key: LockKey::new("ns/l".to_owned()),
            ttl: Duration::from_secs(ttl),
            renew_interval: Duration::from_secs(1),
            spans_namespaces: false,
        };
        // The cached spec can allow more than maxTTL in force, because maxTTL was lowered a moment ago.
        let refused = |ttl, spec| exceeds_max_ttl(&lock(spec, json!(null)), &access(ttl), Duration::from_secs(10));
        assert_eq!(refused(10, json!({})), None);
        assert!(refused(11, json!({})).unwrap().to_string().contains("RedisQuorum ns/q"));
        assert_eq!(refused(6, json!({"lockDelay": "4s"})), None);
        assert!(refused(6, json!({"lockDelay": "5s"})).is_some(), "a seal lives for the ttl and lockDelay");
    }
}
