//! Publishes a grant: the status write that names the holder, and the recovery from an unknown outcome of that write.
//!
//! The leader deletes the key only when no write that names its holder can land. Then the API server has refused every such write, or the
//! object has a later version than they carry. Otherwise the key expires.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::leader_context::LeaderContext;
use super::lock_store::{LockStore, Read};
use super::progress::{Progress, Stepped};
use crate::api::conditions::beginning;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus, LockHolder, MilliTime};
use crate::lock::model::decide::WaitReason;
use crate::lock::model::events::LockEvent;
use crate::lock::model::grant_writes::{Next, Writes};
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::hold::{Hold, Terms};
use crate::lock::model::status::{Draft, full_name};
use crate::lock::replica::access::Access;
use crate::lock::replica::hold_table::Holds;
use crate::quorum::session::QuorumSession;
use crate::redlock::{Grant, LockKey, LockValue, Nonce, Votes};
use crate::runtime::reconciles::Action;
use crate::time::{Boottime, UnixMillis};

/// The pause before the read that shows the outcome of a status write.
const READ_BACK_PAUSE: Duration = Duration::from_millis(200);
/// The pause of a lock whose writes the API server refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The delay of the first renewal of a grant without all votes.
const FIRST_RENEWAL: Duration = Duration::from_millis(200);
/// Maximum length of an error in a condition message.
const LONGEST_ERROR: usize = 256;

/// A grant by the members, which is being published.
pub(super) struct Attempt<'a> {
    pub(super) session: Arc<QuorumSession>,
    pub(super) access: &'a Access,
    pub(super) key: LockKey,
    pub(super) nonce: Nonce,
    pub(super) value: LockValue,
    pub(super) grant: Grant,
    /// The holder for the status, with the record of the hold.
    pub(super) holder: LockHolder,
    /// The time of the majority and the end of the validity, by the API server's clock.
    ///
    /// The hold begins with the majority, because another client can have held the lock before that.
    pub(super) times: (UnixMillis, UnixMillis),
}

impl Attempt<'_> {
    /// Deletes the key.
    async fn release(&self) {
        self.session.redlock().release(&self.session.electorate(), &self.key, &self.value).await;
    }

    /// The status with the grant. The first renewal can have added votes.
    fn granted(&self, draft: Draft, votes: Option<Votes>) -> DistributedLockStatus {
        let votes = votes.unwrap_or(self.grant.votes);
        draft.granted(self.holder.clone(), self.grant.token, self.times, votes).finish()
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
        // A grant needs only a majority. The first renewal soon adds the late votes.
        let complete = votes.yes == votes.of;
        let due: Boottime = started + if complete { renew_interval } else { renew_interval.min(FIRST_RENEWAL) };
        Hold::new(terms, valid_until, due).granted(votes, started)
    }
}

/// The outcome of the status write of a grant.
enum Published {
    /// The status names the grant.
    Named(Arc<DistributedLock>),
    /// No status names the grant, and no write of it can land.
    Impossible,
    /// The API server refused the grant, and no write of it is open.
    Refused(RequestError),
    /// A write of the grant can still land.
    Open(RequestError),
}

