//! Publishing a grant: the status write that names the holder, and what becomes of the grant when nobody knows whether it happened.
//!
//! A key is released only when no write that names its holder can land any more: the API server has refused every such write, or
//! the object has moved on from the version that they carry. Otherwise the key is left to lapse.

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType},
};

use super::{
    grant::Attempt,
    labels::{self, leader_label_wanted},
    locks::{Error, Locks, Progress},
};
use crate::{
    api::{DistributedLock, DistributedLockStatus, MilliTime, conditions::HeldReason},
    lock::{
        model::{
            decide::{Contender, Pause},
            events::LockEvent,
            orphans::holder_nonce,
            said::Said,
            status::{Draft, full_name},
        },
        replica::writes::{Found, WriteError},
    },
    redlock::Nonce,
    runtime::cache::Unreadable,
    time::Boottime,
};

/// Between reads that are to settle what became of a status write.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// So many writes in a row that a reachable API server has not confirmed are enough, once the validity that they publish is over.
const UNCONFIRMED: usize = 3;
/// Before the next attempt of a lock whose writes the API server does not take.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// So long after its pause a lock that could not be acquired does not count as ahead of others: its next attempt is under way.
const LINGER: Duration = Duration::from_secs(1);
/// So much of an error is told in a status.
const LONGEST_ERROR: usize = 256;

/// What became of a grant.
enum Published {
    /// The status names it.
    Named(Arc<DistributedLock>),
    /// No status names it, and none will.
    Impossible,
    /// The API server has refused it, and no write of it is under way.
    Refused(WriteError),
    /// A write may land yet, and the API server does not say.
    Open(WriteError),
}

/// Pure: what is known of the writes of one grant.
struct Writes {
    nonce: Nonce,
    /// The status that the grant was decided on. Metadata and spec may change meanwhile, the status may not: somebody who wrote it
    /// may have found the key, taken it for an orphan and released it.
    decided_on: Option<DistributedLockStatus>,
    /// The version that the last write carried. Every earlier one carried an older version.
    version: Option<String>,
    /// A write that carried this version may still land.
    open: bool,
    unconfirmed: usize,
}

/// What to do after a read.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The status names the grant.
    Named,
    /// No write of it can land any more.
    Impossible,
    /// Write it again.
    Write,
    /// Write something else, so that no earlier write can land.
    Withdraw,
    /// The API server answers, and does not take any write.
    GiveUp,
}

impl Writes {
    fn new(lock: &DistributedLock, nonce: Nonce) -> Self {
        Self { nonce, decided_on: lock.status.clone(), version: lock.resource_version(), open: false, unconfirmed: 0 }
    }

    /// A write that carried the version of `lock` failed. Whether that settles that no write of the grant can land.
    fn failed(&mut self, lock: &DistributedLock, error: &WriteError) -> bool {
        self.version = lock.resource_version();
        match error {
            WriteError::Gone => return true,
            // It says nothing about an earlier write whose outcome is not known.
            WriteError::Refused(_) if !self.open => return true,
            WriteError::Conflict => {}
            WriteError::Refused(_) => self.unconfirmed += 1,
            WriteError::Unknown(_) => (self.open, self.unconfirmed) = (true, self.unconfirmed + 1),
        }
        false
    }

    /// Whether no write of the grant can land any more, by an object that cannot be read. It has another version than every write
    /// carried: what carried one could be read. So the only question is whether it names the grant.
    fn is_impossible_in(&self, raw: &Unreadable) -> bool {
        let Some(holder) = raw.status("holder") else { return true };
        let named = holder.get("nonce").and_then(|nonce| nonce.as_str()?.parse::<Nonce>().ok());
        named.is_some_and(|named| named != self.nonce)
    }

    /// The object as it was read after a write; `valid` says whether the grant is worth publishing, `late` whether the validity
    /// that it publishes is over.
    fn read(&mut self, lock: &DistributedLock, valid: bool, late: bool) -> Next {
        if holder_nonce(lock).as_ref() == Some(&self.nonce) {
            return Next::Named;
        }
        if lock.resource_version() != self.version {
            (self.open, self.unconfirmed) = (false, 0);
        }
        let wanted = lock.metadata.deletion_timestamp.is_none() && !lock.spec.suspend;
        let unheld = lock.status.as_ref().is_none_or(|status| status.holder.is_none());
        match self.open {
            true if late && self.unconfirmed >= UNCONFIRMED => Next::GiveUp,
            _ if valid && wanted && unheld && lock.status == self.decided_on => Next::Write,
            true => Next::Withdraw,
            false => Next::Impossible,
        }
    }
}

