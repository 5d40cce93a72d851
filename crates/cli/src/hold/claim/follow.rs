//! Follows one claim by its name while it holds the lock.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::super::held_lock::{End, Validity};
use super::status::{self, ClaimState, Holding};
use super::validity_source::{HoldState, ValiditySource};
use redlock_api::DistributedLock;

type Events = Pin<Box<dyn Stream<Item = Result<watcher::Event<DistributedLock>, watcher::Error>> + Send>>;

/// A watch of one claim.
pub(super) struct Watched {
    events: Events,
    /// The object in the current list, until the list is complete.
    listed: Option<DistributedLock>,
}

impl Watched {
    pub(super) fn new(locks: &Api<DistributedLock>, name: &str) -> Self {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self { events: watcher(locks.clone(), only).default_backoff().boxed(), listed: None }
    }

    /// Waits for the next event of the object. `None` if it is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<DistributedLock> {
        loop {
            match self.events.next().await {
                Some(Ok(watcher::Event::Apply(lock))) => return Some(lock),
                Some(Ok(watcher::Event::Delete(_))) => return None,
                Some(Ok(watcher::Event::Init)) => self.listed = None,
                Some(Ok(watcher::Event::InitApply(lock))) => self.listed = Some(lock),
                Some(Ok(watcher::Event::InitDone)) => return self.listed.take(),
                // The watcher tries again, with pauses.
                Some(Err(_)) => {}
                None => std::future::pending::<()>().await,
            }
        }
    }
}

/// The task that publishes the validity of a hold.
pub(super) struct Follower {
    pub(super) watched: Watched,
    pub(super) trust: ValiditySource,
    pub(super) holding: Holding,
    pub(super) published: watch::Sender<Validity>,
}

impl Follower {
    /// Publishes until it is stopped. Returns the watch.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<()>, ttl: Duration) -> Watched {
        let pause = self.trust.pause(ttl);
        let mut readings: u32 = 0;
        loop {
            let state = tokio::select! {
                biased;
                _ = &mut stopped => return self.watched,
                lock = self.watched.next() => match status::read(lock.as_ref(), Some(&self.holding.nonce)) {
                    ClaimState::Held(holding) => self.trust.published(&holding, ttl),
                    ClaimState::Waiting { .. } => HoldState::Unknown,
                    ClaimState::Ended { end, .. } => {
                        self.ends(end);
                        let _ = stopped.await;
                        return self.watched;
                    }
                },
                () = sleep(pause) => {
                    readings = readings.wrapping_add(1);
                    if readings.is_multiple_of(5) {
                        self.trust.refresh();
                    }
                    self.trust.read().await
                }
            };
            match state {
                HoldState::Until(until) => {
                    self.published.send_if_modified(|validity| {
                        let is_later = until > validity.until;
                        validity.until = validity.until.max(until);
                        is_later
                    });
                }
                HoldState::Lost(why) => self.ends(End::Lost(why)),
                HoldState::Unknown => {}
            }
        }
    }

    fn ends(&self, end: End) {
        self.published.send_modify(|validity| {
            validity.end.get_or_insert(end);
        });
    }
}
