//! The end of a client, which waits for its attempts.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::error::NotAcquired;

/// The closed flag of a client, and the number of its attempts in progress.
#[derive(Default)]
pub(super) struct Closing {
    is_closed: watch::Sender<bool>,
    attempts: AtomicUsize,
}

/// An attempt, from before its first request until its lock is held or released.
#[must_use]
pub(super) struct AttemptInProgress<'a>(&'a Closing);

impl Closing {
    /// Begins an attempt.
    ///
    /// The attempt is counted before the check, so [`Closing::close`] either refuses it or counts it.
    pub(super) fn begin(&self) -> Result<AttemptInProgress<'_>, NotAcquired> {
        self.attempts.fetch_add(1, Ordering::AcqRel);
        let attempt = AttemptInProgress(self);
        if self.is_closed() { Err(NotAcquired::Closed) } else { Ok(attempt) }
    }

    pub(super) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Resolves when the client is closed.
    pub(super) async fn closed(&self) {
        // The only error is a dropped sender, which `self` keeps.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
    }

    pub(super) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Acquire)
    }
}

impl Drop for AttemptInProgress<'_> {
    fn drop(&mut self) {
        self.0.attempts.fetch_sub(1, Ordering::AcqRel);
    }
}
