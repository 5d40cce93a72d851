//! Acquiring a lock: one attempt at the members. What they grant is then published.

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::locks::{Error, Locks, Progress};
use crate::{
    api::{DistributedLock, HeldQuorum, LockHolder, MilliTime, RedisQuorum},
    lock::{
        model::{
            candidate::Candidate,
            decide::Contender,
            foreign,
            hold::{Hold, Terms},
            orphans, queue,
            said::Said,
            status::{Granted, full_name},
        },
        replica::{access::Access, liveness, location},
    },
    quorum::session::QuorumSession,
    redlock::{
        Acquire, AcquireRequest, Grant, LockKey, LockValue, MemberFailure, MemberName, Nonce, Seen, ValueSigner,
        is_silence, jittered,
    },
    time::{Boottime, UnixMillis},
};

/// While nobody can be asked, or no candidate answers.
const NOT_YET_PAUSE: Duration = Duration::from_millis(500);
/// Between attempts that no majority answers, unless the lock itself asks for more.
const LONGEST_UNANSWERED: Duration = Duration::from_secs(1);
/// So long the members beyond the majority are waited for before a grant is published.
const LATE_VOTES: Duration = Duration::from_millis(2);
/// The first renewal of a grant that did not have all votes yet.
const FIRST_RENEWAL: Duration = Duration::from_millis(200);
/// A pause that has run out on our clock must have run out on the timer's, too.
const TIMER_SLACK: Duration = Duration::from_millis(1);

impl Locks {
    /// One attempt for `contender`.
    pub(super) async fn acquire(
        &self,
        lock: &Arc<DistributedLock>,
        access: &Access,
        contender: Contender,
    ) -> Result<Progress, Error> {
        if let Some(otherwise) = self.health_of(lock, &contender) {
            return Ok(otherwise);
        }
        let uid = lock.uid().unwrap_or_default();
        let session = location::session(&self.sessions, &access.quorum);
        let Some((session, signer)) = session.and_then(|session| Some((session.clone(), session.signer()?))) else {
            return Ok(self.pause_after(lock, &Said::NoConnection { quorum: access.quorum.clone() }, NOT_YET_PAUSE));
        };
        if let Some(said) = beyond_the_fence(lock, access, session.max_ttl_in_force()) {
            return Ok(self.pause_after(lock, &said, NOT_YET_PAUSE));
        }
        let holders = self.holders(lock, access);
        let holders: Vec<_> = holders.iter().map(|holder| &**holder).collect();
        let mut outcome = Acquire::Expired;
        for slot in queue::free_slots(lock, &holders) {
            let key = access.slot_key(slot);
            // A value is used for one attempt only: a late release of an earlier one would delete a later one's key.
            let nonce = Nonce::random();
            let value = signer.value(&uid, &nonce);
            let started = self.context.clock.boottime();
            let (Some(wall), Some(rejoin_delay)) = (session.quorum_time(started), session.rejoin_delay()) else {
                return Ok(self.pause_after(lock, &Said::NoClock { quorum: access.quorum.clone() }, NOT_YET_PAUSE));
            };
            let request =
                AcquireRequest { key: key.clone(), value: value.clone(), ttl: access.ttl, hint: session.hint() };
            let electorate = session.electorate();
            let mut late;
            (outcome, late) = session.redlock().attempt(&electorate, request).await;
            self.measure(&outcome, self.context.clock.boottime().since(started));
            self.see_to_reach(&access.quorum.reference(), &outcome);
            match outcome {
                Acquire::Granted(grant) => {
                    let acquired = session.quorum_time(self.context.clock.boottime()).unwrap_or(wall);
                    // Most members answer within a moment of each other, and then one status write says it all.
                    let votes = late.within(LATE_VOTES).await.unwrap_or(grant.votes);
                    let grant = Grant { votes, ..grant };
                    let attempt = Attempt {
                        session,
                        access,
                        key,
                        slot,
                        contender,
                        nonce,
                        value,
                        grant,
                        rejoin_delay,
                        wall,
                        acquired,
                    };
                    return self.publish_grant(lock, attempt).await;
                }
                Acquire::HeldByOther { .. } => {}
                Acquire::NoQuorum { .. } | Acquire::Expired => break,
            }
        }
        match outcome {
            Acquire::HeldByOther { longest, seen, .. } => {
                self.held_by_other(lock, access, (&session, &signer), longest, &seen).await
            }
            Acquire::NoQuorum { failures, .. } => {
                let (HeldQuorum { namespace, name, .. }, failures) = (access.quorum.clone(), describe(&failures));
                let said = Said::NoMajority { namespace, name, failures };
                Ok(self.pause_after(lock, &said, self.unanswered_pause(lock)))
            }
            Acquire::Granted(_) | Acquire::Expired => {
                let said = Said::TooSlow { quorum: access.quorum.clone(), ttl: access.ttl.into() };
                Ok(self.pause_after(lock, &said, self.unanswered_pause(lock)))
            }
        }
    }

