//! The trait of a member, and the commands that members execute.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::answers::{Answers, BoxFuture, MemberError};
use super::round_answers::{AnswerSlot, Expiry};
use super::{FencingToken, LockKey, LockValue, MemberName};
use crate::time::UnixMicros;

/// A Redis master, as the engine uses it.
pub trait LockMember: Send + Sync {
    /// Its name in the member list.
    fn name(&self) -> &MemberName;

    /// Enqueues the commands as one pipeline before it returns.
    ///
    /// Members execute commands in the order of these calls, even if the future is dropped or never polled. So no
    /// release overtakes its `SET`, which would leave the key behind.
    ///
    /// A member without a connection fails at once and keeps nothing for later, because a late `SET` would take the
    /// lock for no holder. It can deliver releases later, since those are harmless at any time.
    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>>;

    /// Enqueues the commands as [`LockMember::send`] does, and puts the answer into `slot`.
    ///
    /// The member can delay the request until [`LockMember::flush`].
    fn submit(&self, commands: &Arc<[Command]>, slot: AnswerSlot) {
        slot.answer_later(self.send(commands.to_vec()));
    }

    /// Takes over the wake of a round at its deadline, which saves a timer.
    ///
    /// If it returns `false`, the round uses its own timer.
    fn watch(&self, deadline: Instant, expiry: &Expiry) -> bool {
        let _ = (deadline, expiry);
        false
    }

    /// Sends all submitted requests, to this member and to those that share its task.
    fn flush(&self) {}
}

/// A request to a member.
///
/// Each is a script (`src/voting/scripts`), and votes are also plain commands. All durations are whole milliseconds on
/// the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Set the key if it does not exist, and take the next number of the counter.
    ///
    /// As a plain command it is `SET key value NX PX ttl`.
    Acquire {
        /// The lock's key.
        key: LockKey,
        /// A fresh value.
        value: LockValue,
        /// Time to live.
        ttl: Duration,
        /// Whether the vote takes a number.
        token: bool,
        /// The last moment of the attempt, on the member's clock. A later request sets nothing.
        ///
        /// With it the vote is a script.
        not_after: Option<UnixMicros>,
    },
    /// Write a token back: counter = max(counter, token).
    ///
    /// A confirmation is valid only where the key still holds the value. Otherwise two majorities that share a member
    /// could get the same token (docs/dev/algorithm.md).
    RaiseCounter {
        /// The lock's key.
        key: LockKey,
        /// The value of this attempt.
        value: LockValue,
        /// The token of this attempt.
        token: FencingToken,
        /// The difference to the member's number.
        ///
        /// Without a script the client raises the counter by this number of INCRs.
        behind: u32,
    },
    /// `PEXPIRE key ttl GT` if the key holds the value. It never shortens the time to live.
    Extend {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// The new time to live.
        ttl: Duration,
    },
    /// Set the key again where it is missing.
    ///
    /// Never a vote.
    Repair {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// Maximum time to live.
        ///
        /// It is shortened to the time that remains until `until`.
        px: Duration,
        /// The end of the key, on the member's clock.
        until: UnixMicros,
        /// The last moment of the repair, on the member's clock. A later request sets nothing.
        not_after: UnixMicros,
    },
    /// Replace the value by the sealed one and keep the time to live, plus `lock_delay`.
    ///
    /// A sealed key is not changed.
    Seal {
        /// The lock's key.
        key: LockKey,
        /// The holder's value.
        value: LockValue,
        /// The sealed value.
        sealed: LockValue,
        /// Added to the time to live, once.
        lock_delay: Duration,
        /// The shortest time to live of the sealed key.
        least: Duration,
    },
    /// Delete the key if it holds the value.
    ///
    /// A sealed key is deleted by its sealed value.
    Release {
        /// The lock's key.
        key: LockKey,
        /// The value that the key must hold.
        value: LockValue,
    },
    /// Publish a number to clients that wait for the key (`PUBLISH`).
    ///
    /// It is a hint, and decides nothing.
    Announce {
        /// The lock's key.
        key: LockKey,
        /// The number.
        ///
        /// Clients define its meaning.
        number: i64,
    },
    /// Raise the counter to this number if it is lower, without a key.
    ///
    /// It is for a member that has lost its counter.
    Restore {
        /// A number that no issued token exceeds.
        token: FencingToken,
    },
    /// Read the content of the key.
    Inspect {
        /// The lock's key.
        key: LockKey,
    },
}

impl Command {
    /// The lock's key.
    ///
    /// `None` for the command on the counter alone.
    #[must_use]
    pub const fn key(&self) -> Option<&LockKey> {
        match self {
            Self::Acquire { key, .. }
            | Self::RaiseCounter { key, .. }
            | Self::Extend { key, .. }
            | Self::Repair { key, .. }
            | Self::Seal { key, .. }
            | Self::Release { key, .. }
            | Self::Announce { key, .. }
            | Self::Inspect { key } => Some(key),
            Self::Restore { .. } => None,
        }
    }
}
