//! What happens to a client's locks, for metrics and logs.

use super::error::{LossCause, NotAcquired};
use crate::redlock::{FencingToken, LockKey, MemberError, MemberName};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Something that has happened to a lock of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An attempt was granted.
    Acquired {
        /// The lock's key.
        key: &'a LockKey,
        /// Zero without tokens.
        token: FencingToken,
        /// From the first request to the decision.
        took: Duration,
        /// From the call to the first request of this attempt: the line, and earlier attempts.
        waited: Duration,
    },
    /// An attempt was not granted.
    NotAcquired {
        /// The lock's key.
        key: &'a LockKey,
        /// Why.
        error: &'a NotAcquired,
        /// From the first request to the decision.
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
        /// Why.
        cause: LossCause,
    },
    /// A lock with a guard was given back, by its holder or by the end of the client.
    Released {
        /// The lock's key.
        key: &'a LockKey,
        /// Since its acquisition began.
        held: Duration,
    },
    /// The state of a member changed, or is observed for the first time.
    Member {
        /// Name of the member.
        member: &'a MemberName,
        /// Its state from now on.
        state: MemberState<'a>,
    },
}

/// Whether a member can vote for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberState<'a> {
    /// It votes.
    Voting,
    /// It is reached, and its process is not admitted yet.
    Waiting,
    /// It is not reached, or its operator does not let clients in yet.
    Down(&'a MemberError),
}

type Observe = dyn Fn(Event<'_>) + Send + Sync;

/// Who is told of events. Nobody by default.
#[derive(Clone, Default)]
pub(super) struct Observer(Option<Arc<Observe>>);

impl Observer {
    pub(super) fn new(observe: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Nothing is made of an event that nobody hears of. A callback that panics ends nothing: it is called by the task of all renewals.
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
