//! A lock that this process holds, wherever it comes from.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::claim::ClaimHold;
use super::direct::DirectHold;
use crate::time::{Boottime, Clock, SystemClock};

/// The bounds of [`reserve`].
const LEAST_RESERVE: Duration = Duration::from_millis(200);
const MOST_RESERVE: Duration = Duration::from_secs(1);

/// What is known of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) struct Validity {
    /// The lock is certainly held until then.
    pub(in crate::command) until: Boottime,
    /// Why it is held no more. No later validity takes this back.
    pub(in crate::command) end: Option<End>,
}

/// Why a hold ended without a word of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) enum End {
    /// The lock was lost, with the reason.
    Lost(String),
    /// `--max-hold` was reached.
    MaxHold,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "it was lost: {why}"),
            Self::MaxHold => f.write_str("it was held for as long as it may be"),
        }
    }
}

/// Why a lock is not held.
#[derive(Debug)]
pub(in crate::command) enum NotHeld {
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

/// Where the remaining validity comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Source {
    /// From the members, counted on this machine's clock from before the question.
    Members,
    /// From `status.validUntil`, less this.
    Status { skew: Duration },
    /// From an outer `run` or an agent, which had so much left.
    Outer { left: Duration },
}

/// A lock that is held and renewed.
pub(in crate::command) struct Held {
    pub(in crate::command) lock: String,
    pub(in crate::command) token: i64,
    pub(in crate::command) holder: String,
    pub(in crate::command) validity: watch::Receiver<Validity>,
    pub(in crate::command) source: Source,
    pub(in crate::command) keeper: Keeper,
}

/// What renews the hold.
pub(in crate::command) enum Keeper {
    Direct(DirectHold),
    Claim(Box<ClaimHold>),
    /// An agent or an outer `run`, which is told when the lock is not needed any more.
    Outside {
        task: AbortOnDropHandle<()>,
        release: BoxFuture<'static, anyhow::Result<()>>,
    },
}

impl Held {
    /// Gives the lock back.
    ///
    /// # Errors
    /// If it is not certain that it is free; the message says when it will be.
    pub(in crate::command) async fn release(self) -> anyhow::Result<()> {
        match self.keeper {
            Keeper::Direct(hold) => hold.release_and_close().await,
            keeper => Self { keeper, ..self }.release_one().await,
        }
    }

    /// Gives the lock back, and keeps the way to others.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub(in crate::command) async fn release_one(self) -> anyhow::Result<()> {
        match self.keeper {
            Keeper::Direct(hold) => hold.release().await,
            Keeper::Claim(hold) => hold.release().await,
            Keeper::Outside { task, release } => {
                task.abort();
                release.await
            }
        }
    }

    /// Waits until the lock is lost.
    pub(in crate::command) async fn lost(&mut self) -> End {
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

/// Tokio's clock stands still while the machine is suspended.
pub(in crate::command) const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What is kept back of a validity, for an application to hear that it has ended, or to be killed.
pub(in crate::command) fn reserve(ttl: Duration) -> Duration {
    (ttl / 20).clamp(LEAST_RESERVE, MOST_RESERVE)
}
