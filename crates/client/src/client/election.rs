//! Leader election: campaign for a key, lead while it is held, step down, and campaign again.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::error::NotAcquired;
use super::guard::Guard;
use super::lock::Lock;
use super::renewer::Hold;
use super::{Client, Inner};
use crate::redlock::{FencingToken, LockKey};

/// An election among all clients that campaign for the same key.
///
/// At most one of them leads at a time.
///
/// ```
/// # #[cfg(feature = "test-util")]
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
/// use redlock_client::test_util::FakeMembers;
/// use redlock_client::Client;
/// use std::ops::ControlFlow;
/// use std::time::Duration;
///
/// let members = FakeMembers::start(3);
/// let client = Client::builder(members.urls()).admit_at_once().connect_on(members.machine()).await.unwrap();
/// let election = client.election("controller").ttl(Duration::from_secs(10));
/// let mut terms = 0;
/// let result = election.run(|leader| {
///     terms += 1;
///     let terms = terms;
///     async move {
///         // Write with leader.token(). The future is dropped before the leadership can end.
///         assert!(leader.is_leading());
///         if terms < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break("done") }
///     }
/// });
/// assert_eq!(result.await, Ok("done"));
/// # });
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing before `campaign` or `run`"]
pub struct Election {
    lock: Lock,
    /// The pause after a term that ended by choice.
    rest: Duration,
}

impl Election {
    pub(super) fn new(client: &Client, key: LockKey) -> Self {
        Self { lock: client.lock(key).wait(Duration::MAX), rest: client.0.settings.retry.saturating_mul(2) }
    }

    /// The time after which a dead leader is replaced.
    ///
    /// The default is [`super::Builder::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Waits until this client leads.
    ///
    /// The guard is the leadership. To step down, release the guard.
    ///
    /// # Errors
    /// If waiting cannot help, because the key or the time to live is refused, or the client is closed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the campaign.
    pub async fn campaign(&self) -> Result<Guard, NotAcquired> {
        self.lock.clone().acquire().await
    }

    /// Campaigns, and runs `term` for as long as this client leads.
    ///
    /// After a loss it drops the future of the term and campaigns again.
    ///
    /// A term that returns [`ControlFlow::Continue`] steps down. The next campaign begins after two pauses of [`super::Builder::retry`],
    /// so that another client can be elected first. A term that returns [`ControlFlow::Break`] steps down and ends the run.
    ///
    /// # Errors
    /// As [`Election::campaign`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the future of the term, and steps down.
    pub async fn run<T, F>(&self, mut term: impl FnMut(Leadership) -> F) -> Result<T, NotAcquired>
    where
        F: Future<Output = ControlFlow<T>>,
    {
        loop {
            let guard = self.campaign().await?;
            let (client, hold) = guard.handles();
            let ended = guard.run_while_held(term(Leadership { client, hold })).await;
            let _ = guard.release().await;
            match ended {
                Ok(ControlFlow::Break(output)) => return Ok(output),
                Ok(ControlFlow::Continue(())) => sleep(self.rest).await,
                Err(_) => {}
            }
        }
    }
}

/// A handle of the leadership, for the code of one term.
///
/// The lock ends with the term, even if a clone of the handle lives longer.
#[derive(Clone)]
pub struct Leadership {
    client: Arc<Inner>,
    hold: Arc<Hold>,
}

impl Leadership {
    /// The fencing token of this term, greater than that of every earlier leader.
    ///
    /// It is zero if the client uses no tokens.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.hold.token
    }

    /// The time for which this client certainly leads, if nothing renews the lock.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.client.remaining(&self.hold)
    }

    /// Returns true if this client leads now.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        !self.remaining().is_zero()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("token", &self.token()).finish_non_exhaustive()
    }
}
