//! Publishing a grant: the status write that names the holder, and what becomes of the grant when it is not known whether it happened.
//!
//! A key is released only when no write that names its holder can land any more: the API server has refused every such write, or
//! the object has moved on from the version that they carry. Otherwise the key is left to lapse.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use super::labels::{self, leader_label_wanted};
use super::members::Members;
use super::parts::Parts;
use super::progress::{Error, Progress, Stepped};
use super::store::Store;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus, LockHolder, MilliTime};
use crate::lock::model::decide::{Contender, WaitReason};
use crate::lock::model::events::LockEvent;
use crate::lock::model::grant_writes::{Next, Writes};
use crate::lock::model::hold::{Hold, Terms};
use crate::lock::model::said::Said;
use crate::lock::model::status::{Draft, Granted, full_name};
use crate::lock::replica::access::Access;
use crate::quorum::session::QuorumSession;
use crate::redlock::{Grant, LockKey, LockValue, Nonce};
use crate::time::{Boottime, UnixMillis};

/// The pause between reads that are to settle what became of a status write.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// Before the next attempt of a lock whose writes the API server does not take.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The first renewal of a grant that did not have all votes yet.
const FIRST_RENEWAL: Duration = Duration::from_millis(200);
/// Maximum length of an error in a condition message.
const LONGEST_ERROR: usize = 256;

/// A grant by the members that is being published.
pub(super) struct Attempt<'a> {
    pub(super) session: Arc<QuorumSession>,
    pub(super) access: &'a Access,
    pub(super) contender: Contender,
    pub(super) key: LockKey,
    pub(super) slot: Option<i32>,
    pub(super) nonce: Nonce,
    pub(super) value: LockValue,
    pub(super) grant: Grant,
    /// The quorum's rejoin delay when it was granted.
    pub(super) rejoin_delay: Duration,
    /// When a majority had voted for it, and the end of its validity, by the API server's clock.
    ///
    /// Before a majority had voted, another client may have held the lock.
    pub(super) times: (UnixMillis, UnixMillis),
}

impl Attempt<'_> {
    /// Deletes the key again.
    async fn release(&self) {
        self.session.redlock().release(&self.session.electorate(), &self.key, &self.value).await;
    }

    fn holder(&self) -> LockHolder {
        LockHolder {
            nonce: Some(self.nonce.to_string()),
            slot: self.slot,
            quorum: Some(self.access.quorum.clone()),
            key: Some(self.key.as_str().to_owned()),
            rejoin_delay: Some(self.rejoin_delay.into()),
            ..self.contender.holder()
        }
    }

    fn granted(&self) -> Granted<'_> {
        let (acquired_at, valid_until) = self.times;
        let (token, votes) = (self.grant.token, self.grant.votes);
        Granted { holder: self.holder(), token, acquired_at, valid_until, votes, key: self.key.as_str() }
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
        Hold::new(terms, valid_until, due).granted(votes, started)
    }
}

/// What became of the status write of a grant.
enum Published {
    /// The status names it.
    Named(Arc<DistributedLock>),
    /// No status names it, and none will.
    Impossible,
    /// The API server has refused it, and no write of it is under way.
    Refused(RequestError),
    /// A write may land yet, and the API server does not say.
    Open(RequestError),
}

/// Publishes a grant of the members, or sees to its end.
pub(super) async fn publish(parts: &Parts, lock: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Stepped {
    let Parts { store, members, memory, .. } = parts;
    let uid = lock.uid().unwrap_or_default();
    attempt.session.saw_token(attempt.grant.token);
    if let Err(error) = attempt.session.ensure_token_floor(attempt.grant.token).await {
        attempt.release().await;
        return Err(Error::TokenFloor(error.into()));
    }
    // From here on the key is renewed, also while it is not known what became of the status write.
    members.holds.adopt(attempt.hold(lock), false);
    let published = write_grant(store, members, lock, attempt).await;
    if !matches!(published, Published::Named(_)) {
        members.holds.forget(&uid);
    }
    if matches!(published, Published::Impossible | Published::Refused(_)) {
        attempt.release().await;
    }
    match published {
        Published::Named(held) => {
            memory.resume(&uid);
            announce(store, &held, attempt).await?;
            parts.peers.nudge_others(&held);
            Ok(Progress::Next(held))
        }
        Published::Impossible => Ok(Progress::Done(Action::requeue(SETTLE_PAUSE))),
        Published::Refused(error) | Published::Open(error) => Ok(parts.postpone(lock, not_written(lock, &error))),
    }
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

/// Sets the leader label, and reports the grant.
async fn announce(store: &Store, held: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Result<(), RequestError> {
    if let (Some(pod_name), Contender::Instance(candidate)) = (leader_label_wanted(held), &attempt.contender) {
        labels::set(store.client(), &labels::name_of(held), pod_name, &candidate.pod_uid).await?;
    }
    store.count_grant(held);
    let (name, token) = (attempt.contender.identity(), attempt.grant.token);
    tracing::info!(lock = %full_name(held), holder = name, token = token.get(), votes = %attempt.grant.votes, "lock acquired");
    let (holder, key) = (name.to_owned(), attempt.key.as_str().to_owned());
    store.event(held, LockEvent::Acquired { holder, key, token });
    Ok(())
}

/// Why the next attempt has to wait when the API server does not take the lock's writes.
///
/// The cause may be a webhook or a policy. Other locks may have the key meanwhile.
pub(super) fn not_written(lock: &DistributedLock, error: &RequestError) -> WaitReason {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    let source: String = source.chars().take(LONGEST_ERROR).collect();
    tracing::warn!(lock = %full_name(lock), error = error as &dyn std::error::Error, "cannot be written, so not acquired");
    WaitReason { message: Said::NotWritten { failure: format!("{error}{source}") }, retry_after: Some(REFUSED_PAUSE) }
}
