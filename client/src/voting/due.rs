//! What a connection is still to be told.

use super::job::Job;
use super::resp::Value;
use super::wire;
use crate::redlock::{Command, LockKey, LockValue, MemberError, Reply};
use crate::time::Boottime;

/// What the next replies belong to, in the order of what was written.
pub(super) enum Due {
    /// Scripts that are being loaded.
    Loaded,
    /// The process tells who it is.
    Process,
    /// The reply does not matter: PING, CLIENT NO-EVICT, and INCRs before the last one.
    Ignored,
    /// PING for a job without commands.
    Alive(Pending),
    /// A release that nobody waits for.
    Owed(Command),
    /// One script of a job.
    Script(Pending),
    /// SET of a vote in plain commands, with its INCR behind it if there is a token to take.
    Set(Pending),
    Increment(Pending, Set),
    /// The last INCR of those that raise a counter, and the look at the key behind it.
    Raised(Pending),
    Look(Pending, Result<i64, MemberError>),
    /// What another's key is; its time comes behind it.
    Holder(Pending),
    /// How long another's key lives on, where no script may look at it.
    Remaining(Pending),
    /// The time that all plain votes of the batch have waited for.
    Time,
}

/// How a member has answered SET.
pub(super) enum Set {
    Done,
    Taken,
    Failed(MemberError),
}

/// A job of which something is still to be answered.
pub(super) struct Pending {
    pub(super) job: Job,
    pub(super) sent: Boottime,
    pub(super) replies: Vec<Reply>,
}

impl Pending {
    pub(super) fn command(&self) -> Option<&Command> {
        self.job.commands.get(self.replies.len())
    }

    pub(super) fn lock(&self) -> Option<(LockKey, LockValue)> {
        match self.command() {
            Some(Command::Acquire { key, value, .. } | Command::RaiseCounter { key, value, .. }) => {
                Some((key.clone(), value.clone()))
            }
            _ => None,
        }
    }
}

/// Whether a client's INCRs have raised the counter, while the key was still there.
pub(super) fn raised(pending: &Pending, number: Result<i64, MemberError>, held: &Value<'_>) -> Reply {
    match (pending.command(), number, held) {
        (_, _, Value::Error(line)) => Reply::Failed(wire::error(line)),
        (_, Err(error), _) => Reply::Failed(error),
        (Some(Command::RaiseCounter { token, value, .. }), Ok(number), Value::Bulk(held))
            if *held == value.expose().as_bytes() && number >= token.get() =>
        {
            Reply::Raised
        }
        _ => Reply::NotOurs,
    }
}
