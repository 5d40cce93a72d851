use super::{FencingToken, LockKey, LockValue, MemberName, RunId};
use crate::time::{Boottime, UnixMicros};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future, the same type as `futures::future::BoxFuture`, so that this trait needs no feature.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One Redis master as the engine sees it.
pub trait LockMember: Send + Sync {
    /// Its name in the member list.
    fn name(&self) -> &MemberName;

    /// Enqueues the commands, as one pipeline, before it returns: members execute them in the order of these calls,
    /// even if the future is dropped or never polled. So no release overtakes the `SET` that it belongs to, which would
    /// leave the key behind. A member without a connection fails at once and keeps nothing for later (a late `SET`
    /// would take the lock for nobody), except that it may deliver releases later: those are harmless at any time.
    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>>;
}

/// What a member is asked to do, each one script (`src/redis_member/scripts`). All durations are whole milliseconds on
/// the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Set the key if it does not exist (`SET key value NX PX ttl`) and take the next token: counter = max(counter,
    /// hint) + 1.
    Acquire {
        /// The lock's key.
        key: LockKey,
        /// A fresh value.
        value: LockValue,
        /// Time to live.
        ttl: Duration,
        /// The highest token that the caller has seen; refused when it is above the counter by more than 2^32.
        hint: FencingToken,
    },
    /// Write a token back: counter = max(counter, token). Counts only where the key still holds the value, otherwise
    /// two majorities that share a member could be given the same token (docs/algorithm.md).
    RaiseCounter {
        /// The lock's key.
        key: LockKey,
        /// The value of this attempt.
        value: LockValue,
        /// The token of this attempt.
        token: FencingToken,
    },
    /// `PEXPIRE key ttl GT` where the key holds the value: never shortens.
    Extend {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// Time to live from now on.
        ttl: Duration,
    },
    /// Set the key again where it is missing. Never a vote.
    Repair {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// The longest time to live; shortened to what is left until `not_after`.
        px: Duration,
        /// In the member's own time: a repair that arrives later does nothing.
        not_after: UnixMicros,
    },
    /// Replace the value by the sealed one and keep the time to live, plus `lock_delay`; nothing changes if already
    /// sealed.
    Seal {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// What it is replaced by.
        sealed: LockValue,
        /// Added to the time to live, once.
        lock_delay: Duration,
    },
    /// Delete the key if it holds the value (or sealed value, when given that).
    Release {
        /// The lock's key.
        key: LockKey,
        /// Compared first.
        value: LockValue,
    },
    /// Read what is on the key.
    Inspect {
        /// The lock's key.
        key: LockKey,
    },
}

/// The answers to one `send`, from one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The process that answered.
    pub run_id: RunId,
    /// Before the commands were written.
    pub sent: Boottime,
    /// After the answers were read.
    pub received: Boottime,
    /// One per command, in their order.
    pub replies: Vec<Reply>,
}

/// The answer to one [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acquire: the key is set.
    Acquired {
        /// The member's counter, raised.
        token: FencingToken,
        /// The member's clock.
        time: UnixMicros,
    },
    /// Acquire: the key exists. Extend: the key does not hold the value.
    Refused {
        /// What is on the key instead.
        holder: KeyState,
        /// The member's clock.
        time: UnixMicros,
    },
    /// Extend: the key lives for at least the time asked for.
    Extended {
        /// The member's clock.
        time: UnixMicros,
    },
    /// RaiseCounter: the counter is at least the token, and the key holds the value.
    Raised,
    /// Seal: the key holds the sealed value.
    Sealed {
        /// Its time to live.
        remaining: Duration,
    },
    /// RaiseCounter, Seal: the key holds something else, or nothing.
    NotOurs,
    /// Repair: whether the key was set. Release: whether it was deleted.
    Done(bool),
    /// Inspect.
    State(KeyState),
    /// This command alone failed.
    Failed(MemberError),
}

/// What a member has on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing.
    Missing,
    /// A string, as Redlock clients set it (and the old SETNX/GETSET pattern, with a timestamp).
    String {
        /// The value, at most its first 128 bytes.
        value: StoredValue,
        /// Time to live; `None` if the key has none.
        remaining: Option<Duration>,
    },
    /// Another type, for example `hash` (Redisson).
    OtherType {
        /// The name that `TYPE` gives.
        name: String,
        /// Time to live; `None` if the key has none.
        remaining: Option<Duration>,
    },
}

impl KeyState {
    /// Time to live of a key that exists and has one.
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Missing => None,
            Self::String { remaining, .. } | Self::OtherType { remaining, .. } => *remaining,
        }
    }
}

/// A value read off a member: another client's secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoredValue(String);

impl StoredValue {
    /// As read.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// To recognise it with, not to show it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredValue(..)")
    }
}

/// Why a member did not do what it was asked. Contains no key, value or password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// No connection, or the connection broke: the commands may or may not have been executed.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The process does not know this password. It is alive, and nothing else was sent to it.
    #[error("the password is refused")]
    Refused,
    /// TLS failed, or the certificate is refused: nothing was sent.
    #[error("TLS: {0}")]
    Untrusted(String),
    /// No answer in time: the commands may still be executed.
    #[error("no answer in time")]
    TimedOut,
    /// NOPERM: the member is fenced, or this user's membership epoch is over.
    #[error("fenced: the user may not run this command")]
    Fenced,
    /// BUSY: a script is running for too long. The process is alive.
    #[error("busy with a script")]
    Busy,
    /// LOADING. The process is alive.
    #[error("loading its data")]
    Loading,
    /// OOM: `maxmemory` is reached.
    #[error("out of memory")]
    OutOfMemory,
    /// The token hint is above the member's counter by more than 2^32.
    #[error("the token hint is too far above the member's counter")]
    HintTooLarge,
    /// Anything else, by error code.
    #[error("{0}")]
    Other(String),
}