    /// A quorum that this leader no longer reaches may be reached by another replica.
    fn see_to_reach(&self, quorum: &ObjectRef<RedisQuorum>, outcome: &Acquire) {
        match outcome {
            Acquire::NoQuorum { failures, .. } if is_silence(failures) => {
                if self.reachability.is_silenced(quorum, self.context.clock.boottime()) {
                    self.reachability.hand_over(quorum, &describe(failures), false, self.context.clock.boottime());
                }
            }
            Acquire::Expired => {}
            Acquire::Granted(_) | Acquire::HeldByOther { .. } | Acquire::NoQuorum { .. } => {
                self.reachability.reached(quorum)
            }
        }
    }

    /// Longer with every attempt in a row that no majority answered: they cost slots, and members that come back are not kept waiting
    /// for longer than a second.
    fn unanswered_pause(&self, lock: &DistributedLock) -> Duration {
        let in_a_row = self.last_pause(&lock.uid().unwrap_or_default()).map_or(0, |pause| pause.unanswered);
        let pause = retry_pause(lock);
        pause.saturating_mul(1 << in_a_row.min(16)).min(LONGEST_UNANSWERED.max(pause))
    }

    fn measure(&self, outcome: &Acquire, took: Duration) {
        let metrics = &self.context.metrics;
        metrics.acquire_duration.observe(took.as_secs_f64());
        let outcome = match outcome {
            Acquire::Granted(_) => "granted",
            Acquire::HeldByOther { .. } => "held_by_other",
            Acquire::NoQuorum { .. } => "no_quorum",
            Acquire::Expired => "too_slow",
        };
        metrics.count(&metrics.acquisitions, outcome);
    }

    /// A candidate that fails the liveness check before it holds would only keep the lock from others for a TTL. `None`: it is well.
    fn health_of(&self, lock: &Arc<DistributedLock>, contender: &Contender) -> Option<Progress> {
        let Contender::Instance(candidate) = contender else { return None };
        lock.spec.liveness.as_ref()?;
        let uid = lock.uid().unwrap_or_default();
        let Some(answer) = self.asked.take(&uid, &candidate.container_id, self.context.clock.boottime()) else {
            return Some(Progress::Ask(candidate.clone()));
        };
        let why = answer.err()?;
        if self.shun(lock, &candidate.container_id) {
            let pod = format!("{}/{}", lock.namespace().unwrap_or_default(), candidate.pod_name);
            return Some(self.pause_after(lock, &Said::Unwell { pod, why }, NOT_YET_PAUSE));
        }
        // Nobody knew yet: the next decision picks another, if there is one.
        Some(Progress::Next(lock.clone()))
    }

    /// Asks a candidate, and remembers its answer for the next decision.
    pub(super) async fn ask_candidate(&self, lock: &DistributedLock, candidate: &Candidate) {
        let Some(liveness) = &lock.spec.liveness else { return };
        let pod = self.context.pods.named(&lock.namespace().unwrap_or_default(), &candidate.pod_name);
        let answer = liveness::ask_pod(pod.as_deref(), liveness, &*self.context.network).await;
        let uid = lock.uid().unwrap_or_default();
        self.asked.answered(uid, candidate.container_id.clone(), answer, self.context.clock.boottime());
    }

