//! Publishing a grant: the status write that names the holder, and what becomes of the grant when it is not known whether it happened.
//!
//! A key is released only when no write that names its holder can land any more: the API server has refused every such write, or
//! the object has moved on from the version that they carry. Otherwise the key is left to lapse.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::grant::Attempt;
use super::labels::{self, leader_label_wanted};
use super::members::Members;
use super::memory::Postponed;
use super::progress::{Error, Progress, Stepped};
use super::store::Store;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus, MilliTime};
use crate::lock::model::decide::Contender;
use crate::lock::model::events::LockEvent;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::said::Said;
use crate::lock::model::status::{Draft, full_name};
use crate::redlock::Nonce;
use crate::time::UnixMillis;

/// Between reads that are to settle what became of a status write.
pub(super) const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// How many writes in a row a reachable API server may leave unconfirmed.
/// After so many the leader gives up, once the validity that they publish has ended.
const UNCONFIRMED: usize = 3;
/// Before the next attempt of a lock whose writes the API server does not take.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// So much of an error is told in a status.
const LONGEST_ERROR: usize = 256;

/// What became of a grant.
pub(super) enum Published {
    /// The status names it.
    Named(Arc<DistributedLock>),
    /// No status names it, and none will.
    Impossible,
    /// The API server has refused it, and no write of it is under way.
    Refused(RequestError),
    /// A write may land yet, and the API server does not say.
    Open(RequestError),
}

/// Pure: what is known of the writes of one grant.
struct Writes {
    nonce: Nonce,
    /// The status that the grant was decided on. Metadata and spec may change meanwhile, the status may not: a leader that wrote it
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
    fn failed(&mut self, lock: &DistributedLock, error: &RequestError) -> bool {
        self.version = lock.resource_version();
        match error {
            RequestError::Gone => return true,
            // It says nothing about an earlier write whose outcome is not known.
            RequestError::Refused(_) if !self.open => return true,
            RequestError::Conflict => {}
            RequestError::Refused(_) => self.unconfirmed += 1,
            RequestError::Unknown(_) => (self.open, self.unconfirmed) = (true, self.unconfirmed + 1),
        }
        false
    }

    /// Decides by the object as it was read after a write.
    ///
    /// `valid` says whether the grant is worth publishing, `late` whether the validity that it publishes has ended.
    fn read(&mut self, lock: &DistributedLock, valid: bool, late: bool) -> Next {
        if holder_nonce(lock).as_ref() == Some(&self.nonce) {
            return Next::Named;
        }
        if lock.resource_version() != self.version {
            (self.open, self.unconfirmed) = (false, 0);
        }
        let spec = &lock.spec;
        let wanted = lock.metadata.deletion_timestamp.is_none() && !spec.suspend && spec.unreadable.is_none();
        let unheld = lock.status.as_ref().is_none_or(|status| status.holder.is_none());
        match self.open {
            // A holder without a nonce can be this one.
            _ if !unheld && holder_nonce(lock).is_none() => Next::GiveUp,
            true if late && self.unconfirmed >= UNCONFIRMED => Next::GiveUp,
            _ if valid && wanted && unheld && lock.status == self.decided_on => Next::Write,
            true => Next::Withdraw,
            false => Next::Impossible,
        }
    }
}

/// Publishes a grant of the members, or sees to its end.
pub(super) async fn publish(
    store: &Store,
    members: &Members,
    lock: &Arc<DistributedLock>,
    attempt: &Attempt<'_>,
) -> Result<Published, Error> {
    attempt.session.saw_token(attempt.grant.token);
    if let Err(error) = attempt.session.ensure_token_floor(attempt.grant.token).await {
        attempt.release().await;
        return Err(Error::TokenFloor(error.into()));
    }
    // From here on the key is renewed, also while it is not known what became of the status write.
    members.holds.adopt(attempt.hold(lock), false);
    let published = write_grant(store, members, lock, attempt).await;
    match &published {
        Published::Named(_) => {}
        Published::Open(_) => members.holds.forget(&lock.uid().unwrap_or_default()),
        Published::Impossible | Published::Refused(_) => {
            members.holds.forget(&lock.uid().unwrap_or_default());
            attempt.release().await;
        }
    }
    Ok(published)
}

