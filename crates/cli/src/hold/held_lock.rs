//! A lock that this process holds, from a claim, the members or another process.

use std::fmt::Display;
use std::time::Duration;

use anyhow::bail;
use futures::future::BoxFuture;
use tokio::sync::watch;

use redlock_api::GoDuration;
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// The bounds of [`reserve`].
const LEAST_RESERVE: Duration = Duration::from_millis(200);
const MOST_RESERVE: Duration = Duration::from_secs(1);
/// The minimum `ttl`, in multiples of the reserve.
const RESERVES_PER_TTL: u32 = 4;
/// The minimum `ttl` if only published validities are known, in multiples of the skew.
///
/// The operator publishes a renewal when a third of the `ttl` is left. Skew, reserve and the resolution of the clock must fit in it.
const SKEWS_PER_TTL: u32 = 8;

/// The validity of a hold at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The lock is certainly held until then.
    pub(crate) until: Boottime,
    /// Why the hold ended. No later validity changes this.
    pub(crate) end: Option<End>,
}

impl Validity {
    /// Moves the end to a later time. Returns whether this time is later.
    pub(crate) fn extend(&mut self, until: Boottime) -> bool {
        let is_later = until > self.until;
        self.until = self.until.max(until);
        is_later
    }
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

impl NotHeld {
    /// The end of a wait. It is certain only if another holder has the lock, or comes first.
    pub(crate) fn after_wait(lock: impl Display, why: &str, is_certain: bool) -> Self {
        let why = format!("lock {lock} was not acquired: {why}");
        if is_certain { Self::NotAcquired(why) } else { Self::NotAnswered(why) }
    }
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

impl Source {
    /// Refuses a `ttl` that is too short for an application to work under the lock.
    ///
    /// # Errors
    /// If the `ttl` is that short.
    pub(crate) fn refuse_short_ttl(self, ttl: GoDuration) -> anyhow::Result<()> {
        let least = LEAST_RESERVE * RESERVES_PER_TTL;
        if ttl.get() < least {
            let least = GoDuration::from(least);
            bail!("ttl {ttl} is too short for an application to stop in time: use {least} or more");
        }
        if let Self::Status { skew } = self
            && ttl.get() < skew * SKEWS_PER_TTL
        {
            let (skew, least) = (GoDuration::from(skew), GoDuration::from(skew * SKEWS_PER_TTL));
            bail!(
                "ttl {ttl} is too short: the end of the lock is only known to {skew}. Set a ttl of {least} or more, a smaller --skew, or give \
                 the Secret of a client with access Read by --members-secret"
            );
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_lost_before_it_is_used_is_refused() {
        let status = Source::Status { skew: Duration::from_secs(1) };
        let checked = |source: Source, ttl| source.refuse_short_ttl(GoDuration::from_millis(ttl));
        assert!(checked(Source::Members, 800).is_ok() && checked(status, 8_000).is_ok());
        assert!(checked(Source::Members, 799).unwrap_err().to_string().contains("use 800ms or more"));
        let text = checked(status, 7_999).unwrap_err().to_string();
        assert!(text.contains("a ttl of 8s or more") && text.contains("--skew"), "{text}");
    }
}
