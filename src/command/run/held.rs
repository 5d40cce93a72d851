//! A lock that this process holds, wherever it comes from.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::claim::ClaimHold;
use super::direct::DirectHold;
use super::limits::Source;
use crate::time::{Boottime, Clock, SystemClock};

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

/// Why a lock is not held.
#[derive(Debug)]
pub(in crate::command) enum NotHeld {
    /// It is taken, or was not granted in time.
    NotAcquired(String),
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

/// A lock that is held and renewed.
pub(in crate::command) struct Held {
    pub(in crate::command) lock: String,
    pub(in crate::command) token: i64,
    pub(in crate::command) holder: String,
    pub(in crate::command) validity: watch::Receiver<Validity>,
    pub(super) source: Source,
    pub(super) keeper: Keeper,
}

/// What renews the hold.
pub(super) enum Keeper {
    Direct(DirectHold),
    Claim(Box<ClaimHold>),
    /// An outer `run`.
    Outer(JoinHandle<()>),
}

impl Held {
    /// Gives the lock back.
    ///
    /// # Errors
    /// If it is not certain that it is free; the message says when it will be.
    pub(in crate::command) async fn release(self) -> anyhow::Result<()> {
        match self.keeper {
            Keeper::Direct(hold) => hold.release().await,
            Keeper::Claim(hold) => hold.release().await,
            Keeper::Outer(task) => {
                task.abort();
                Ok(())
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
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(250);
