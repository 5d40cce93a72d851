use super::answers::{Answers, BoxFuture, MemberError};
use super::slot::{Expiry, Slot};
use super::{FencingToken, LockKey, LockValue, MemberName};
use crate::time::UnixMicros;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One Redis master as the engine sees it.
pub trait LockMember: Send + Sync {
    /// Its name in the member list.
    fn name(&self) -> &MemberName;

    /// Enqueues the commands, as one pipeline, before it returns: members execute them in the order of these calls,
    /// even if the future is dropped or never polled. So no release overtakes the `SET` that it belongs to, which would
    /// leave the key behind. A member without a connection fails at once and keeps nothing for later (a late `SET`
    /// would take the lock for nobody), except that it may deliver releases later: those are harmless at any time.
    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>>;

    /// The same, with the answer put into `slot`. What is submitted need not be on its way before [`LockMember::flush`].
    fn submit(&self, commands: &Arc<[Command]>, slot: Slot) {
        slot.answer_later(self.send(commands.to_vec()));
    }

    /// Takes over to wake a round at its deadline, which spares it a timer. `false`: the round sees to it.
    fn watch(&self, deadline: Instant, expiry: &Expiry) -> bool {
        let _ = (deadline, expiry);
        false
    }

    /// Sends what was submitted, to this member and to those that share its task.
    fn flush(&self) {}
}

/// What a member is asked to do, a script each (`src/voting/scripts`), and votes also plain commands. All durations are whole milliseconds on
/// the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Set the key if it does not exist (`SET key value NX PX ttl`), and take the next number of the counter.
    Acquire {
        /// The lock's key.
        key: LockKey,
        /// A fresh value.
        value: LockValue,
        /// Time to live.
        ttl: Duration,
        /// Whether the vote takes a number.
        token: bool,
        /// In the member's own time: later the attempt sets nothing. With it the vote is a script.
        not_after: Option<UnixMicros>,
    },
    /// Write a token back: counter = max(counter, token). Counts only where the key still holds the value, otherwise
    /// two majorities that share a member could be given the same token (docs/dev/algorithm.md).
    RaiseCounter {
        /// The lock's key.
        key: LockKey,
        /// The value of this attempt.
        value: LockValue,
        /// The token of this attempt.
        token: FencingToken,
        /// How far the member's number is below it: so many INCRs raise the counter where no script may.
        behind: u32,
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
        /// The longest time to live; shortened to what is left until `until`.
        px: Duration,
        /// In the member's own time: the end of the key.
        until: UnixMicros,
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
        /// The shortest time to live of the sealed key.
        least: Duration,
    },
    /// Delete the key if it holds the value (or sealed value, when given that).
    Release {
        /// The lock's key.
        key: LockKey,
        /// Compared first.
        value: LockValue,
    },
    /// Tell those who listen for the key something (`PUBLISH`). A hint: it decides nothing.
    Announce {
        /// The lock's key.
        key: LockKey,
        /// What it means is between those who tell and those who listen.
        number: i64,
    },
    /// Raise the counter to this number if it is lower, whatever keys there are: for a member that has forgotten it.
    Restore {
        /// No token that was given out is greater.
        token: FencingToken,
    },
    /// Read what is on the key.
    Inspect {
        /// The lock's key.
        key: LockKey,
    },
}

impl Command {
    /// The lock's key. `None` for the command that is about the counter alone.
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
