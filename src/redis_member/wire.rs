//! Replies of the admin path. Nothing here puts a key, a value or a password into an error.

use redis::{ErrorKind, FromRedisValue, RedisError, Value};
use redlock_engine::voting::server_error;

use crate::redlock::MemberError;
use crate::time::UnixMicros;

/// A field of an `INFO` text with 40 hexadecimal digits, such as `run_id`.
///
/// Any other text is no identity, because a hostile peer could send text of any length.
pub(super) fn identity<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let text = info_field(info, name)?.trim();
    (text.len() == 40 && text.bytes().all(|c| c.is_ascii_hexdigit())).then_some(text)
}

/// One field of an `INFO` text.
pub(super) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// `TIME`: seconds and microseconds.
pub(super) fn time(answer: &Value) -> Result<UnixMicros, MemberError> {
    let (seconds, micros): (i64, i64) = read(answer)?;
    let time = seconds.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
    time.map(UnixMicros).ok_or_else(unexpected)
}

/// An answer of this type.
pub(super) fn read<T: FromRedisValue>(answer: &Value) -> Result<T, MemberError> {
    T::from_redis_value_ref(answer).map_err(|_| unexpected())
}

/// A string. It replaces bytes that are not UTF-8, because another client can have written them.
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

/// Keeps only the error's code or category, because details can quote commands and their arguments.
pub(super) fn error(error: &RedisError) -> MemberError {
    match (error.kind(), error.code()) {
        (ErrorKind::Io, _) if error.is_timeout() => MemberError::TimedOut,
        (ErrorKind::Io, _) => MemberError::Unreachable("connection closed".to_owned()),
        (_, Some(code)) => server_error(format!("{code} {}", error.detail().unwrap_or_default()).as_bytes()),
        (_, None) => MemberError::Other(error.category().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_fields_are_matched_whole() {
        let (id, other) = ("0123456789abcdef0123456789abcdef01234567", "f".repeat(40));
        let info = format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{id}\r\nother_run_id:{other}\r\n");
        assert_eq!(identity(&info, "run_id"), Some(id));
        assert_eq!(info_field(&info, "run"), None);
    }

    #[test]
    fn a_peer_chooses_no_text_of_an_error_and_no_identity() {
        for text in ["x".repeat(33_000), "run".to_owned(), "g".repeat(40), String::new()] {
            assert_eq!(identity(&format!("run_id:{text}\r\n"), "run_id"), None, "{text}");
        }
        let answer = |line: &str| {
            let (code, detail) = line.split_once(' ').map_or((line, None), |(code, detail)| (code, Some(detail)));
            error(&redis::make_extension_error(code.to_owned(), detail.map(str::to_owned)))
        };
        let hostile = answer(&"A".repeat(33_000));
        assert_eq!(hostile, MemberError::Other("ERR".to_owned()));
        assert_eq!(answer("NOTBUSY No scripts in execution"), MemberError::Other("NOTBUSY".to_owned()));
        assert_eq!(answer("WRONGPASS invalid username-password pair"), MemberError::Refused);
        let text_of = |line| answer(line).to_string();
        assert!(text_of("DENIED Redis is running in protected mode").contains("set a password"));
        assert!(text_of("ERR max number of clients reached").contains("maxclients"));
    }
}
