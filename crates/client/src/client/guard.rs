//! A held lock that is renewed in the background and released on drop.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Lost, Release};
use super::local_queue::Turn;
use super::renewer::Hold;
use super::{Held, Inner};
use crate::redlock::{FencingToken, LockKey};

/// A held lock, which is renewed in the background, and released when the guard is dropped.
///
/// A guard is `Send + 'static`: it can move into a task. Forgetting it ([`std::mem::forget`]) keeps the lock until the
/// client is closed.
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    client: Arc<Inner>,
    hold: Arc<Hold>,
    is_released: bool,
}

impl Guard {
    pub(super) const fn new(client: Arc<Inner>, hold: Arc<Hold>) -> Self {
        Self { client, hold, is_released: false }
    }

    /// The lock's key, or the key of its slot.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.hold.key
    }

    /// The fencing token, greater than that of every earlier holder of the key.
    ///
    /// It is zero if the client uses no tokens.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// The time for which the lock is certainly held without another renewal.
    ///
    /// It is measured on a clock that also runs in suspend.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.client.remaining(&self.hold)
    }

    /// Returns true if the lock is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Keeps the caller's turn in the client's queue until the hold ends.
    pub(super) fn keep_turn(&self, turn: Turn) {
        self.hold.keep_turn(turn);
    }

    pub(super) fn handles(&self) -> (Arc<Inner>, Arc<Hold>) {
        (Arc::clone(&self.client), Arc::clone(&self.hold))
    }

    /// Resolves when the lock is lost, or the margin before the end of its validity.
    ///
    /// # Cancel safety
    /// It changes nothing, so it can be dropped and called again.
    pub async fn lost(&self) -> Lost {
        self.hold.lost(&*self.client.clock, self.client.settings.margin).await
    }

    /// Runs a future while the lock is held, and drops it before the validity ends.
    ///
    /// The guard keeps the lock.
    ///
    /// # Errors
    /// If the lock was lost first. Then the future was dropped before its end.
    ///
    /// # Cancel safety
    /// The same as that of the future.
    pub async fn run_while_held<T>(&self, future: impl Future<Output = T>) -> Result<T, Lost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Ends the renewals, and keeps the key until `least` has passed since the acquisition.
    ///
    /// No other client gets the lock before.
    ///
    /// It is for a job that several machines start at nearly the same time, and that one of them runs. The key expires
    /// at that time or up to the drift later, or after its time to live if that is later, and at most after the client's
    /// maximum. If `least` has passed, the lock is released.
    ///
    /// # Errors
    /// If the lock was lost, or no majority has confirmed the time to live.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key expires no later than after a complete call.
    pub async fn leave(mut self, least: Duration) -> Result<(), Lost> {
        self.is_released = true;
        let (client, hold) = (Arc::clone(&self.client), Arc::clone(&self.hold));
        drop(self);
        client.leave(&hold, least).await
    }

    /// Takes the lock out of the guard, so that nothing renews or releases it.
    pub fn into_held(mut self) -> Held {
        self.is_released = true;
        self.client.forget(&self.hold);
        Held { key: self.hold.key.clone(), value: self.hold.value.clone(), token: self.hold.token }
    }

    /// Releases the lock, and returns when a majority has confirmed, so that another client can acquire it.
    ///
    /// The other members delete the key later.
    ///
    /// # Cancel safety
    /// After the first poll the release is in all queues, even if the future is dropped. If it is dropped earlier, the guard itself sends the
    /// release.
    pub async fn release(mut self) -> Release {
        self.is_released = true;
        let (client, hold) = (Arc::clone(&self.client), Arc::clone(&self.hold));
        drop(self);
        client.end(&hold).await
    }
}

impl Drop for Guard {
    /// Sends the release without waiting.
    fn drop(&mut self) {
        if !self.is_released {
            self.client.end_soon(&self.hold);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("key", self.key()).field("token", &self.token()).finish_non_exhaustive()
    }
}
