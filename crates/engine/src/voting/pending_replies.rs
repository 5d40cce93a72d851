//! The replies that a connection waits for.

use std::time::Duration;

use super::request_queue::Request;
use super::resp::Value;
use super::wire;
use crate::redlock::{Command, KeyState, MemberError, Reply};
use crate::time::Boottime;

/// The request of a reply that has not arrived.
///
/// The pipeline has one for each written command, in order.
pub(super) enum PendingReply {
    /// SCRIPT LOAD of one script.
    ScriptLoaded,
    /// The reply that identifies the process.
    Identity,
    /// A reply without a meaning: PING, CLIENT NO-EVICT, and INCRs before the last one.
    Ignored,
    /// A kept release of an earlier connection.
    RepeatedRelease(Command),
    /// One call for the releases of several requests.
    Releases(Boottime, Vec<Request>),
    /// One script of a request.
    Script(PendingRequest),
    /// SET of a vote in plain commands.
    ///
    /// If the vote takes a token, INCR follows.
    Set(PendingRequest),
    Increment(PendingRequest, SetOutcome),
    /// The last INCR that raises a counter, and the GET of the key behind it.
    Raised(PendingRequest),
    Inspect(PendingRequest, Result<i64, MemberError>),
    /// The content of another client's key.
    Holder(PendingRequest),
    /// PTTL of another client's key, where the user has no permission for a script.
    Remaining(PendingRequest),
    /// A key that is read without a script.
    Read(PendingRequest, Inspection),
}

impl PendingReply {
    /// Adds the release or the requests without an answer.
    pub(super) fn into_unanswered(self, releases: &mut Vec<Command>, requests: &mut Vec<Request>) {
        match self {
            Self::RepeatedRelease(release) => releases.push(release),
            Self::Releases(_, released) => requests.extend(released),
            Self::Script(pending)
            | Self::Set(pending)
            | Self::Increment(pending, _)
            | Self::Raised(pending)
            | Self::Inspect(pending, _)
            | Self::Holder(pending)
            | Self::Remaining(pending)
            | Self::Read(pending, _) => requests.push(pending.request),
            Self::ScriptLoaded | Self::Identity | Self::Ignored => {}
        }
    }
}

/// The answers to GET, PTTL and GET of one key.
///
/// Other clients can act between two commands of a connection. So a time to live belongs to a value only if the value
/// was there before and after it.
#[derive(Default)]
pub(super) enum Inspection {
    #[default]
    Value,
    Remaining(Reply),
    ValueAgain(Reply, Option<Duration>),
}

impl Inspection {
    /// Consumes the next answer.
    ///
    /// The last one completes the reply.
    pub(super) fn take(self, answer: &Value<'_>) -> Result<Reply, Self> {
        match (self, answer) {
            (Self::Value, _) => Err(Self::Remaining(wire::value_of(answer))),
            (Self::Remaining(before), Value::Int(millis)) => Err(Self::ValueAgain(before, wire::remaining(*millis))),
            (Self::Remaining(_), Value::Error(line)) => Err(Self::ValueAgain(Reply::Failed(wire::error(line)), None)),
            (Self::Remaining(_), _) => Err(Self::ValueAgain(Reply::Failed(MemberError::unexpected()), None)),
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
                // The key is missing, or changes at this moment.
                _ => Reply::State(KeyState::Missing),
            }),
            (Self::ValueAgain(failed, _), _) => Ok(failed),
        }
    }
}

/// The answer to SET.
pub(super) enum SetOutcome {
    Done,
    Taken,
    Failed(MemberError),
}

/// A request with outstanding replies.
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) sent: Boottime,
    /// All replies before the last one.
    pub(super) replies: Vec<Reply>,
}

impl PendingRequest {
    pub(super) fn command(&self) -> Option<&Command> {
        self.request.commands.get(self.replies.len())
    }
}

/// The reply for a client's INCRs.
///
/// The counter is raised if it is high enough and the key still has the value.
pub(super) fn raised(pending: &PendingRequest, number: Result<i64, MemberError>, held: &Value<'_>) -> Reply {
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
