//! Commands to scripts, and replies back to types. Nothing here puts a key, a value or a password into an error.

use super::{
    guard::{Guard, RECORD_KEY},
    scripts::{GUARDED, SCRIPTS, Script, Scripts},
};
use crate::{
    redlock::{Command, FencingToken, KeyState, LockKey, MemberError, Reply, RunId, StoredValue, TOKEN_KEY},
    time::UnixMicros,
};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use std::time::Duration;

/// Commands of the preamble, which a connection sends until it knows its process.
pub(super) const PREAMBLE: usize = 9;

/// Keeps a connection when a member runs out of memory for its clients: the operator's are the last that may go.
pub(super) fn no_evict() -> Cmd {
    let mut command = redis::cmd("CLIENT");
    command.arg("NO-EVICT").arg("ON");
    command
}

/// Asks for the `run_id` and loads the scripts. Loaded on a connection they stay for its life: it does not outlive the
/// process.
pub(super) fn add_preamble(pipeline: &mut Pipeline, guard: Option<&Guard>) {
    pipeline.cmd("INFO").arg("server");
    for script in scripts(guard).all() {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.code);
    }
    pipeline.add_command(no_evict());
}

fn scripts(guard: Option<&Guard>) -> &'static Scripts {
    if guard.is_some() { &GUARDED } else { &SCRIPTS }
}

/// The process behind the connection, if the whole preamble was answered. Its last command may be refused: a master that others run
/// need not grant it.
pub(super) fn read_preamble(answers: &[Value]) -> Result<RunId, MemberError> {
    let answers = answers.split_last().map_or(answers, |(_, needed)| needed);
    for answer in answers {
        if let Value::ServerError(failure) = answer {
            return Err(error(&failure.clone().into()));
        }
    }
    answers.first().and_then(text).as_deref().and_then(run_id).ok_or_else(unexpected)
}

/// The `run_id` in an `INFO` text.
pub(super) fn run_id(info: &str) -> Option<RunId> {
    info_field(info, "run_id").map(RunId::from)
}

/// One field of an `INFO` text.
pub(super) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Votes, and nothing else, are judged by the record: what is released or sealed late is no harm.
pub(super) fn encode(command: &Command, guard: Option<&Guard>) -> Cmd {
    let scripts = scripts(guard);
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let call = |script: &Script, keys: &[&str]| {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&script.sha1).arg(keys.len()).arg(keys);
        cmd
    };
    let vote = |script: &Script, keys: &[&str]| match guard {
        Some(_) => call(script, &[keys, &[RECORD_KEY][..]].concat()),
        None => call(script, keys),
    };
    let guarded = |cmd: &mut Cmd| {
        if let Some(Guard { uid, epoch }) = guard {
            cmd.arg(uid).arg(*epoch);
        }
    };
    let lock = LockKey::as_str;
    let mut cmd;
    match command {
        Command::Acquire { key, value, ttl, hint } => {
            cmd = vote(&scripts.acquire, &[lock(key), TOKEN_KEY]);
            cmd.arg(value.expose()).arg(millis(*ttl)).arg(hint.get());
            guarded(&mut cmd);
        }
        Command::RaiseCounter { key, value, token } => {
            cmd = call(&scripts.raise_counter, &[lock(key), TOKEN_KEY]);
            cmd.arg(value.expose()).arg(token.get());
        }
        Command::Extend { key, value, ttl } => {
            cmd = vote(&scripts.extend, &[lock(key)]);
            cmd.arg(value.expose()).arg(millis(*ttl));
            guarded(&mut cmd);
        }
        Command::Repair { key, value, px, not_after } => {
            cmd = call(&scripts.repair, &[lock(key)]);
            cmd.arg(value.expose()).arg(millis(*px)).arg(not_after.0);
        }
        Command::Seal { key, value, sealed, lock_delay } => {
            cmd = call(&scripts.seal, &[lock(key)]);
            cmd.arg(value.expose()).arg(sealed.expose()).arg(millis(*lock_delay));
        }
        Command::Release { key, value } => {
            cmd = call(&scripts.release, &[lock(key)]);
            cmd.arg(value.expose());
        }
        Command::Inspect { key } => cmd = call(&scripts.inspect, &[lock(key)]),
    }
    cmd
}

pub(super) fn decode(command: &Command, answer: &Value) -> Reply {
    if let Value::ServerError(failure) = answer {
        return Reply::Failed(error(&failure.clone().into()));
    }
    let reply = match (command, answer) {
        (Command::Acquire { .. } | Command::Extend { .. }, Value::Array(parts)) => vote(parts),
        (Command::RaiseCounter { .. }, Value::Int(raised)) => {
            Some(if *raised == 1 { Reply::Raised } else { Reply::NotOurs })
        }
        (Command::Repair { .. } | Command::Release { .. }, Value::Int(done)) => Some(Reply::Done(*done == 1)),
        (Command::Seal { .. }, Value::Array(parts)) => seal(parts),
        (Command::Inspect { .. }, Value::Array(parts)) => key_state(parts).map(Reply::State),
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::Failed(unexpected()))
}

