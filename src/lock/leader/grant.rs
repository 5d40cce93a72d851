//! Acquiring a lock: one attempt at the members. What they grant is then published.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::members::Members;
use super::memory::{NOT_YET_PAUSE, Postponed};
use super::reachability::Reachability;
use crate::api::{DistributedLock, HeldQuorum, LockHolder, MilliTime, RedisQuorum};
use crate::lock::model::decide::Contender;
use crate::lock::model::hold::{Hold, Terms};
use crate::lock::model::said::Said;
use crate::lock::model::status::{Granted, full_name};
use crate::lock::model::{foreign, orphans, queue};
use crate::lock::replica::access::Access;
use crate::quorum::session::QuorumSession;
use crate::redlock::{
    Acquire, AcquireRequest, Grant, LockKey, LockValue, MemberFailure, MemberName, Nonce, Occupant, ValueSigner,
    is_silence, jittered,
};
use crate::runtime::metrics::Metrics;
use crate::time::{Boottime, ClockOffset};

/// Between attempts that no majority answers, unless the lock itself asks for more.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(1);
/// So long the members beyond the majority are waited for before a grant is published.
const LATE_VOTES: Duration = Duration::from_millis(2);
/// The first renewal of a grant that did not have all votes yet.
const FIRST_RENEWAL: Duration = Duration::from_millis(200);
/// A pause that has run out on our clock must have run out on the timer's, too.
const TIMER_SLACK: Duration = Duration::from_millis(1);

/// For whom a lock is acquired, and where.
pub(super) struct Bid<'a> {
    pub(super) lock: &'a DistributedLock,
    pub(super) access: &'a Access,
    pub(super) contender: Contender,
}

/// What the members answered.
pub(super) enum Answer<'a> {
    /// A majority granted it.
    Granted(Box<Attempt<'a>>),
    /// They have other values on the key.
    Occupied(Occupied),
    /// No majority answered, or too late. In a row of such attempts the pauses grow.
    Unanswered(Said),
    /// They could not be asked.
    Later(Postponed),
}

/// What keeps a lock off its key.
pub(super) struct Occupied {
    session: Arc<QuorumSession>,
    pub(super) signer: ValueSigner,
    longest: Option<Duration>,
    pub(super) seen: Vec<Occupant>,
}

/// One attempt at the members, beside these holders of the key.
pub(super) async fn acquire<'a>(
    members: &Members,
    reachability: &Reachability,
    metrics: &Metrics,
    bid: Bid<'a>,
    holders: &[Arc<DistributedLock>],
) -> Answer<'a> {
    let Bid { lock, access, .. } = bid;
    let later = |said| Answer::Later(Postponed { said, pause: NOT_YET_PAUSE });
    let signed = members.signed(&access.quorum);
    let able = signed.and_then(|(session, signer)| Some((session.rejoin_delay()?, session, signer)));
    let Some((rejoin_delay, session, signer)) = able else {
        return later(Said::NoConnection { quorum: access.quorum.clone() });
    };
    let Some(clock) = members.api_clock() else { return later(Said::NoClock) };
    if let Some(said) = beyond_the_fence(lock, access, session.max_ttl_in_force()) {
        return later(said);
    }
    let uid = lock.uid().unwrap_or_default();
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
        measure(metrics, &outcome, members.now().since(started));
        see_to_reach(reachability, &access.quorum.reference(), &outcome, members.now());
        match outcome {
            Acquire::Granted(grant) => {
                let acquired = members.now();
                // Most members answer within a moment of each other, and then one status write says it all.
                let votes = late.within(LATE_VOTES).await.unwrap_or(grant.votes);
                let grant = Grant { votes, ..grant };
                let attempt = Attempt { session, bid, key, slot, nonce, value, grant, rejoin_delay, clock, acquired };
                return Answer::Granted(Box::new(attempt));
            }
            Acquire::HeldByOther { .. } => {}
            Acquire::NoQuorum { .. } | Acquire::Expired | Acquire::CountersApart => break,
        }
    }
    match outcome {
        Acquire::HeldByOther { longest, occupants, .. } => {
            Answer::Occupied(Occupied { session, signer, longest, seen: occupants })
        }
        Acquire::NoQuorum { failures, .. } => {
            let (HeldQuorum { namespace, name, .. }, failures) = (access.quorum.clone(), describe(&failures));
            Answer::Unanswered(Said::NoMajority { namespace, name, failures })
        }
        Acquire::Granted(_) | Acquire::Expired | Acquire::CountersApart => {
            Answer::Unanswered(Said::TooSlow { quorum: access.quorum.clone(), ttl: access.ttl.into() })
        }
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

/// After so many attempts in a row that no majority answered. The pause is longer after each of them, since attempts cost slots; but
/// members that come back are not kept waiting for longer than a second.
pub(super) fn unanswered(lock: &DistributedLock, said: Said, in_a_row: u32) -> Postponed {
    let pause = retry_pause(lock);
    let pause = pause.saturating_mul(1 << in_a_row.min(16)).min(LONGEST_UNANSWERED.max(pause));
    Postponed { said, pause }
}

/// The program of this claim seems to have ended while the claim waited. The next attempt comes one heartbeat later.
pub(super) fn without_heartbeat(lock: &DistributedLock) -> Postponed {
    let beat = lock.spec.claim.as_ref().and_then(|claim| claim.heartbeat);
    let said = Said::HeartbeatStopped { lease: full_name(lock), ttl: lock.spec.ttl };
    Postponed { said, pause: beat.map_or(NOT_YET_PAUSE, |beat| beat.get()) }
}

impl Occupied {
    /// Deletes the value of an attempt that no status names, from wherever it may be.
    pub(super) async fn release(&self, lock: &DistributedLock, access: &Access, orphan: &LockValue) -> Action {
        for slot in queue::free_slots(lock, &[]) {
            self.session.redlock().release(&self.session.electorate(), &access.slot_key(slot), orphan).await;
        }
        tracing::info!(lock = %full_name(lock), "released a grant that no status names");
        Action::requeue(TIMER_SLACK)
    }

    /// Who has the key: an earlier hold of this lock or of `peers`, or another client.
    pub(super) fn explain(
        &self,
        lock: &DistributedLock,
        access: &Access,
        peers: &[Arc<DistributedLock>],
        max_ttl: Option<Duration>,
    ) -> Postponed {
        let (signer, seen) = (&self.signer, &self.seen);
        let of_operator = orphans::is_of_any(peers.iter().map(|peer| &**peer).chain([lock]), signer, seen);
        let left =
            |before| self.longest.map_or_else(String::new, |left| format!(" {before} {}", foreign::coarse(left)));
        let said = if of_operator {
            Said::SealRunsOut { left: left("in") }
        } else {
            let seen = foreign::describe(seen, max_ttl);
            Said::Foreign { key: access.key.as_str().to_owned(), left: left("for"), seen }
        };
        Postponed { said, pause: retry_pause(lock) }
    }
}

/// A grant by the members that is being published.
pub(super) struct Attempt<'a> {
    pub(super) session: Arc<QuorumSession>,
    pub(super) bid: Bid<'a>,
    pub(super) key: LockKey,
    slot: Option<i32>,
    pub(super) nonce: Nonce,
    pub(super) value: LockValue,
    pub(super) grant: Grant,
    /// The quorum's rejoin delay when it was granted.
    rejoin_delay: Duration,
    /// The API server's clock, by which its times are published.
    clock: ClockOffset,
    /// When a majority had voted for it.
    /// Before that another client may have held the lock.
    acquired: Boottime,
}

