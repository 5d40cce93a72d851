//! The state of a client, and its releases and extensions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::closing::Closing;
use super::error::{LossCause, Lost, Release};
use super::event::{Event, Observer};
use super::hints::Hints;
use super::local_queue::LocalQueue;
use super::lock::Target;
use super::member_endpoints::TlsSettings;
use super::member_set::MemberSet;
use super::renewer::{Hold, Renewer};
use super::secret_entries::SecretEntries;
use crate::redlock::{Extend, ExtendRequest, LockKey, LockValue, Redlock, granted_until, rejoin_delay};
use crate::time::{Boottime, Clock};
use crate::voting::{Endpoint, RedisMember};

/// The settings of attempts and guards.
#[derive(Clone, Debug)]
pub(super) struct LockSettings {
    pub(super) key_prefix: String,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry: Duration,
    pub(super) margin: Duration,
    pub(super) tokens: bool,
    pub(super) observer: Observer,
}

/// The state that all handles of a client share.
pub(super) struct Inner {
    pub(super) redlock: Redlock<dyn Clock>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) members: Arc<MemberSet>,
    pub(super) redis: Vec<Arc<RedisMember>>,
    /// Endpoints of the listeners, by member.
    pub(super) listener_endpoints: Vec<watch::Sender<Endpoint>>,
    pub(super) secret: Option<SecretEntries>,
    pub(super) trust: Mutex<TlsSettings>,
    pub(super) renewer: Arc<Renewer>,
    pub(super) local_queue: LocalQueue,
    pub(super) hints: Arc<Hints>,
    pub(super) settings: LockSettings,
    pub(super) longest_ttl: Duration,
    pub(super) closing: Closing,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The time to live in whole milliseconds, as Redis counts it.
///
/// No validity can be longer.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

impl Inner {
    /// The time for which a hold is certainly valid.
    pub(super) fn remaining(&self, hold: &Hold) -> Duration {
        if hold.is_lost() { Duration::ZERO } else { hold.valid_until().since(self.clock.boottime()) }
    }

    pub(super) fn held_for(&self, hold: &Hold) -> Duration {
        self.clock.boottime().since(hold.since)
    }

    /// Enqueues the release before it returns.
    pub(super) fn submit_release(&self, hold: &Hold) {
        self.redlock.submit_release(&self.members.electorate(), &hold.key, &hold.value);
        if self.report_release(hold) {
            self.hints.released(&Target::of(&hold.key), self.held_for(hold));
        }
    }

    /// Ends a hold whose release is enqueued. Returns false if it was lost or released before, and possibly belongs to another client.
    fn report_release(&self, hold: &Hold) -> bool {
        let is_first = hold.lose(LossCause::Closed);
        if is_first {
            self.settings.observer.notify(|| Event::Released { key: &hold.key, held: self.held_for(hold) });
        }
        is_first
    }

    /// Ends the renewals of the hold and leaves its key.
    pub(super) fn forget(&self, hold: &Hold) {
        self.renewer.forget(hold);
        hold.lose(LossCause::Closed);
    }

    /// Extends the key to `ttl` in one round.
    ///
    /// Returns the start of the round and its validity.
    pub(super) async fn extend_once(
        &self,
        (key, value): (&LockKey, &LockValue),
        ttl: Duration,
        valid_until: Boottime,
    ) -> Result<(Boottime, Boottime), Lost> {
        let request = ExtendRequest { key: key.clone(), value: value.clone(), ttl, valid_until: Some(valid_until) };
        let lost = |cause| Err(Lost { cause });
        match self.redlock.extend(&self.members.electorate(), vec![request]).await.pop() {
            Some(Extend::Renewed { started, .. }) => {
                let until = granted_until(started, self.clock.boottime(), ttl, self.redlock.settings().drift);
                until.map_or_else(|| lost(LossCause::Unreachable), |until| Ok((started, until)))
            }
            Some(Extend::Refused { .. }) => lost(LossCause::Taken),
            _ => lost(LossCause::Unreachable),
        }
    }

    pub(super) async fn leave(&self, hold: &Hold, least: Duration) -> Result<(), Lost> {
        if let Some(lost) = hold.ended() {
            return Err(lost);
        }
        let (now, end) = (self.clock.boottime(), hold.since + least);
        if end <= now {
            let _ = self.end(hold).await;
            return Ok(());
        }
        // The next waiter of this client can send requests from now on.
        self.renewer.forget(hold);
        // The clocks of the members can run faster than this one.
        let ttl = rejoin_delay(end.since(now), self.redlock.settings().drift, Duration::from_millis(1));
        let ttl = whole_millis(ttl).min(self.longest_ttl);
        let extended = self.extend_once((&hold.key, &hold.value), ttl, hold.valid_until()).await;
        hold.lose(LossCause::Closed);
        extended.map(drop)
    }

    pub(super) fn end_soon(&self, hold: &Hold) {
        self.renewer.forget(hold);
        self.submit_release(hold);
    }

    pub(super) async fn end(&self, hold: &Hold) -> Release {
        self.renewer.forget(hold);
        // The request of the next waiter follows the release on every connection.
        self.release((&hold.key, &hold.value), self.held_for(hold), || self.report_release(hold)).await
    }

    /// Releases the lock, and calls `enqueued` when the release is in all queues. If that returns true, other clients get a hint.
    pub(super) async fn release(
        &self,
        lock: (&LockKey, &LockValue),
        held_for: Duration,
        enqueued: impl FnOnce() -> bool,
    ) -> Release {
        let ((key, value), electorate) = (lock, self.members.electorate());
        let mut release = std::pin::pin!(self.redlock.release_soon(&electorate, key, value));
        let mut enqueued = Some(enqueued);
        let released = std::future::poll_fn(|cx| {
            let polled = release.as_mut().poll(cx);
            // The first poll has enqueued it.
            if enqueued.take().is_some_and(|enqueued| enqueued()) {
                self.hints.released(&Target::of(key), held_for);
            }
            polled
        })
        .await;
        Release(released)
    }
}
