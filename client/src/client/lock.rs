//! What to lock, and for how long.

use super::error::NotAcquired;
use super::guard::Guard;
use super::{Client, whole_millis};
use crate::redlock::{LockKey, LockValue};
use std::time::Duration;
use tokio::time::timeout;

/// A lock that is to be taken. A clone of it is taken later.
#[derive(Clone, Debug)]
#[must_use = "nothing is locked before `acquire` or `try_acquire`"]
pub struct Lock {
    client: Client,
    key: LockKey,
    ttl: Duration,
    wait: Duration,
}

impl Lock {
    pub(super) const fn new(client: Client, key: LockKey, ttl: Duration, wait: Duration) -> Self {
        Self { client, key, ttl, wait }
    }

    /// How long the lock lives on when its holder is gone: what [`super::Builder::ttl`] says, unless this is called. A guard renews it.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`Lock::acquire`] waits at most: what [`super::Builder::wait`] says, unless this is called.
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Tries once: one round trip to a majority.
    ///
    /// # Errors
    /// Why the lock is not held. Nothing of the attempt is left on the members.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken.
    pub async fn try_acquire(self) -> Result<Guard, NotAcquired> {
        let (key, value, ttl) = (self.key, LockValue::random(), whole_millis(self.ttl));
        let (grant, _under_way) = self.client.0.attempt(&key, &value, ttl, Duration::ZERO).await?;
        self.client.guard((key, value, ttl), &grant, None)
    }

    /// Tries until the lock is held or the wait has passed. Those who wait for a key with the same client are served in order, and only
    /// the first of them asks the members. Clients tell each other by way of the members who waits, and the client that has released lets
    /// the others go first; the order between clients is not promised.
    ///
    /// # Errors
    /// Why the last attempt failed, when the wait has passed; at once for what waiting does not change.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken, and gives up the place in the line.
    pub async fn acquire(self) -> Result<Guard, NotAcquired> {
        let (key, ttl, inner) = (self.key, whole_millis(self.ttl), &self.client.0);
        let begun = inner.clock.boottime();
        let turn = tokio::select! {
            biased;
            () = inner.closing.closed() => return Err(NotAcquired::Closed),
            turn = timeout(self.wait, inner.lines.wait(&key)) => turn,
        };
        let Ok(turn) = turn else { return Err(NotAcquired::HeldByOther { refusals: 0, longest: None }) };
        let (value, (grant, _under_way)) = inner.attempts(&key, ttl, (begun, begun + self.wait)).await?;
        self.client.guard((key, value, ttl), &grant, Some(turn))
    }
}
