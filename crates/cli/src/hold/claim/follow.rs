//! Follows one object by its name, and one claim while it holds the lock.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::super::held_lock::{End, Validity};
use super::status::{self, ClaimState, Holding};
use super::validity_source::{HoldState, ValiditySource};
use redlock_api::DistributedLock;
use redlock_api::watches::limited_watch;

type Events = Pin<Box<dyn Stream<Item = Result<watcher::Event<DistributedLock>, watcher::Error>> + Send>>;

/// A watch of one object.
pub(crate) struct Watched {
    events: Events,
    /// The object in the current list, until the list is complete.
    listed: Option<DistributedLock>,
}

impl Watched {
    pub(crate) fn new(locks: &Api<DistributedLock>, name: &str) -> Self {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        Self { events: limited_watch(locks.clone(), only).boxed(), listed: None }
    }

    /// Waits for the next event of the object. `None` if it is gone.
    ///
    /// # Errors
    /// If a request fails. The next call tries again, after a pause.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn event(&mut self) -> Result<Option<DistributedLock>, watcher::Error> {
        loop {
            match self.events.next().await {
                Some(Ok(watcher::Event::Apply(lock))) => return Ok(Some(lock)),
                Some(Ok(watcher::Event::Delete(_))) => return Ok(None),
                Some(Ok(watcher::Event::Init)) => self.listed = None,
                Some(Ok(watcher::Event::InitApply(lock))) => self.listed = Some(lock),
                Some(Ok(watcher::Event::InitDone)) => return Ok(self.listed.take()),
                Some(Err(error)) => return Err(error),
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Waits for the next event of the object, and tries again after errors.
    ///
    /// # Cancel safety
    /// As [`Self::event`].
    pub(super) async fn next(&mut self) -> Option<DistributedLock> {
        loop {
            if let Ok(lock) = self.event().await {
                return lock;
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
                    self.published.send_if_modified(|validity| validity.extend(until));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::Cluster;
    use crate::cluster::fake::{failure, is_watch, list};

    /// kube's defaults notice a dead connection after 295 s, and pause for half a minute after an outage.
    #[tokio::test(start_paused = true)]
    async fn a_watch_recovers_within_seconds_after_an_outage() {
        let cluster = Cluster::answering(|request| match is_watch(request) {
            true => {
                assert!(request.uri().query().unwrap().contains("timeoutSeconds=30"), "{}", request.uri());
                failure(503, "ServiceUnavailable")
            }
            false => list(&[]),
        });
        let mut watched = Watched::new(&Api::namespaced(cluster.client.clone(), "shop"), "a");
        assert!(matches!(watched.event().await, Ok(None)));
        for _ in 0..20 {
            let event = timeout(Duration::from_secs(4), watched.event()).await.expect("an attempt within seconds");
            assert!(matches!(event, Err(watcher::Error::WatchStartFailed(_))), "{event:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_reports_each_error_and_tries_again() {
        let requests = AtomicUsize::new(0);
        let cluster = Cluster::answering(move |request| {
            let lock = json!({"metadata": {"name": "a"}, "spec": {"claim": {"identity": "me"}}});
            match requests.fetch_add(1, Ordering::SeqCst) {
                0 => failure(500, "InternalError"),
                _ if is_watch(request) => failure(403, "Forbidden"),
                _ => list(&[lock]),
            }
        });
        let mut watched = Watched::new(&Api::namespaced(cluster.client.clone(), "shop"), "a");
        assert!(matches!(watched.event().await, Err(watcher::Error::InitialListFailed(_))));
        assert!(matches!(watched.event().await, Ok(Some(_))));
        for _ in 0..2 {
            assert!(matches!(watched.event().await, Err(watcher::Error::WatchStartFailed(_))));
        }
    }
}