/// Writes the grant into the status. After a conflict or an unknown outcome it reads again, and writes again while the hold is
/// valid and no other client has written the status.
async fn write_grant(
    store: &Store,
    members: &Members,
    lock: &Arc<DistributedLock>,
    attempt: &Attempt<'_>,
) -> Published {
    let (mut lock, mut withdraw) = (lock.clone(), false);
    let mut writes = Writes::new(&lock, attempt.nonce);
    loop {
        let now = store.api_now();
        let status = if withdraw { withdrawn(&lock, now) } else { granted(members, &lock, attempt, now) };
        let error = match store.replace_status(&lock, status).await {
            Ok(_withdrawn) if withdraw => return Published::Impossible,
            Ok(held) => return Published::Named(held),
            Err(error) => error,
        };
        if writes.failed(&lock, &error) {
            return if matches!(error, RequestError::Gone) { Published::Impossible } else { Published::Refused(error) };
        }
        // Only a read settles it; until then the key stays ours and is renewed.
        tracing::debug!(lock = %full_name(&lock), error = &error as &dyn std::error::Error, "grant's status write not confirmed");
        if !matches!(error, RequestError::Conflict) {
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
        let is_late = || members.now() >= attempt.grant.valid_until;
        lock = match read_settling(store, &lock, is_late).await {
            Ok(Some(read)) => read,
            Ok(None) => return Published::Impossible,
            Err(error) => return Published::Open(error),
        };
        let hold = members.holds.get(&lock.uid().unwrap_or_default(), &attempt.nonce);
        let valid = hold.is_some_and(|hold| hold.is_valid(members.now()));
        withdraw = match writes.read(&lock, valid, is_late()) {
            Next::Named => return Published::Named(lock),
            Next::Impossible => return Published::Impossible,
            Next::GiveUp => return Published::Open(error),
            next => next == Next::Withdraw,
        };
    }
}

/// Reads until there is an answer. An API server that refuses to show the object is asked only while the grant's validity lasts.
async fn read_settling(
    store: &Store,
    lock: &DistributedLock,
    is_late: impl Fn() -> bool,
) -> Result<Option<Arc<DistributedLock>>, RequestError> {
    loop {
        match store.read(lock).await {
            Err(error @ RequestError::Refused(_)) if is_late() => return Err(error),
            Err(_unsettled) => tokio::time::sleep(SETTLE_PAUSE).await,
            read => return read,
        }
    }
}

/// The status with the grant and the votes that are known by now.
///
/// Its first renewal may have found more votes.
fn granted(
    members: &Members,
    lock: &DistributedLock,
    attempt: &Attempt<'_>,
    api_now: UnixMillis,
) -> DistributedLockStatus {
    let mut granted = attempt.granted();
    let hold = members.holds.get(&lock.uid().unwrap_or_default(), &attempt.nonce);
    granted.votes = hold.and_then(|hold| hold.votes).unwrap_or(granted.votes);
    Draft::of(lock, api_now).accepted().granted(granted).finish()
}

/// A status that differs from every earlier one.
fn withdrawn(lock: &DistributedLock, api_now: UnixMillis) -> DistributedLockStatus {
    let time = MilliTime::from_millis(api_now.0).map(|time| time.to_string()).unwrap_or_default();
    Draft::of(lock, api_now).says(&Said::Withdrawn { at: time }, None).finish()
}

/// Makes every grant of this lock that another leader has under way impossible.
///
/// A write that changes the object does this. Nothing needs to be written while the status names a holder: that grant
/// was such a write.
pub(super) async fn withdraw(store: &Store, lock: &DistributedLock) -> Result<(), RequestError> {
    if lock.status.as_ref().is_none_or(|status| status.holder.is_none()) {
        store.replace_status(lock, withdrawn(lock, store.api_now())).await?;
    }
    Ok(())
}

/// What a published grant brings: the leader label and an Event.
pub(super) async fn announce(
    store: &Store,
    held: &Arc<DistributedLock>,
    attempt: &Attempt<'_>,
) -> Result<(), RequestError> {
    if let (Some(pod_name), Contender::Instance(candidate)) = (leader_label_wanted(held), &attempt.bid.contender) {
        labels::set(store.client(), &labels::name_of(held), pod_name, &candidate.pod_uid).await?;
    }
    store.count_grant(held);
    let (name, token) = (attempt.identity(), attempt.grant.token);
    tracing::info!(lock = %full_name(held), holder = name, token = token.get(), votes = %attempt.grant.votes, "lock acquired");
    let (holder, key) = (name.to_owned(), attempt.key.as_str().to_owned());
    store.event(held, LockEvent::Acquired { holder, key, token });
    Ok(())
}

/// The finalizer comes before the key, so that the object cannot vanish while the key is held.
pub(super) async fn add_finalizer(store: &Store, lock: &Arc<DistributedLock>) -> Stepped {
    match store.set_finalizer(lock, true).await {
        Err(error @ (RequestError::Refused(_) | RequestError::Unknown(_))) => {
            Ok(Progress::Later(not_written(lock, &error)))
        }
        written => Ok(Progress::Next(written?)),
    }
}

/// What to say and how long to wait when the API server does not take the lock's writes.
///
/// The cause may be a webhook or a policy. Other locks may have the key meanwhile.
pub(super) fn not_written(lock: &DistributedLock, error: &RequestError) -> Postponed {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let source: String = source.chars().take(LONGEST_ERROR).collect();
    tracing::warn!(lock = %full_name(lock), error = error as &dyn std::error::Error, "cannot be written, so not acquired");
    Postponed { said: Said::NotWritten { failure: format!("{error}{source}") }, pause: REFUSED_PAUSE }
}

#[cfg(test)]
mod tests;
