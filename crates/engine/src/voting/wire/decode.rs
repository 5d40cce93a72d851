//! Decodes replies.
//!
//! No key, value or password gets into an error.

use std::time::Duration;

use crate::redlock::{Command, FencingToken, KeyState, MemberError, Reply, RunId, StoredValue};
use crate::time::UnixMicros;
use crate::voting::resp::Value;

/// The `run_id` in an `INFO` text.
pub(in crate::voting) fn run_id(info: &[u8]) -> Option<RunId> {
    let info = std::str::from_utf8(info).ok()?;
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(RunId::from)
}

/// Decodes the reply to GET, without the time to live.
pub(in crate::voting) fn value_of(answer: &Value<'_>) -> Reply {
    match answer {
        Value::Nil => Reply::State(KeyState::Missing),
        Value::Bulk(_) => match text(answer) {
            Some(value) => Reply::State(KeyState::String { value: StoredValue::new(value), remaining: None }),
            None => Reply::Failed(MemberError::unexpected()),
        },
        // Locks of Redisson are hashes.
        Value::Error(line) if line.starts_with(b"WRONGTYPE") => Reply::State(unknown_holder()),
        Value::Error(line) => Reply::Failed(error(line)),
        _ => Reply::Failed(MemberError::unexpected()),
    }
}

/// Decodes the reply to a script.
pub(in crate::voting) fn decode(asked: &Command, answer: &Value<'_>) -> Reply {
    if let Value::Error(line) = answer {
        return Reply::Failed(error(line));
    }
    let reply = match (asked, answer) {
        (Command::Acquire { .. } | Command::Extend { .. }, Value::Array(elements)) => vote(elements),
        (Command::RaiseCounter { .. }, Value::Int(raised)) => {
            Some(if *raised == 1 { Reply::Raised } else { Reply::NotOurs })
        }
        (Command::Restore { token }, Value::Int(counter)) if *counter >= token.get() => Some(Reply::Raised),
        (Command::Repair { .. } | Command::Release { .. }, Value::Int(done)) => Some(Reply::Done(*done == 1)),
        (Command::Seal { .. }, Value::Array(elements)) => seal(elements),
        (Command::Announce { .. }, Value::Int(listeners)) => u64::try_from(*listeners).ok().map(Reply::Announced),
        (Command::Inspect { .. }, Value::Array(elements)) => key_state(elements).map(Reply::State),
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::Failed(MemberError::unexpected()))
}

/// Decodes the answer of the acquire and extend scripts.
///
/// The scripts of a client return no time.
fn vote(elements: &[Value<'_>]) -> Option<Reply> {
    match elements {
        [Value::Int(1), Value::Int(token), seconds, micros] => {
            Some(Reply::Acquired { token: FencingToken::new(*token)?, time: Some(time(seconds, micros)?) })
        }
        [Value::Int(1), seconds, micros] => Some(Reply::Extended { time: Some(time(seconds, micros)?) }),
        [Value::Int(1)] => Some(Reply::Extended { time: None }),
        [Value::Int(0)] => Some(Reply::Refused { holder: unknown_holder(), time: None }),
        [Value::Int(0), holder @ .., seconds, micros] => {
            Some(Reply::Refused { holder: key_state(holder)?, time: Some(time(seconds, micros)?) })
        }
        _ => None,
    }
}

/// A key that the user has no permission to read.
fn unknown_holder() -> KeyState {
    KeyState::OtherType { name: String::new(), remaining: None }
}

fn seal(elements: &[Value<'_>]) -> Option<Reply> {
    match elements {
        [Value::Int(1), Value::Int(millis)] => {
            Some(Reply::Sealed { remaining: remaining(*millis).unwrap_or_default() })
        }
        [Value::Int(0)] => Some(Reply::NotOurs),
        _ => None,
    }
}

/// Decodes the answer of `holder.lua`.
fn key_state(elements: &[Value<'_>]) -> Option<KeyState> {
    let [kind, what, Value::Int(millis)] = elements else { return None };
    let remaining = remaining(*millis);
    match text(kind)?.as_str() {
        "missing" => Some(KeyState::Missing),
        "string" => Some(KeyState::String { value: StoredValue::new(text(what)?), remaining }),
        "other" => Some(KeyState::OtherType { name: text(what)?, remaining }),
        _ => None,
    }
}

/// Decodes `PTTL`, which is negative without a time to live.
pub(in crate::voting) fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Decodes seconds and microseconds, as text.
fn time(seconds: &Value<'_>, micros: &Value<'_>) -> Option<UnixMicros> {
    let number = |value: &Value<'_>| str::from_utf8(bytes(value)?).ok()?.parse::<i64>().ok();
    Some(UnixMicros(number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?))
}

/// A string, which can have any bytes of another client.
fn text(value: &Value<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(bytes(value)?).into_owned())
}

const fn bytes<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Some(bytes),
        _ => None,
    }
}

/// Decodes the reply to a command that returns a number.
pub(in crate::voting) fn number(answer: &Value<'_>) -> Result<i64, MemberError> {
    match answer {
        Value::Int(number) => Ok(*number),
        Value::Error(line) => Err(error(line)),
        _ => Err(MemberError::unexpected()),
    }
}

const FULL: &str = "it has no room for another client (maxclients)";

