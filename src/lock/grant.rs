//! Acquiring a lock: Redis majority, then status, then label.

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType, reflector::ObjectRef},
};

use super::{
    access::Access,
    decide::{Contender, Pause},
    foreign,
    holds::{Hold, Terms},
    labels,
    orphans::{self, holder_nonce},
    queue,
    reconcile::{Error, Locks, Progress, leader_label_wanted},
    status::{Draft, Granted, full_name},
    vitals,
    writes::WriteError,
};
use crate::{
    api::{DistributedLock, LockHolder, MilliTime, RedisQuorum, conditions::HeldReason},
    quorum::session::QuorumSession,
    redlock::{
        Acquire, AcquireRequest, Grant, LockKey, LockValue, MemberFailure, MemberName, Nonce, Seen, ValueSigner,
        is_silence, jittered,
    },
    time::{Boottime, UnixMillis},
};

/// While nobody can be asked, or no candidate answers.
const NOT_YET_PAUSE: Duration = Duration::from_millis(500);
/// The first renewal of a grant that did not have all votes yet.
const FIRST_RENEWAL: Duration = Duration::from_millis(200);
/// Between reads that are to settle what became of a status write.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
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
        if let Some(passed_over) = self.ask_candidate(lock, &contender).await {
            return Ok(passed_over);
        }
        let uid = lock.uid().unwrap_or_default();
        let session = self.sessions.get(&access.quorum);
        let Some((session, signer)) = session.and_then(|session| Some((session.clone(), session.signer()?))) else {
            let message = format!("this operator has no connection to RedisQuorum {} yet", access.quorum.name);
            return Ok(self.pause_after(lock, HeldReason::NoQuorum, message, NOT_YET_PAUSE));
        };
        let peers = self.peers(lock, access);
        let peers: Vec<_> = peers.iter().map(|peer| &**peer).collect();
        let mut outcome = Acquire::Expired;
        for slot in queue::free_slots(lock, &peers) {
            let key = access.slot_key(slot);
            // A value is used for one attempt only: a late release of an earlier one would delete a later one's key.
            let nonce = Nonce::random();
            let value = signer.value(&uid, &nonce);
            let wall = self.context.clock.wall();
            let request =
                AcquireRequest { key: key.clone(), value: value.clone(), ttl: access.ttl, hint: session.hint() };
            let began = self.context.clock.boottime();
            outcome = session.redlock().acquire(&session.electorate(), request).await;
            self.measure(&outcome, self.context.clock.boottime().since(began));
            self.see_to_reach(&access.quorum, &outcome);
            match outcome {
                Acquire::Granted(grant) => {
                    let acquired = self.context.clock.wall();
                    let attempt =
                        Attempt { session, access, key, slot, contender, nonce, value, grant, wall, acquired };
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
                Ok(self.pause_after(lock, HeldReason::NoQuorum, describe(&failures), retry_pause(lock)))
            }
            Acquire::Granted(_) | Acquire::Expired => {
                let message = "the members answered too slowly for any validity to be left".to_owned();
                Ok(self.pause_after(lock, HeldReason::NoQuorum, message, retry_pause(lock)))
            }
        }
    }

    /// A quorum that this leader no longer reaches may be reached by another replica.
    fn see_to_reach(&self, quorum: &ObjectRef<RedisQuorum>, outcome: &Acquire) {
        match outcome {
            Acquire::NoQuorum { failures, .. } if is_silence(failures) => {
                if self.tenure.is_silenced(quorum, self.context.clock.boottime()) {
                    self.tenure.hand_over(quorum, &describe(failures));
                }
            }
            Acquire::Expired => {}
            Acquire::Granted(_) | Acquire::HeldByOther { .. } | Acquire::NoQuorum { .. } => self.tenure.reached(quorum),
        }
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

    /// A candidate that fails the liveness check before it holds would only keep the lock from others for a TTL.
    async fn ask_candidate(&self, lock: &Arc<DistributedLock>, contender: &Contender) -> Option<Progress> {
        let (Contender::Instance(candidate), Some(liveness)) = (contender, &lock.spec.liveness) else { return None };
        let pod = self.context.pods.named(&lock.namespace().unwrap_or_default(), &candidate.pod_name);
        let why = vitals::ask_pod(pod.as_deref(), liveness, &*self.context.network).await.err()?;
        if self.shun(lock, &candidate.container_id) {
            let message = format!("pod {} fails the liveness check: {why}", candidate.pod_name);
            return Some(self.pause_after(lock, HeldReason::NoCandidate, message, NOT_YET_PAUSE));
        }
        // Nobody knew yet: the next decision picks another, if there is one.
        Some(Progress::Next(lock.clone()))
    }

    async fn publish_grant(&self, lock: &Arc<DistributedLock>, attempt: Attempt<'_>) -> Result<Progress, Error> {
        attempt.session.saw_token(attempt.grant.token);
        if let Err(error) = attempt.session.ensure_token_floor(attempt.grant.token).await {
            self.release_attempt(&attempt).await;
            return Err(Error::TokenFloor(error.into()));
        }
        let uid = lock.uid().unwrap_or_default();
        // From here on the key is renewed, also while nobody knows what became of the status write.
        self.holds.adopt(attempt.hold(lock), false);
        match self.write_grant(lock, &attempt).await {
            Ok(Some(held)) => {
                self.pause(&uid, None);
                self.after_grant(&held, &attempt).await?;
                Ok(Progress::Next(held))
            }
            Ok(None) => {
                self.holds.forget(&uid);
                self.release_attempt(&attempt).await;
                Ok(Progress::Done(Action::requeue(SETTLE_PAUSE)))
            }
            Err(error) => {
                self.holds.forget(&uid);
                self.release_attempt(&attempt).await;
                Err(error)
            }
        }
    }

    /// Writes the grant into the status. After a conflict or an unknown outcome it reads again, and writes again while the
    /// hold is valid and the lock still wants it; `None` means that it no longer does, and that no status names the grant.
    async fn write_grant(
        &self,
        lock: &Arc<DistributedLock>,
        attempt: &Attempt<'_>,
    ) -> Result<Option<Arc<DistributedLock>>, Error> {
        let mut lock = lock.clone();
        let uid = lock.uid().unwrap_or_default();
        loop {
            let status = Draft::of(&lock, self.context.clock.wall()).accepted().granted(attempt.granted()).finish();
            let unsettled = match self.written.replace_status(&self.context.client, &lock, status).await {
                Ok(held) => return Ok(Some(held)),
                Err(WriteError::Gone) => return Ok(None),
                Err(WriteError::Refused(error)) => return Err(WriteError::Refused(error).into()),
                Err(error) => error,
            };
            // Only a read settles it; until then the key stays ours and is renewed.
            tracing::debug!(lock = %full_name(&lock), error = &unsettled as &dyn std::error::Error, "grant's status write not confirmed");
            lock = loop {
                match self.written.read(&self.context.client, &lock).await {
                    Ok(Some(read)) => break read,
                    Ok(None) => return Ok(None),
                    Err(_unsettled) => tokio::time::sleep(SETTLE_PAUSE).await,
                }
            };
            if holder_nonce(&lock).as_ref() == Some(&attempt.nonce) {
                return Ok(Some(lock));
            }
            let valid = self.holds.get(&uid).is_some_and(|hold| hold.is_valid(self.context.clock.boottime()));
            if !valid || !still_wants_it(&lock) {
                return self.withdraw(&lock).await;
            }
        }
    }

    /// Makes every grant of this lock that is still on its way impossible: a write that changes the object.
    async fn withdraw(&self, lock: &Arc<DistributedLock>) -> Result<Option<Arc<DistributedLock>>, Error> {
        if lock.status.as_ref().is_some_and(|status| status.holder.is_some()) {
            return Ok(None);
        }
        let now = MilliTime::from_millis(self.context.clock.wall().0).map(|time| time.to_string()).unwrap_or_default();
        let message = format!("a grant was withdrawn at {now}");
        let status = Draft::of(lock, self.context.clock.wall()).waiting(HeldReason::Pending, &message, None).finish();
        self.written.replace_status(&self.context.client, lock, status).await?;
        Ok(None)
    }

    async fn after_grant(&self, held: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Result<(), Error> {
        if let (Some(pod_name), Contender::Instance(candidate)) = (leader_label_wanted(held), &attempt.contender) {
            let namespace = held.namespace().unwrap_or_default();
            labels::set(&self.context.client, &namespace, &held.name_any(), pod_name, &candidate.pod_uid).await?;
        }
        let (name, token) = (attempt.identity().to_owned(), attempt.grant.token);
        tracing::info!(lock = %full_name(held), holder = %name, token = token.get(), votes = %attempt.grant.votes, "lock acquired");
        let note = format!("{name} holds {} with fencing token {token}", attempt.key);
        self.event(held, EventType::Normal, "LockAcquired", note);
        self.nudge_others(held);
        Ok(())
    }

    /// Publishes an Event without making anybody wait for it.
    pub(super) fn event(&self, lock: &Arc<DistributedLock>, type_: EventType, reason: impl Into<String>, note: String) {
        let (context, lock, reason) = (self.context.clone(), lock.clone(), reason.into());
        tokio::spawn(async move { context.event(&*lock, type_, &reason, note).await });
    }

    async fn release_attempt(&self, attempt: &Attempt<'_>) {
        let Attempt { session, key, value, .. } = attempt;
        session.redlock().release(&session.electorate(), key, value).await;
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
        let peers = self.peers(lock, access);
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
        let left = longest.map_or_else(String::new, |longest| format!(", for at most {} ms more", longest.as_millis()));
        let (reason, message) = if sealed {
            (HeldReason::LockDelay, format!("the last hold runs out{left}"))
        } else {
            (
                HeldReason::HeldByOther,
                format!("somebody else holds {}{left}: {}", access.key, foreign::describe(seen, self.max_ttl(access))),
            )
        };
        Ok(self.pause_after(lock, reason, message, retry_pause(lock)))
    }

    fn max_ttl(&self, access: &Access) -> Option<Duration> {
        self.context.quorums.get(&access.quorum).map(|quorum| quorum.spec.max_ttl.get())
    }

    /// Says why in the status (by the next decision) and tries again after `pause`.
    fn pause_after(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        message: String,
        pause: Duration,
    ) -> Progress {
        let until = self.context.clock.boottime() + pause;
        self.pause(&lock.uid().unwrap_or_default(), Some(Pause { until, reason, message }));
        Progress::Next(lock.clone())
    }
}

/// A grant by the members that is being published.
struct Attempt<'a> {
    session: Arc<QuorumSession>,
    access: &'a Access,
    key: LockKey,
    slot: Option<i32>,
    contender: Contender,
    nonce: Nonce,
    value: LockValue,
    grant: Grant,
    /// Wall clock before the first request: validity counts from here.
    wall: UnixMillis,
    /// Wall clock when a majority had voted for it: before that somebody else may have held the lock.
    acquired: UnixMillis,
}

