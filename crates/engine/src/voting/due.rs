//! What a connection is still to be told.

use super::job::Job;
use super::resp::Value;
use super::wire;
use crate::redlock::{Command, KeyState, LockKey, LockValue, MemberError, Reply};
use crate::time::Boottime;
use std::time::Duration;

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
    /// One call for the releases of several jobs.
    Releases(Boottime, Vec<Job>),
    /// One script of a job.
    Script(Pending),
    /// SET of a vote in plain commands, with its INCR behind it if there is a token to take.
    Set(Pending),
    Increment(Pending, Set),
    /// The last INCR of those that raise a counter, and the look at the key behind it.
    Raised(Pending),
    Inspect(Pending, Result<i64, MemberError>),
    /// What another's key is; its time comes behind it.
    Holder(Pending),
    /// How long another's key lives on, where no script may look at it.
    Remaining(Pending),
    /// A key that is looked at without a script.
    Read(Pending, Inspection),
    /// The time that all plain votes of the batch have waited for.
    Time,
}

impl Due {
    /// What was never answered: an owed release, or jobs.
    pub(super) fn into_unanswered(self, owed: &mut Vec<Command>, jobs: &mut Vec<Job>) {
        match self {
            Self::Owed(release) => owed.push(release),
            Self::Releases(_, releases) => jobs.extend(releases),
            Self::Alive(pending)
            | Self::Script(pending)
            | Self::Set(pending)
            | Self::Increment(pending, _)
            | Self::Raised(pending)
            | Self::Inspect(pending, _)
            | Self::Holder(pending)
            | Self::Remaining(pending)
            | Self::Read(pending, _) => jobs.push(pending.job),
            Self::Loaded | Self::Process | Self::Ignored | Self::Time => {}
        }
    }
}

/// The answers to GET, PTTL and GET of one key. Other clients may come between two commands of a connection, so a time to live belongs
/// to a value that was there before and after it.
#[derive(Default)]
pub(super) enum Inspection {
    #[default]
    Value,
    Remaining(Reply),
    ValueAgain(Reply, Option<Duration>),
}

impl Inspection {
    /// Takes the next answer; the last one makes the reply.
    pub(super) fn take(self, answer: &Value<'_>) -> Result<Reply, Self> {
        match (self, answer) {
            (Self::Value, _) => Err(Self::Remaining(wire::value_of(answer))),
            (Self::Remaining(before), Value::Int(millis)) => Err(Self::ValueAgain(before, wire::remaining(*millis))),
            (Self::Remaining(_), Value::Error(line)) => Err(Self::ValueAgain(Reply::Failed(wire::error(line)), None)),
            (Self::Remaining(_), _) => Err(Self::ValueAgain(Reply::Failed(wire::unexpected()), None)),
            (Self::ValueAgain(Reply::State(before), remaining), _) => Ok(match (before, wire::value_of(answer)) {
                (KeyState::String { value, .. }, Reply::State(KeyState::String { value: after, .. }))
                    if value == after =>
                {
                    Reply::State(KeyState::String { value, remaining })
                }
                (KeyState::OtherType { name, .. }, Reply::State(KeyState::OtherType { .. })) => {
                    Reply::State(KeyState::OtherType { name, remaining })
                }
                (_, Reply::Failed(error)) => Reply::Failed(error),
                // It changes at this moment.
                (_, Reply::State(KeyState::Missing)) | (KeyState::Missing, _) => Reply::State(KeyState::Missing),
                (KeyState::String { .. } | KeyState::OtherType { .. }, _) => Reply::State(KeyState::Missing),
            }),
            (Self::ValueAgain(failed, _), _) => Ok(failed),
        }
    }
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
    /// Those before the last one.
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
