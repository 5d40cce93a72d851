use super::error::{Lost, Release};
use super::keeper::Hold;
use super::{Held, Inner};
use crate::redlock::{FencingToken, LockKey};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A lock that is held. It is renewed in the background for as long as the guard lives, and released when the guard is dropped.
///
/// A guard is `Send + 'static`: it can move into a task. Forgetting it ([`std::mem::forget`]) keeps the lock until the client is
/// closed.
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

    /// The lock's key, that of the slot where the lock has slots.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.hold.key
    }

    /// The fencing token: greater than that of every earlier holder of the key. Zero without tokens.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// How long the lock is certainly held from now on if it is not renewed any more. It is counted on a clock that runs on while the
    /// machine is suspended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.client.remaining(&self.hold)
    }

    /// Whether the lock is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(super) fn parts(&self) -> (Arc<Inner>, Arc<Hold>) {
        (Arc::clone(&self.client), Arc::clone(&self.hold))
    }

    /// Resolves when the lock is lost, or the margin before its validity ends.
    ///
    /// # Cancel safety
    /// It changes nothing, so it can be dropped and called again.
    pub async fn lost(&self) -> Lost {
        self.hold.lost(self.client.clock(), self.client.margin()).await
    }

    /// Runs a future for as long as the lock is held, and drops it before the validity ends. The lock is kept.
    ///
    /// # Errors
    /// If the lock was lost first; the future was dropped where it stood.
    ///
    /// # Cancel safety
    /// As that of the future.
    pub async fn run_while_held<T>(&self, future: impl Future<Output = T>) -> Result<T, Lost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = future => Ok(output),
        }
    }

    /// Ends the renewals and leaves the key, so that nobody gets the lock before `least` has passed since it was acquired: for a job that
    /// several machines start at nearly the same time, and that one of them runs. The key runs out then, or with its time to live if
    /// that is later. It is kept no longer than the client may lock. Without anything left of `least` the lock is released.
    ///
    /// # Errors
    /// If the lock was lost, or no majority has confirmed that it keeps the key for so long.
    ///
    /// # Cancel safety
    /// The key runs out at the latest when it would have after a call that was not dropped.
    pub async fn leave(mut self, least: Duration) -> Result<(), Lost> {
        self.is_released = true;
        let (client, hold) = (Arc::clone(&self.client), Arc::clone(&self.hold));
        drop(self);
        client.leave(&hold, least).await
    }

    /// Takes the lock out of the guard: nothing renews or releases it then.
    pub fn into_held(mut self) -> Held {
        self.is_released = true;
        self.client.forget(&self.hold);
        Held { key: self.hold.key.clone(), value: self.hold.value.clone(), token: self.hold.token }
    }

    /// Releases the lock. Returns when a majority has confirmed, so that another holder can be granted; the other members delete the
    /// key when they can.
    ///
    /// # Cancel safety
    /// The release is on its way as soon as this is called and polled once, also when the future is dropped then; dropped before, the
    /// guard's drop releases.
    pub async fn release(mut self) -> Release {
        self.is_released = true;
        let (client, hold) = (Arc::clone(&self.client), Arc::clone(&self.hold));
        drop(self);
        client.end(&hold).await
    }
}

impl Drop for Guard {
    /// Sends the release and waits for nothing.
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