impl Locks {
    /// Publishes a grant of the members, or sees to its end.
    pub(super) async fn publish_grant(
        &self,
        lock: &Arc<DistributedLock>,
        attempt: Attempt<'_>,
    ) -> Result<Progress, Error> {
        attempt.session.saw_token(attempt.grant.token);
        if let Err(error) = attempt.session.ensure_token_floor(attempt.grant.token).await {
            self.release_attempt(&attempt).await;
            return Err(Error::TokenFloor(error.into()));
        }
        let uid = lock.uid().unwrap_or_default();
        // From here on the key is renewed, also while nobody knows what became of the status write.
        self.holds.adopt(attempt.hold(lock), false);
        match self.write_grant(lock, &attempt).await {
            Published::Named(held) => {
                self.pause(&uid, None);
                self.after_grant(&held, &attempt).await?;
                Ok(Progress::Next(held))
            }
            Published::Impossible => {
                self.holds.forget(&uid);
                self.release_attempt(&attempt).await;
                Ok(Progress::Done(Action::requeue(SETTLE_PAUSE)))
            }
            Published::Refused(error) => {
                self.holds.forget(&uid);
                self.release_attempt(&attempt).await;
                Ok(self.not_written(lock, &error))
            }
            Published::Open(error) => {
                self.holds.forget(&uid);
                Ok(self.not_written(lock, &error))
            }
        }
    }

