//! Replies of the admin path. Nothing here puts a key, a value or a password into an error.

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use crate::redlock::{MemberError, RunId};
use crate::time::UnixMicros;

/// The command that keeps a connection when a member runs out of memory for its clients.
///
/// The operator's connections are the last that may go.
pub(super) fn no_evict() -> Cmd {
    let mut command = redis::cmd("CLIENT");
    command.arg("NO-EVICT").arg("ON");
    command
}

/// The `run_id` in an `INFO` text.
pub(super) fn run_id(info: &str) -> Option<RunId> {
    info_field(info, "run_id").map(RunId::from)
}

/// One field of an `INFO` text.
pub(super) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
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

/// Codes that this crate asks about or that help a person. A peer chooses the first word of an error, and so its length.
const CODES: [&str; 12] = [
    "ERR",
    "EXECABORT",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    "NOSCRIPT",
    "NOTBUSY",
    "NOPROTO",
    "READONLY",
    "UNKILLABLE",
    "WRONGTYPE",
    "MASTERDOWN",
];

fn known(code: &str) -> &'static str {
    CODES.into_iter().find(|known| *known == code).unwrap_or("an unknown error")
}

/// Only the error's code or category: details may quote commands and their arguments.
pub(super) fn error(error: &RedisError) -> MemberError {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoPerm) => MemberError::Fenced,
        ErrorKind::Server(ServerErrorKind::BusyLoading) => MemberError::Loading,
        ErrorKind::Io if error.is_timeout() => MemberError::TimedOut,
        ErrorKind::Io => MemberError::Unreachable(io_text(error)),
        _ => match error.code() {
            Some("WRONGPASS" | "NOAUTH") => MemberError::Refused,
            Some("BUSY") => MemberError::Busy,
            Some("OOM") => MemberError::OutOfMemory,
            Some("EPOCH") => MemberError::Fenced,
            // EXECABORT, and a script's own failure, say in their detail why.
            _ if error.detail().is_some_and(|detail| detail.contains("run this command")) => MemberError::Fenced,
            _ if error.detail().is_some_and(|detail| detail.contains("OOM")) => MemberError::OutOfMemory,
            Some(code) => MemberError::Other(known(code).to_owned()),
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

    #[test]
    fn info_fields_are_matched_whole() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nother_run_id:def\r\n";
        assert_eq!(run_id(info), Some(RunId::from("abc")));
        assert_eq!(info_field(info, "run"), None);
    }
}
