//! A hold that a client of the members renews.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_client::{Client, Guard};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::held_lock::{End, LONGEST_SLEEP, Renewal, Validity};
use super::{CLOSE, Follower};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// Minimum extension that shows a renewal.
const RESOLUTION: Duration = Duration::from_millis(1);

/// A hold, and the task that renews it.
///
/// A drop without a release comes from a panic or from the end of the process. The lock is then neither released nor renewed, because
/// its validity was possibly promised to a program that still works.
#[derive(Debug)]
pub(crate) struct DirectHold {
    client: Client,
    release: oneshot::Sender<()>,
    task: JoinHandle<()>,
    _follower: Option<Arc<Follower>>,
}

impl DirectHold {
    pub(super) fn new(
        client: Client,
        guard: Guard,
        ttl: Duration,
        follower: Option<Arc<Follower>>,
    ) -> (Self, watch::Receiver<Validity>) {
        let (published, validity) = watch::channel(Validity { until: valid_until(&guard), end: None });
        let (release, released) = oneshot::channel();
        let task = tokio::spawn(renew(RenewedGuard(Some(guard)), published, released, ttl));
        (Self { client, release, task, _follower: follower }, validity)
    }
}

impl Renewal for DirectHold {
    /// Releases without a wait for the confirmation of all members.
    fn release(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async move {
            // An error means that the task panicked or was aborted.
            let _ = self.release.send(());
            Ok(self.task.await?)
        })
    }

    fn release_and_close(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async move {
            let client = self.client.clone();
            self.release().await?;
            Ok(client.close(CLOSE).await?)
        })
    }
}

/// A guard whose drop does not release the lock, because a drop by a panic is not a release.
struct RenewedGuard(Option<Guard>);

impl RenewedGuard {
    async fn release(mut self) {
        if let Some(guard) = self.0.take() {
            // A majority is enough. `close` waits for the other members.
            let _ = timeout(CLOSE, guard.release()).await;
        }
    }
}

impl Drop for RenewedGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            let _ = guard.into_held();
        }
    }
}

/// Publishes the validity of the hold until the lock is lost or released.
async fn renew(
    guarded: RenewedGuard,
    published: watch::Sender<Validity>,
    mut released: oneshot::Receiver<()>,
    ttl: Duration,
) {
    let Some(guard) = &guarded.0 else { return };
    let pause = (ttl / 20).min(LONGEST_SLEEP);
    let is_release = loop {
        tokio::select! {
            biased;
            release = &mut released => break release.is_ok(),
            lost = guard.lost() => {
                published.send_modify(|validity| validity.end = Some(End::Lost(lost.cause.to_string())));
                break released.await.is_ok();
            }
            () = sleep(pause) => {
                let until = valid_until(guard);
                // Two readings of one validity differ a little.
                published.send_if_modified(|validity| until > validity.until + RESOLUTION && validity.extend(until));
            }
        }
    };
    if is_release {
        guarded.release().await;
    }
}

/// The end of the validity. This reads the clock first, so the sum is never too late.
fn valid_until(guard: &Guard) -> Boottime {
    let now = SystemClock.boottime();
    now + guard.remaining()
}

#[cfg(test)]
mod tests {
    use redlock_client::test_util::FakeMembers;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    async fn held(members: &FakeMembers) -> DirectHold {
        let builder = Client::builder(members.urls()).admit_at_once();
        let client = builder.connect_on(members.machine()).await.unwrap();
        let guard = client.lock("k").ttl(TTL).try_acquire().await.unwrap();
        DirectHold::new(client, guard, TTL, None).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_a_panic_drops_is_neither_released_nor_renewed() {
        let members = FakeMembers::start(3);
        let hold = held(&members).await;
        let client = hold.client.clone();
        let work = tokio::spawn(async move {
            let _hold = hold;
            panic!("the work fails");
        });
        assert!(work.await.unwrap_err().is_panic());
        sleep(TTL - Duration::from_secs(1)).await;
        assert_eq!(members.holders("k"), 3, "its validity was possibly promised");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(members.holders("k"), 0, "no task renews it");
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_whose_task_is_dropped_is_not_released() {
        let members = FakeMembers::start(3);
        let hold = held(&members).await;
        hold.task.abort();
        sleep(TTL - Duration::from_secs(1)).await;
        assert_eq!(members.holders("k"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_is_released_when_its_holder_releases_it() {
        let members = FakeMembers::start(3);
        Box::new(held(&members).await).release_and_close().await.unwrap();
        assert_eq!(members.holders("k"), 0);
    }
}