    /// Writes the grant into the status. After a conflict or an unknown outcome it reads again, and writes again while the hold is
    /// valid and nobody has written the status.
    async fn write_grant(&self, lock: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Published {
        let (mut lock, mut withdraw) = (lock.clone(), false);
        let mut writes = Writes::new(&lock, attempt.nonce);
        loop {
            let status = if withdraw { self.withdrawn(&lock) } else { self.granted(&lock, attempt) };
            let error = match self.written.replace_status(&self.context.client, &lock, status).await {
                Ok(_withdrawn) if withdraw => return Published::Impossible,
                Ok(held) => return Published::Named(held),
                Err(error) => error,
            };
            if writes.failed(&lock, &error) {
                return if matches!(error, WriteError::Gone) {
                    Published::Impossible
                } else {
                    Published::Refused(error)
                };
            }
            // Only a read settles it; until then the key stays ours and is renewed.
            tracing::debug!(lock = %full_name(&lock), error = &error as &dyn std::error::Error, "grant's status write not confirmed");
            if !matches!(error, WriteError::Conflict) {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
            lock = match self.read_settling(&lock, attempt).await {
                Ok(Found::Lock(read)) => read,
                Ok(Found::Unreadable(raw)) if writes.is_impossible_in(&raw) => return Published::Impossible,
                // It was published, or may have been: it is left to run out, and what the status says is written down as ending.
                Ok(Found::Unreadable(_)) => return Published::Open(error),
                Ok(Found::Gone) => return Published::Impossible,
                Err(error) => return Published::Open(error),
            };
            let now = self.context.clock.boottime();
            let valid = self.holds.get(&lock.uid().unwrap_or_default()).is_some_and(|hold| hold.is_valid(now));
            withdraw = match writes.read(&lock, valid, now >= attempt.grant.valid_until) {
                Next::Named => return Published::Named(lock),
                Next::Impossible => return Published::Impossible,
                Next::GiveUp => return Published::Open(error),
                next => next == Next::Withdraw,
            };
        }
    }

    /// Reads until there is an answer. An API server that refuses to show the object is asked only while the grant's validity lasts.
    async fn read_settling(&self, lock: &DistributedLock, attempt: &Attempt<'_>) -> Result<Found, WriteError> {
        loop {
            match self.written.read(&self.context.client, lock).await {
                Err(error @ WriteError::Refused(_)) if self.context.clock.boottime() >= attempt.grant.valid_until => {
                    return Err(error);
                }
                Err(_unsettled) => tokio::time::sleep(SETTLE_PAUSE).await,
                read => return read,
            }
        }
    }

    /// The status with the grant, and with the votes that are known by now: its first renewal may have found more.
    fn granted(&self, lock: &DistributedLock, attempt: &Attempt<'_>) -> DistributedLockStatus {
        let mut granted = attempt.granted();
        let hold = self.holds.get(&lock.uid().unwrap_or_default()).filter(|hold| hold.terms.nonce == attempt.nonce);
        granted.votes = hold.and_then(|hold| hold.votes).unwrap_or(granted.votes);
        Draft::of(lock, self.context.api_now()).accepted().granted(granted).finish()
    }

    /// A status that differs from every earlier one.
    fn withdrawn(&self, lock: &DistributedLock) -> DistributedLockStatus {
        let now = MilliTime::from_millis(self.context.api_now().0).map(|time| time.to_string()).unwrap_or_default();
        Draft::of(lock, self.context.api_now()).says(&Said::Withdrawn { at: now }, None).finish()
    }

    /// Makes every grant of this lock that another leader has under way impossible: a write that changes the object. Nothing needs
    /// to be written while the status names a holder: that grant was such a write.
    pub(super) async fn withdraw(&self, lock: &DistributedLock) -> Result<(), Error> {
        if lock.status.as_ref().is_none_or(|status| status.holder.is_none()) {
            self.written.replace_status(&self.context.client, lock, self.withdrawn(lock)).await?;
        }
        Ok(())
    }

    async fn after_grant(&self, held: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Result<(), Error> {
        if let (Some(pod_name), Contender::Instance(candidate)) = (leader_label_wanted(held), &attempt.contender) {
            let namespace = held.namespace().unwrap_or_default();
            labels::set(&self.context.client, &namespace, &held.name_any(), pod_name, &candidate.pod_uid).await?;
        }
        let (name, token) = (attempt.identity().to_owned(), attempt.grant.token);
        tracing::info!(lock = %full_name(held), holder = %name, token = token.get(), votes = %attempt.grant.votes, "lock acquired");
        self.event(held, LockEvent::Acquired { holder: name, key: attempt.key.as_str().to_owned(), token });
        self.nudge_others(held);
        Ok(())
    }

    /// Publishes an Event without making anybody wait for it. What is normal for a claim is in its history: two Events for each would be half of all writes.
    pub(super) fn event(&self, lock: &Arc<DistributedLock>, event: LockEvent) {
        if lock.spec.election.is_none() && matches!(event.kind(), EventType::Normal) {
            return;
        }
        let (context, lock) = (self.context.clone(), lock.clone());
        tokio::spawn(async move { context.event(&*lock, event.kind(), event.reason(), event.to_string()).await });
    }

    async fn release_attempt(&self, attempt: &Attempt<'_>) {
        let Attempt { session, key, value, .. } = attempt;
        session.redlock().release(&session.electorate(), key, value).await;
    }

    /// The finalizer comes before the key, so that the object cannot vanish while the key is held.
    pub(super) async fn add_finalizer(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        match self.written.set_finalizer(&self.context.client, lock, true).await {
            Err(error @ (WriteError::Refused(_) | WriteError::Unknown(_))) => Ok(self.not_written(lock, &error)),
            written => Ok(Progress::Next(written?)),
        }
    }

    /// The API server does not take the lock's writes, a webhook or a policy perhaps: others may have the key meanwhile.
    fn not_written(&self, lock: &Arc<DistributedLock>, error: &WriteError) -> Progress {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        let source: String = source.chars().take(LONGEST_ERROR).collect();
        tracing::warn!(lock = %full_name(lock), error = error as &dyn std::error::Error, "cannot be written, so not acquired");
        self.pause_after(lock, &Said::NotWritten { failure: format!("{error}{source}") }, REFUSED_PAUSE)
    }

    /// Says why in the status (by the next decision) and tries again after `pause`.
    pub(super) fn pause_after(&self, lock: &Arc<DistributedLock>, said: &Said, pause: Duration) -> Progress {
        let uid = lock.uid().unwrap_or_default();
        let was_able = !self.is_unable(&uid);
        let until = self.context.clock.boottime() + pause;
        let before = self.last_pause(&uid).map_or(0, |pause| pause.unanswered);
        let unanswered = if said.reason() == HeldReason::NoQuorum { before.saturating_add(1) } else { 0 };
        self.pause(&uid, Some(Pause { unanswered, ..Pause::new(until, said) }));
        if was_able && self.is_unable(&uid) {
            // No status need tell them: it may be just what cannot be written.
            self.nudge_others(lock);
        }
        Progress::Next(lock.clone())
    }

    /// Whether the lock itself is what keeps it from being acquired, so that it blocks nobody.
    pub(super) fn is_unable(&self, uid: &str) -> bool {
        self.last_pause(uid).is_some_and(|pause| is_unable(&pause, self.context.clock.boottime()))
    }
}

/// Whether a lock that was paused like this could not hold the key now: no candidate answers, or its status cannot be written.
/// What another client or the quorum answered concerns all on the key.
fn is_unable(pause: &Pause, now: Boottime) -> bool {
    matches!(pause.reason, HeldReason::NoCandidate | HeldReason::Pending) && now < pause.until + LINGER
}

#[cfg(test)]
mod tests;