/// The answer of the acquire and extend scripts.
fn vote(parts: &[Value]) -> Option<Reply> {
    match parts {
        [Value::Int(1), Value::Int(token), seconds, micros] => {
            Some(Reply::Acquired { token: FencingToken::new(*token)?, time: time(seconds, micros)? })
        }
        [Value::Int(1), seconds, micros] => Some(Reply::Extended { time: time(seconds, micros)? }),
        [Value::Int(0), holder @ .., seconds, micros] => {
            Some(Reply::Refused { holder: key_state(holder)?, time: time(seconds, micros)? })
        }
        _ => None,
    }
}

fn seal(parts: &[Value]) -> Option<Reply> {
    match parts {
        [Value::Int(1), Value::Int(millis)] => {
            Some(Reply::Sealed { remaining: remaining(*millis).unwrap_or_default() })
        }
        [Value::Int(0)] => Some(Reply::NotOurs),
        _ => None,
    }
}

/// What `holder.lua` tells.
fn key_state(parts: &[Value]) -> Option<KeyState> {
    let [kind, what, Value::Int(millis)] = parts else { return None };
    let remaining = remaining(*millis);
    match text(kind)?.as_str() {
        "missing" => Some(KeyState::Missing),
        "string" => Some(KeyState::String { value: StoredValue::new(text(what)?), remaining }),
        "other" => Some(KeyState::OtherType { name: text(what)?, remaining }),
        _ => None,
    }
}

/// `PTTL`: negative without one.
fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// `TIME`: seconds and microseconds, as text.
pub(super) fn time(seconds: &Value, micros: &Value) -> Option<UnixMicros> {
    let number = |value| text(value)?.parse::<i64>().ok();
    Some(UnixMicros(number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?))
}

/// A string, whatever bytes another client has put there.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

pub(super) fn unexpected() -> MemberError {
    MemberError::Other("unexpected answer".to_owned())
}

/// Only the error's code or category: details may quote commands and their arguments.
pub(super) fn error(error: &RedisError) -> MemberError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => MemberError::Fenced,
        ErrorKind::Server(ServerErrorKind::BusyLoading) => MemberError::Loading,
        ErrorKind::Io if error.is_timeout() => MemberError::TimedOut,
        ErrorKind::Io => MemberError::Unreachable(io_text(error)),
        ErrorKind::AuthenticationFailed => MemberError::Refused,
        _ => match error.code() {
            Some("BUSY") => MemberError::Busy,
            Some("OOM") => MemberError::OutOfMemory,
            Some("EPOCH") => MemberError::Fenced,
            Some("HINT") => MemberError::HintTooLarge,
            // EXECABORT, and a script's own failure, say in their detail why.
            _ if error.detail().is_some_and(|detail| detail.contains("run this command")) => MemberError::Fenced,
            _ if error.detail().is_some_and(|detail| detail.contains("OOM")) => MemberError::OutOfMemory,
            Some(code) => MemberError::Other(code.to_owned()),
            None => MemberError::Other(error.category().to_owned()),
        },
    }
}

fn io_text(error: &RedisError) -> String {
    if error.is_connection_refusal() { "connection refused" } else { "connection closed" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::LockValue;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn acquire() -> Command {
        let value = LockValue::from_text("v");
        Command::Acquire { key: "k".into(), value, ttl: Duration::from_secs(1), hint: FencingToken::ZERO }
    }

    #[test]
    fn a_vote_is_read_with_the_members_clock() {
        let yes = Value::Array(vec![Value::Int(1), Value::Int(7), bulk("12"), bulk("34")]);
        let token = FencingToken::new(7).unwrap();
        assert_eq!(decode(&acquire(), &yes), Reply::Acquired { token, time: UnixMicros(12_000_034) });
        let no = Value::Array(vec![Value::Int(0), bulk("other"), bulk("hash"), Value::Int(-1), bulk("12"), bulk("34")]);
        let holder = KeyState::OtherType { name: "hash".to_owned(), remaining: None };
        assert_eq!(decode(&acquire(), &no), Reply::Refused { holder, time: UnixMicros(12_000_034) });
    }

    #[test]
    fn an_answer_of_another_shape_is_no_vote() {
        for answer in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1), Value::Int(-7), bulk("12"), bulk("34")]),
            Value::Array(vec![Value::Int(1), Value::Int(7), bulk("x"), bulk("34")]),
            Value::Array(vec![Value::Int(0), bulk("12"), bulk("34")]),
        ] {
            assert_eq!(decode(&acquire(), &answer), Reply::Failed(unexpected()), "{answer:?}");
        }
    }

    #[test]
    fn info_fields_are_matched_whole() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nother_run_id:def\r\n";
        assert_eq!(run_id(info), Some(RunId::from("abc")));
        assert_eq!(info_field(info, "run"), None);
    }
}