/// Publishes a grant. If that fails, releases the key or lets it expire.
pub(super) async fn publish(leader: &LeaderContext, lock: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Stepped {
    let LeaderContext { store, members, memory, .. } = leader;
    let uid = lock.uid().unwrap_or_default();
    attempt.session.observe_token(attempt.grant.token);
    if let Err(error) = attempt.session.ensure_token_floor(attempt.grant.token).await {
        attempt.release().await;
        return Ok(leader.postpone(lock, not_written(lock, &error)));
    }
    // From here on the key is renewed, even while the outcome of the status write is unknown.
    members.holds.adopt(attempt.hold(lock), false);
    let published = write(store, &members.holds, lock, attempt).await;
    if !matches!(published, Published::Named(_)) {
        members.holds.forget(&uid);
    }
    if matches!(published, Published::Impossible | Published::Refused(_)) {
        attempt.release().await;
    }
    match published {
        Published::Named(held) => {
            members.holds.written(&uid, &attempt.nonce, &held);
            memory.resume(&uid);
            announce(store, &held, attempt);
            leader.peers.request_reconcile_of_other_locks(&held);
            Ok(Progress::Next(held))
        }
        Published::Impossible => Ok(Progress::Done(Action::requeue(READ_BACK_PAUSE))),
        Published::Refused(error) | Published::Open(error) => Ok(leader.postpone(lock, not_written(lock, &error))),
    }
}

/// Writes the grant into the status, and resolves conflicts and unknown outcomes.
///
/// After those it reads the object. It writes again while the hold is valid and no other client has changed the status.
async fn write(store: &LockStore, holds: &Holds, lock: &Arc<DistributedLock>, attempt: &Attempt<'_>) -> Published {
    let (mut lock, mut withdraw) = (lock.clone(), false);
    let mut writes = Writes::new(&lock, attempt.nonce);
    let uid = lock.uid().unwrap_or_default();
    let hold = || holds.get(&uid, &attempt.nonce);
    let clock = &store.context.clock;
    loop {
        let now = store.context.api_now();
        let granted = || attempt.granted(Draft::of(&lock, now), hold().and_then(|hold| hold.votes));
        let status = if withdraw { withdrawn(&lock, now) } else { granted() };
        let error = match store.replace_status(&lock, status).await {
            Ok(_withdrawn) if withdraw => return Published::Impossible,
            Ok(held) => return Published::Named(held),
            Err(error) => error,
        };
        if writes.failed(&lock, &error) {
            return if matches!(error, RequestError::Gone) { Published::Impossible } else { Published::Refused(error) };
        }
        // Only a read shows the outcome. Until then the key is kept and renewed.
        tracing::debug!(lock = %full_name(&lock), error = &error as &dyn std::error::Error, "grant's status write not confirmed");
        if !matches!(error, RequestError::Conflict) {
            tokio::time::sleep(READ_BACK_PAUSE).await;
        }
        let is_late = || clock.boottime() >= attempt.grant.valid_until;
        lock = match read_settling(store, &lock, is_late).await {
            Ok(Some(read)) => read,
            Ok(None) => return Published::Impossible,
            Err(error) => return Published::Open(error),
        };
        let valid = hold().is_some_and(|hold| hold.is_valid(clock.boottime()));
        withdraw = match writes.read(&lock, valid, is_late()) {
            Next::Named => return Published::Named(lock),
            Next::Impossible => return Published::Impossible,
            Next::GiveUp => return Published::Open(error),
            next => next == Next::Withdraw,
        };
    }
}

/// Reads until the API server answers. A refusal to read ends this after the grant's validity.
async fn read_settling(store: &LockStore, lock: &DistributedLock, is_late: impl Fn() -> bool) -> Read {
    loop {
        match store.read(lock).await {
            Err(error @ RequestError::Refused(_)) if is_late() => return Err(error),
            Err(_unresolved) => tokio::time::sleep(READ_BACK_PAUSE).await,
            read => return read,
        }
    }
}

/// A status that differs from every earlier one.
fn withdrawn(lock: &DistributedLock, api_now: UnixMillis) -> DistributedLockStatus {
    let time = MilliTime::from_millis(api_now.0).map(|time| time.to_string()).unwrap_or_default();
    Draft::of(lock, api_now).not_held(&HeldMessage::Withdrawn { at: time }, None).finish()
}

/// Makes every open grant of this lock by another leader impossible.
///
/// A write that changes the object does this. If the status names a holder, the write of that grant was such a change.
pub(super) async fn withdraw(store: &LockStore, lock: &DistributedLock) -> Result<(), RequestError> {
    if lock.holder().is_none() {
        store.replace_status(lock, withdrawn(lock, store.context.api_now())).await?;
    }
    Ok(())
}

/// Reports the grant in the log, an Event and metrics. The next step sets the leader label.
fn announce(store: &LockStore, held: &Arc<DistributedLock>, attempt: &Attempt<'_>) {
    store.context.metrics.granted(held);
    let (name, token) = (&attempt.holder.identity, attempt.grant.token);
    tracing::info!(lock = %full_name(held), holder = name, token = token.get(), votes = %attempt.grant.votes, "lock acquired");
    let (holder, key) = (name.clone(), attempt.key.as_str().to_owned());
    store.event(held, LockEvent::Acquired { holder, key, token });
}

/// The reason to wait when the API server does not accept writes of the lock.
///
/// The cause can be a webhook or a policy. Other locks can get the key in this time.
pub(super) fn not_written(lock: &DistributedLock, error: &(dyn std::error::Error + 'static)) -> WaitReason {
    let sources = std::iter::successors(error.source(), |source| source.source());
    let sources: String = sources.map(|source| format!(": {source}")).collect();
    let source = beginning(&sources, LONGEST_ERROR);
    tracing::warn!(lock = %full_name(lock), error, "the API server refuses writes of this lock, so the operator does not acquire it");
    WaitReason {
        message: HeldMessage::NotWritten { failure: format!("{error}{source}") },
        retry_after: Some(REFUSED_PAUSE),
    }
}