impl Attempt<'_> {
    fn identity(&self) -> &str {
        match &self.contender {
            Contender::Identity(identity) => identity,
            Contender::Instance(candidate) => &candidate.pod_name,
        }
    }

    /// The end of the validity on the wall clock, from the start of the round.
    fn valid_until_wall(&self) -> UnixMillis {
        let valid = self.grant.valid_until.since(self.grant.started);
        UnixMillis(self.wall.0.saturating_add(i64::try_from(valid.as_millis()).unwrap_or(i64::MAX)))
    }

    fn holder(&self) -> LockHolder {
        let (nonce, slot) = (Some(self.nonce.to_string()), self.slot);
        match &self.contender {
            Contender::Identity(identity) => {
                LockHolder { identity: identity.clone(), nonce, slot, ..LockHolder::default() }
            }
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
                nonce,
                slot,
            },
        }
    }

    fn granted(&self) -> Granted<'_> {
        Granted {
            holder: self.holder(),
            token: self.grant.token,
            acquired_at: self.acquired,
            valid_until: self.valid_until_wall(),
            votes: self.grant.votes,
            key: self.key.as_str(),
        }
    }

    fn hold(&self, lock: &DistributedLock) -> Hold {
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
        Hold::new(terms, valid_until, self.valid_until_wall(), self.wall, due).granted(votes, started)
    }
}

/// Before the next attempt, so that contenders who failed together do not meet again.
fn retry_pause(lock: &DistributedLock) -> Duration {
    let retry = &lock.spec.retry;
    jittered(retry.delay.get(), retry.jitter.get(), rand::random())
}

/// Whether a grant may still be published for this version of the object.
fn still_wants_it(lock: &DistributedLock) -> bool {
    let unheld = lock.status.as_ref().is_none_or(|status| status.holder.is_none());
    unheld && lock.metadata.deletion_timestamp.is_none() && !lock.spec.suspend
}

fn describe(failures: &[(MemberName, MemberFailure)]) -> String {
    let failures: Vec<_> = failures.iter().map(|(member, failure)| format!("{member}: {failure}")).collect();
    format!("no majority of members answered: {}", failures.join("; "))
}
