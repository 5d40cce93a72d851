use super::{FencingToken, RunId};
use crate::time::{Boottime, UnixMicros};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future, the same type as `futures::future::BoxFuture`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
    pub replies: Replies,
}

/// Answers to commands, in their order. That of a single command, which most requests are, takes no memory of its own.
#[derive(Clone, Debug)]
pub struct Replies(Count);

#[derive(Clone, Debug)]
enum Count {
    One(Reply),
    Many(Vec<Reply>),
}

impl From<Reply> for Replies {
    fn from(reply: Reply) -> Self {
        Self(Count::One(reply))
    }
}

impl From<Vec<Reply>> for Replies {
    fn from(replies: Vec<Reply>) -> Self {
        Self(Count::Many(replies))
    }
}

impl Replies {
    /// The first, if there is one.
    #[must_use]
    pub fn into_first(self) -> Option<Reply> {
        match self.0 {
            Count::One(reply) => Some(reply),
            Count::Many(replies) => replies.into_iter().next(),
        }
    }
}

impl Deref for Replies {
    type Target = [Reply];

    fn deref(&self) -> &[Reply] {
        match &self.0 {
            Count::One(reply) => std::slice::from_ref(reply),
            Count::Many(replies) => replies,
        }
    }
}

impl PartialEq for Replies {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Replies {}

impl<const N: usize> PartialEq<[Reply; N]> for Replies {
    fn eq(&self, other: &[Reply; N]) -> bool {
        **self == *other
    }
}

/// The answer to one [`Command`](super::Command).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acquire: the key is set.
    Acquired {
        /// The member's counter, raised; zero if no number was to be taken.
        token: FencingToken,
        /// The member's clock, where it may be asked.
        time: Option<UnixMicros>,
    },
    /// Acquire: the key exists. Extend: the key does not hold the value.
    Refused {
        /// What is on the key instead.
        holder: KeyState,
        /// The member's clock, where it may be asked.
        time: Option<UnixMicros>,
    },
    /// Extend: the key lives for at least the time asked for.
    Extended {
        /// The member's clock, where it may be asked.
        time: Option<UnixMicros>,
    },
    /// RaiseCounter: the counter is at least the token, and the key holds the value. Restore: the counter is.
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
    /// Announce: so many connections listen.
    Announced(u64),
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
        /// The name that `TYPE` gives; empty where a client may not ask what it is.
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

/// Why a server can hold no locks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It watches masters and holds no keys.
    #[error("this is a Sentinel, which holds no locks: name the master, with the port of its own")]
    Sentinel,
    /// Each master of a cluster has other keys.
    #[error("this is a node of a Redis Cluster: locks need masters that are independent of each other")]
    Cluster,
    /// It follows a master.
    #[error("this is a replica: name its master, or end the replication")]
    Replica,
    /// Below 7.0.
    #[error("this is Redis {0}: locks need 7.0 or later")]
    Old(String),
    /// It deletes keys when its memory is full, and gives a lock to a second holder then.
    #[error("it evicts keys when its memory is full (maxmemory-policy {0}): set noeviction")]
    Evicts(String),
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
    /// The process asks for a password, and none was given.
    #[error("a password is needed: write user:password@ before the host of its URL")]
    NoPassword,
    /// The server can hold no locks.
    #[error("{0}")]
    Unfit(Unfit),
    /// The server does not know a command that locking needs.
    #[error("the server does not know a command that locking needs: is it a proxy?")]
    UnknownCommand,
    /// The key of the counter of tokens holds something else.
    #[error("the key #token holds no number: delete it on this member")]
    NoCounter,
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
    /// The user may not take numbers of the counter, so there is no token.
    #[error("the user may not INCR the counter of tokens")]
    TokenRefused,
    /// The counter is so far ahead, of the clock or of all that there is, that its number is not counted.
    #[error("the counter of tokens is too far ahead to count")]
    CounterSpent,
    /// Anything else, by error code.
    #[error("{0}")]
    Other(String),
}

impl MemberError {
    /// Whether the server has to be replaced or set up otherwise before it can vote.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Unfit(_) | Self::NoPassword | Self::UnknownCommand)
    }
}
