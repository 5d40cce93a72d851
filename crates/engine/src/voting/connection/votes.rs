//! Votes in plain commands: SET, and INCR right behind it, which count with the time at the end of their batch.

use super::Connection;
use crate::redlock::{Command, FencingToken, MemberError, Reply};
use crate::time::{Boottime, UnixMicros};
use crate::voting::due::{Due, Pending, Set};
use crate::voting::resp::{self, Value};
use crate::voting::wire;

impl Connection {
    pub(super) fn on_set(&mut self, pending: Pending, value: &Value<'_>, received: Boottime) {
        let set = match value {
            Value::Simple(_) => Set::Done,
            Value::Nil => Set::Taken,
            Value::Error(line) => Set::Failed(wire::error(line)),
            _ => Set::Failed(wire::unexpected()),
        };
        if let Some(Command::Acquire { token: true, .. }) = pending.command() {
            self.due.push_front(Due::Increment(pending, set));
        } else {
            self.on_vote(pending, set, Ok(0), received);
        }
    }

    pub(super) fn on_increment(&mut self, pending: Pending, set: Set, value: &Value<'_>, received: Boottime) {
        let number = match value {
            Value::Int(number) => Ok(*number),
            Value::Error(line) => Err(wire::error(line)),
            _ => Err(wire::unexpected()),
        };
        self.on_vote(pending, set, number, received);
    }

    fn on_vote(&mut self, pending: Pending, set: Set, number: Result<i64, MemberError>, received: Boottime) {
        let reply = match (set, number) {
            (Set::Done, Ok(number)) => match FencingToken::new(number) {
                Some(token) => Reply::Acquired { token, time: None },
                None => Reply::Failed(wire::unexpected()),
            },
            (Set::Done, Err(MemberError::Fenced)) => Reply::Failed(MemberError::TokenRefused),
            (Set::Done, Err(error)) | (Set::Failed(error), _) => Reply::Failed(error),
            (Set::Taken, _) => return self.inspect(pending),
        };
        if self.rights.allow_time() && matches!(reply, Reply::Acquired { .. }) {
            self.untimed.push((pending, reply));
        } else {
            self.finish(pending, reply, received);
        }
    }

    /// Another's key: what is it? The value itself is not asked for with the vote, since anybody may have put megabytes there.
    fn inspect(&mut self, mut pending: Pending) {
        let Some((key, _)) = pending.lock() else { return };
        if !self.rights.allow_info() {
            resp::command(&mut self.out, &["PTTL", key.as_str()]);
            return self.due.push_back(Due::Remaining(pending));
        }
        pending.sent = self.clock.boottime();
        let inspect = Command::Inspect { key };
        wire::encode(&mut self.out, &inspect, &self.rights);
        resp::command(&mut self.out, &["TIME"]);
        self.due.push_back(Due::Holder(pending));
        self.due.push_back(Due::Time);
    }

    pub(super) fn on_holder(&mut self, pending: Pending, value: &Value<'_>, received: Boottime) {
        let Some((key, _)) = pending.lock() else { return };
        match wire::decode(&Command::Inspect { key }, value) {
            Reply::State(holder) => {
                self.untimed.push((pending, Reply::Refused { holder, time: None }));
            }
            failed => self.finish(pending, failed, received),
        }
    }

    /// The end of a batch: the votes in plain commands count from here on.
    pub(super) fn on_time(&mut self, time: Result<UnixMicros, MemberError>, received: Boottime) {
        for (pending, mut reply) in std::mem::take(&mut self.untimed) {
            match (&mut reply, &time) {
                (Reply::Acquired { time, .. } | Reply::Refused { time, .. }, Ok(now)) => *time = Some(*now),
                (reply, Err(error)) => *reply = Reply::Failed(error.clone()),
                (reply, Ok(_)) => *reply = Reply::Failed(wire::unexpected()),
            }
            self.finish(pending, reply, received);
        }
    }
}
