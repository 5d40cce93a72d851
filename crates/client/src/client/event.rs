//! Events of a client's locks, for metrics and logs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::error::{LossCause, NotAcquired};
use crate::redlock::{FencingToken, LockKey, MemberError, MemberName};

/// An event of a lock or a member of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An attempt was granted.
    Acquired {
        /// The lock's key.
        key: &'a LockKey,
        /// The fencing token, or zero if the client uses no tokens.
        token: FencingToken,
        /// Time from the first request to the decision.
        took: Duration,
        /// Time from the call to the first request of this attempt, in the queue and in earlier attempts.
        waited: Duration,
    },
    /// An attempt was not granted.
    NotAcquired {
        /// The lock's key.
        key: &'a LockKey,
        /// The reason.
        error: &'a NotAcquired,
        /// Time from the first request to the decision.
        took: Duration,
    },
    /// A lock with a guard was renewed.
    Renewed {
        /// The lock's key.
        key: &'a LockKey,
    },
    /// A lock with a guard was lost.
    Lost {
        /// The lock's key.
        key: &'a LockKey,
        /// The reason.
        cause: LossCause,
    },
    /// A lock with a guard was released, by its holder or by the end of the client.
    Released {
        /// The lock's key.
        key: &'a LockKey,
        /// Time since its acquisition began.
        held: Duration,
    },
    /// The state of a member changed, or is observed for the first time.
    Member {
        /// Name of the member.
        member: &'a MemberName,
        /// The new state.
        state: MemberState<'a>,
    },
}

/// The state of a member for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState<'a> {
    /// The member votes.
    Voting,
    /// The member is connected, but its process is not admitted yet.
    Waiting,
    /// The member is not connected, or its operator does not admit clients yet.
    Down(&'a MemberError),
}

type Observe = dyn Fn(Event<'_>) + Send + Sync;

/// The receiver of events.
///
/// The default has no callback, and does nothing.
#[derive(Clone, Default)]
pub(super) struct Observer(Option<Arc<Observe>>);

impl Observer {
    pub(super) fn new(observe: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Makes an event only if there is a callback.
    ///
    /// It catches a panic of the callback, because the task of all renewals calls it.
    pub(super) fn notify<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(observe) = &self.0
            && catch_unwind(AssertUnwindSafe(|| observe(event()))).is_err()
        {
            tracing::error!("the callback of Builder::on_event has panicked");
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}
