//! The answers of members to commands, and the errors of members.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use super::{FencingToken, RunId};
use crate::time::{Boottime, UnixMicros};

/// A boxed future, the same type as `futures::future::BoxFuture`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The answers to one `send`, from one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The process that answered.
    pub run_id: RunId,
    /// The time before the commands were written.
    pub sent: Boottime,
    /// The time after the answers were read.
    pub received: Boottime,
    /// One reply per command, in the order of the commands.
    pub replies: Replies,
}

/// Answers to commands, in their order.
///
/// Most requests are a single command, and its answer needs no allocation.
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

/// The answer to one [`Command`](super::Command).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Acquire: the key is set.
    Acquired {
        /// The raised counter of the member, or zero if the request takes no number.
        token: FencingToken,
        /// The member's clock, if the user has permission to read it.
        time: Option<UnixMicros>,
    },
    /// Acquire: the key exists.
    ///
    /// Extend: the key does not hold the value.
    Refused {
        /// The content of the key.
        holder: KeyState,
        /// The member's clock, if the user has permission to read it.
        time: Option<UnixMicros>,
    },
    /// Extend: the key lives at least for the requested time.
    Extended {
        /// The member's clock, if the user has permission to read it.
        time: Option<UnixMicros>,
    },
    /// RaiseCounter: the counter is at least the token, and the key holds the value.
    ///
    /// Restore: the counter is at least the token.
    Raised,
    /// Seal: the key holds the sealed value.
    Sealed {
        /// Its time to live.
        remaining: Duration,
    },
    /// RaiseCounter, Seal: the key holds something else, or nothing.
    NotOurs,
    /// Repair: true if the key was set.
    ///
    /// Release: true if it was deleted.
    Done(bool),
    /// Announce: the number of connections that received it.
    Announced(u64),
    /// Inspect: the content of the key.
    State(KeyState),
    /// This command alone failed.
    Failed(MemberError),
}

/// The content of a key on one member.
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
        ///
        /// It is empty where the user has no permission for `TYPE`.
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

/// A value that was read from a member.
///
/// It is another client's secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoredValue(String);

impl StoredValue {
    /// Wraps the text that was read.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value, for comparison.
    ///
    /// Never log it.
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

/// The reason why a server can hold no locks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The server watches masters and holds no keys.
    #[error("this is a Sentinel, which holds no locks: name the master, with the port of its own")]
    Sentinel,
    /// Each master of a cluster has other keys.
    #[error("this is a node of a Redis Cluster: locks need masters that are independent of each other")]
    Cluster,
    /// The server follows a master.
    #[error("this is a replica: name its master, or end the replication")]
    Replica,
    /// The version is below 7.0.
    #[error("this is Redis {0}: locks need 7.0 or later")]
    Old(String),
    /// The server deletes keys when its memory is full, and would give a lock to a second holder then.
    #[error("it evicts keys when its memory is full (maxmemory-policy {0}): set noeviction")]
    Evicts(String),
}

/// The reason why a member did not execute a request.
///
/// It contains no key, value or password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// No connection, or the connection broke: the member has perhaps executed the commands.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The process refuses this password.
    ///
    /// It is alive, and received nothing else.
    #[error("the password is refused")]
    Refused,
    /// The process requires a password, and the client has none.
    #[error("a password is needed: write user:password@ before the host of its URL")]
    NoPassword,
    /// The server can hold no locks.
    #[error("{0}")]
    Unfit(Unfit),
    /// The server lacks a command that locking needs.
    #[error("the server lacks a command that locking needs: is it a proxy?")]
    UnknownCommand,
    /// The key of the token counter holds something else.
    #[error("the key #token holds no number: delete it on this member")]
    NoCounter,
    /// TLS failed, or the certificate is refused.
    ///
    /// The member received nothing.
    #[error("TLS: {0}")]
    Untrusted(String),
    /// No answer in time: the member can still execute the commands.
    #[error("no answer in time")]
    TimedOut,
    /// NOPERM: the member is fenced, or the membership epoch of this user has ended.
    #[error("fenced: the user has no right to run this command")]
    Fenced,
    /// BUSY: a script is running for too long.
    ///
    /// The process is alive.
    #[error("busy with a script")]
    Busy,
    /// LOADING.
    ///
    /// The process is alive.
    #[error("loading its data")]
    Loading,
    /// OOM: `maxmemory` is reached.
    #[error("out of memory")]
    OutOfMemory,
    /// The user has no permission to INCR the counter, so there is no token.
    #[error("the user has no right to INCR the counter of tokens")]
    TokenRefused,
    /// The counter is too far ahead of the clock or too near to its end, so its number is invalid.
    #[error("the counter of tokens is too far ahead to count")]
    CounterSpent,
    /// Anything else, by error code.
    #[error("{0}")]
    Other(String),
}

impl MemberError {
    /// The error of a connection that has ended.
    pub(crate) fn closed() -> Self {
        Self::Unreachable("connection closed".to_owned())
    }

    /// The error of a reply that no command has.
    pub(crate) fn unexpected() -> Self {
        Self::Other("unexpected answer".to_owned())
    }

    /// Returns true if the server cannot vote before it is replaced or reconfigured.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Unfit(_) | Self::NoPassword | Self::UnknownCommand)
    }
}