/// Whether the member refused a connection because it has `maxclients` of them.
#[must_use]
pub fn is_full(error: &MemberError) -> bool {
    matches!(error, MemberError::Unreachable(text) if text == FULL)
}

/// Decodes an error by its code.
///
/// The rest of the line can quote commands and their arguments.
#[must_use]
pub fn error(line: &[u8]) -> MemberError {
    let line = String::from_utf8_lossy(line);
    let (code, detail) = line.split_once(' ').unwrap_or((&*line, ""));
    match code {
        "NOPERM" | "EPOCH" => MemberError::Fenced,
        "LOADING" => MemberError::Loading,
        "BUSY" => MemberError::Busy,
        "LATE" => MemberError::TimedOut,
        "OOM" => MemberError::OutOfMemory,
        "WRONGPASS" => MemberError::Refused,
        "NOAUTH" => MemberError::NoPassword,
        "DENIED" => MemberError::Unreachable(
            "it is in protected mode, and refuses connections from other machines: set a password on it".to_owned(),
        ),
        _ if detail.starts_with("AUTH ") => MemberError::Refused,
        _ if detail.starts_with("max number of clients") => MemberError::Unreachable(FULL.to_owned()),
        _ if detail.starts_with("unknown command") => MemberError::UnknownCommand,
        _ if detail.starts_with("value is not an integer") => MemberError::NoCounter,
        // EXECABORT and a failed script have the reason in their detail.
        _ if detail.contains("run this command") => MemberError::Fenced,
        _ if detail.contains("OOM") => MemberError::OutOfMemory,
        code if (1..=32).contains(&code.len()) && code.bytes().all(|c| c.is_ascii_uppercase() || c == b'_') => {
            MemberError::Other(code.to_owned())
        }
        _ => MemberError::Other("ERR".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::LockValue;

    fn acquire() -> Command {
        let value = LockValue::from_text("v");
        Command::Acquire { key: "k".into(), value, ttl: Duration::from_secs(1), token: true, not_after: None }
    }

    #[test]
    fn a_vote_is_read_with_the_members_clock() {
        let yes = Value::Array(vec![Value::Int(1), Value::Int(7), Value::Bulk(b"12"), Value::Bulk(b"34")]);
        let (token, time) = (FencingToken::new(7).unwrap(), Some(UnixMicros(12_000_034)));
        assert_eq!(decode(&acquire(), &yes), Reply::Acquired { token, time });
        let elements =
            [Value::Bulk(b"other"), Value::Bulk(b"hash"), Value::Int(-1), Value::Bulk(b"12"), Value::Bulk(b"34")];
        let no = Value::Array([&[Value::Int(0)][..], &elements].concat());
        let holder = KeyState::OtherType { name: "hash".to_owned(), remaining: None };
        assert_eq!(decode(&acquire(), &no), Reply::Refused { holder, time });
    }

    #[test]
    fn an_answer_of_another_shape_is_no_vote() {
        for answer in [
            Value::Nil,
            Value::Simple(b"OK"),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1), Value::Int(-7), Value::Bulk(b"12"), Value::Bulk(b"34")]),
            Value::Array(vec![Value::Int(1), Value::Int(7), Value::Bulk(b"x"), Value::Bulk(b"34")]),
            Value::Array(vec![Value::Int(0), Value::Bulk(b"12"), Value::Bulk(b"34")]),
        ] {
            assert_eq!(decode(&acquire(), &answer), Reply::Failed(MemberError::unexpected()), "{answer:?}");
        }
    }

    #[test]
    fn errors_are_distinct_and_contain_no_sent_text() {
        for (line, expected) in [
            ("NOPERM this user has no permissions to run the 'incr' command", MemberError::Fenced),
            ("EPOCH the members have changed", MemberError::Fenced),
            (
                "ERR user_script:3: The user executing the script can't run this command or subcommand",
                MemberError::Fenced,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", MemberError::OutOfMemory),
            ("ERR script: -OOM command not allowed", MemberError::OutOfMemory),
            ("BUSY Redis is busy running a script", MemberError::Busy),
            ("LATE the last moment of this attempt has passed", MemberError::TimedOut),
            ("LOADING Redis is loading", MemberError::Loading),
            ("ERR AUTH <password> called without any password configured", MemberError::Refused),
            (
                "ERR max number of clients reached",
                MemberError::Unreachable("it has no room for another client (maxclients)".to_owned()),
            ),
            ("WRONGPASS invalid username-password pair", MemberError::Refused),
            ("A_CODE_THAT_IS_LONGER_THAN_ANY_CODE_OF_REDIS is text", MemberError::Other("ERR".to_owned())),
            ("WRONGTYPE Operation against a key", MemberError::Other("WRONGTYPE".to_owned())),
            ("NOAUTH Authentication required.", MemberError::NoPassword),
            ("ERR unknown command 'EVALSHA', with args beginning with: ", MemberError::UnknownCommand),
            ("ERR value is not an integer or out of range", MemberError::NoCounter),
            ("secret-value", MemberError::Other("ERR".to_owned())),
        ] {
            assert_eq!(error(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn the_run_id_is_parsed_from_info() {
        let info = b"# Server\r\nredis_version:7.0.15\r\nother_run_id:def\r\nrun_id:abc\r\n";
        assert_eq!(run_id(info), Some(RunId::from("abc")));
        assert_eq!(run_id(b"redis_version:7.0.15\r\n"), None);
    }
}
