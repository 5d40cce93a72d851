//! Votes in plain commands: SET, and INCR right behind it. Only clients that check no clocks send them.

use super::Pipeline;
use crate::redlock::{Command, FencingToken, MemberError, Reply};
use crate::time::Boottime;
use crate::voting::pending_replies::{PendingReply, PendingRequest, SetOutcome};
use crate::voting::resp::{self, Value};
use crate::voting::wire;

impl Pipeline {
    pub(super) fn on_set(&mut self, pending: PendingRequest, value: &Value<'_>, received: Boottime) {
        let set = match value {
            Value::Simple(_) => SetOutcome::Done,
            Value::Nil => SetOutcome::Taken,
            Value::Error(line) => SetOutcome::Failed(wire::error(line)),
            _ => SetOutcome::Failed(MemberError::unexpected()),
        };
        if let Some(Command::Acquire { token: true, .. }) = pending.command() {
            self.pending.push_front(PendingReply::Increment(pending, set));
        } else {
            self.on_vote(pending, set, Ok(0), received);
        }
    }

    pub(super) fn on_vote(
        &mut self,
        pending: PendingRequest,
        set: SetOutcome,
        number: Result<i64, MemberError>,
        received: Boottime,
    ) {
        let reply = match (set, number) {
            (SetOutcome::Done, Ok(number)) => match FencingToken::new(number) {
                Some(token) => Reply::Acquired { token, time: None },
                None => Reply::Failed(MemberError::unexpected()),
            },
            (SetOutcome::Done, Err(MemberError::Fenced)) => Reply::Failed(MemberError::TokenRefused),
            (SetOutcome::Done, Err(error)) | (SetOutcome::Failed(error), _) => Reply::Failed(error),
            (SetOutcome::Taken, _) => return self.inspect(pending),
        };
        self.finish(pending, reply, received);
    }

    /// Reads the key of another client.
    ///
    /// The vote itself does not read the value, because another client can have stored megabytes there.
    fn inspect(&mut self, mut pending: PendingRequest) {
        let Some(key) = pending.command().and_then(Command::key).cloned() else { return };
        if !self.rights.allow_info() {
            resp::command(&mut self.out, &["PTTL", key.as_str()]);
            return self.pending.push_back(PendingReply::Remaining(pending));
        }
        pending.sent = self.clock.boottime();
        let inspect = Command::Inspect { key };
        wire::encode(&mut self.out, &inspect, &self.rights);
        self.pending.push_back(PendingReply::Holder(pending));
    }

    pub(super) fn on_holder(&mut self, pending: PendingRequest, value: &Value<'_>, received: Boottime) {
        let Some(key) = pending.command().and_then(Command::key).cloned() else { return };
        let reply = match wire::decode(&Command::Inspect { key }, value) {
            Reply::State(holder) => Reply::Refused { holder, time: None },
            failed => failed,
        };
        self.finish(pending, reply, received);
    }
}
