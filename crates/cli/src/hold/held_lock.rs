//! A lock that this process holds, from a claim, the members or another process.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;

use redlock_engine::time::{Boottime, Clock, SystemClock};

/// The bounds of [`reserve`].
const LEAST_RESERVE: Duration = Duration::from_millis(200);
const MOST_RESERVE: Duration = Duration::from_secs(1);

/// The validity of a hold at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The lock is certainly held until then.
    pub(crate) until: Boottime,
    /// Why the hold ended. No later validity changes this.
    pub(crate) end: Option<End>,
}

/// Why a hold ended without a release by its holder.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
pub(crate) enum End {
    /// it was lost: {0}
    Lost(String),
    /// it was held for its maximum time
    MaxHold,
}

/// Why a lock is not held.
#[derive(Debug)]
pub(crate) enum NotHeld {
    /// Another holder has it.
    NotAcquired(String),
    /// It is not certain that another holder has it.
    ///
    /// There was no answer in time, the claim is refused, or the operator is silent.
    NotAnswered(String),
    /// A signal ended the wait.
    Signal(i32),
    /// Something else is wrong.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for NotHeld {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The source of the remaining validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The members. The validity begins at a reading of this machine's clock before the request.
    Members,
    /// `status.validUntil`, less this skew.
    Status { skew: Duration },
    /// An outer `run` or an agent, with this remaining validity.
    Outer { left: Duration },
}

/// A lock that is held and renewed.
pub(crate) struct HeldLock {
    pub(crate) lock: String,
    pub(crate) token: i64,
    pub(crate) holder: String,
    pub(crate) validity: watch::Receiver<Validity>,
    pub(crate) source: Source,
    pub(crate) renewal: Box<dyn Renewal>,
}

/// The renewal of one hold: by a client of the members, by a claim, or by an agent.
pub(crate) trait Renewal: Send {
    /// Ends the renewal and releases the lock.
    ///
    /// # Errors
    /// If it is not certain that the lock is free. The message has the time at which it becomes free.
    fn release(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>>;

    /// Releases the lock, for a process that takes no other lock.
    ///
    /// # Errors
    /// As [`Self::release`].
    fn release_and_close(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        self.release()
    }
}

impl HeldLock {
    /// Releases the lock, and closes the connections to the members.
    ///
    /// # Errors
    /// If it is not certain that the lock is free. The message has the time at which it becomes free.
    pub(crate) async fn release(self) -> anyhow::Result<()> {
        self.renewal.release_and_close().await
    }

    /// Releases the lock, and keeps the connections for other locks.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub(crate) async fn release_one(self) -> anyhow::Result<()> {
        self.renewal.release().await
    }

    /// Waits until the lock is lost.
    pub(crate) async fn lost(&mut self) -> End {
        loop {
            let Validity { until, end } = self.validity.borrow_and_update().clone();
            if let Some(end) = end {
                return end;
            }
            let left = until.since(SystemClock.boottime());
            if left.is_zero() {
                return End::Lost("it could not be renewed in time".to_owned());
            }
            let _ = tokio::time::timeout(left.min(LONGEST_SLEEP), self.validity.changed()).await;
        }
    }
}

/// Longest sleep between two readings of the clock, because tokio's clock stops during a suspend.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// The reserve at the end of a validity: time to notify the application of the end, or to kill it.
pub(crate) fn reserve(ttl: Duration) -> Duration {
    (ttl / 20).clamp(LEAST_RESERVE, MOST_RESERVE)
}