    async fn held_by_other(
        &self,
        lock: &Arc<DistributedLock>,
        access: &Access,
        (session, signer): (&QuorumSession, &ValueSigner),
        longest: Option<Duration>,
        seen: &[Seen],
    ) -> Result<Progress, Error> {
        let own = orphans::of(lock, signer, seen);
        if own.is_some() {
            // A predecessor died between grant and status write. Its write must become impossible before the key goes.
            self.withdraw(lock).await?;
        }
        let peers = self.predecessors(lock, access);
        if let Some(value) = own.or_else(|| orphans::of_finished(&peers, signer, seen)) {
            for slot in queue::free_slots(lock, &[]) {
                session.redlock().release(&session.electorate(), &access.slot_key(slot), &value).await;
            }
            tracing::info!(lock = %full_name(lock), "released a grant that no status names");
            return Ok(Progress::Done(Action::requeue(TIMER_SLACK)));
        }
        // The seal is this lock's own, or that of another on the key.
        let sealed = peers.iter().any(|peer| {
            let uid = peer.uid().unwrap_or_default();
            let is_seal =
                |nonce: &Nonce| orphans::stored_values(seen).any(|value| signer.recognise_sealed(&uid, nonce, value));
            self.sealed_nonce(&uid).is_some_and(|nonce| is_seal(&nonce))
        });
        let left =
            |before| longest.map_or_else(String::new, |longest| format!(" {before} {}", foreign::coarse(longest)));
        let said = if sealed {
            Said::SealRunsOut { left: left("in") }
        } else {
            let seen = foreign::describe(seen, self.max_ttl(access));
            Said::Foreign { key: access.key.as_str().to_owned(), left: left("for"), seen }
        };
        Ok(self.pause_after(lock, &said, retry_pause(lock)))
    }

    fn max_ttl(&self, access: &Access) -> Option<Duration> {
        self.context.quorums.get(&access.quorum.reference()).map(|quorum| quorum.spec.max_ttl.get())
    }
}

/// A grant by the members that is being published.
pub(super) struct Attempt<'a> {
    pub(super) session: Arc<QuorumSession>,
    access: &'a Access,
    pub(super) key: LockKey,
    slot: Option<i32>,
    pub(super) contender: Contender,
    pub(super) nonce: Nonce,
    pub(super) value: LockValue,
    pub(super) grant: Grant,
    /// The quorum's rejoin delay when it was granted.
    rejoin_delay: Duration,
    /// The quorum's clock before the first request: validity counts from here.
    wall: UnixMillis,
    /// The quorum's clock when a majority had voted for it: before that somebody else may have held the lock.
    acquired: UnixMillis,
}

impl Attempt<'_> {
    pub(super) fn identity(&self) -> &str {
        match &self.contender {
            Contender::Identity(identity) => identity,
            Contender::Instance(candidate) => &candidate.pod_name,
        }
    }

    /// The end of the validity on the quorum's clock, from the start of the round.
    fn valid_until_there(&self) -> UnixMillis {
        let valid = self.grant.valid_until.since(self.grant.started);
        UnixMillis(self.wall.0.saturating_add(i64::try_from(valid.as_millis()).unwrap_or(i64::MAX)))
    }

    fn holder(&self) -> LockHolder {
        let recorded = LockHolder {
            nonce: Some(self.nonce.to_string()),
            slot: self.slot,
            quorum: Some(self.access.quorum.clone()),
            key: Some(self.key.as_str().to_owned()),
            rejoin_delay: Some(self.rejoin_delay.into()),
            ..LockHolder::default()
        };
        match &self.contender {
            Contender::Identity(identity) => LockHolder { identity: identity.clone(), ..recorded },
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
            acquired_at: self.acquired,
            valid_until: self.valid_until_there(),
            votes: self.grant.votes,
            key: self.key.as_str(),
        }
    }

    pub(super) fn hold(&self, lock: &DistributedLock) -> Hold {
        let Access { quorum, ttl, renew_interval, .. } = self.access.clone();
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
        Hold::new(terms, valid_until, self.valid_until_there(), self.wall, due).granted(votes, started)
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