impl Attempt<'_> {
    /// Deletes the key again.
    pub(super) async fn release(&self) {
        self.session.redlock().release(&self.session.electorate(), &self.key, &self.value).await;
    }

    pub(super) fn identity(&self) -> &str {
        match &self.bid.contender {
            Contender::Identity(identity) => identity,
            Contender::Instance(candidate) => &candidate.pod_name,
            Contender::Job { name, .. } => name,
        }
    }

    fn holder(&self) -> LockHolder {
        let recorded = LockHolder {
            nonce: Some(self.nonce.to_string()),
            slot: self.slot,
            quorum: Some(self.bid.access.quorum.clone()),
            key: Some(self.key.as_str().to_owned()),
            rejoin_delay: Some(self.rejoin_delay.into()),
            ..LockHolder::default()
        };
        match &self.bid.contender {
            Contender::Identity(identity) => LockHolder { identity: identity.clone(), ..recorded },
            Contender::Job { name, uid } => LockHolder {
                identity: name.clone(),
                job_name: Some(name.clone()),
                job_uid: Some(uid.clone()),
                ..recorded
            },
            Contender::Instance(candidate) => LockHolder {
                identity: candidate.pod_name.clone(),
                pod_name: Some(candidate.pod_name.clone()),
                pod_uid: Some(candidate.pod_uid.clone()),
                container_id: Some(candidate.container_id.clone()),
                container_started_at: candidate
                    .container_started_at
                    .as_ref()
                    .and_then(|time| MilliTime::from_millis(time.0.as_millisecond())),
                node_name: candidate.node_name.clone(),
                ..recorded
            },
        }
    }

    pub(super) fn granted(&self) -> Granted<'_> {
        Granted {
            holder: self.holder(),
            token: self.grant.token,
            acquired_at: self.clock.latest(self.acquired).ceil(),
            valid_until: self.clock.earliest(self.grant.valid_until).floor(),
            votes: self.grant.votes,
            key: self.key.as_str(),
        }
    }

    pub(super) fn hold(&self, lock: &DistributedLock) -> Hold {
        let Access { quorum, ttl, renew_interval, .. } = self.bid.access.clone();
        let terms = Terms {
            lock: ObjectRef::from_obj(lock),
            uid: lock.uid().unwrap_or_default(),
            quorum,
            key: self.key.clone(),
            nonce: self.nonce,
            ttl,
            renew_interval,
        };
        let Grant { started, valid_until, votes, .. } = self.grant;
        // A grant is decided at a majority. The votes that were on their way are counted soon, by the first renewal.
        let complete = votes.yes == votes.of;
        let due: Boottime = started + if complete { renew_interval } else { renew_interval.min(FIRST_RENEWAL) };
        Hold::new(terms, valid_until, due).granted(votes, started)
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
