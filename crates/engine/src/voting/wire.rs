//! Commands to bytes, and replies back to types. Nothing here puts a key, a value or a password into an error.

use super::guard::{Guard, RECORD_KEY};
use super::resp::{Value, begin, command, word, word_of};
use super::scripts::{DIRECT, GUARDED, SCRIPTS, Script, Scripts};
use crate::redlock::{Command, FencingToken, KeyState, LockKey, MemberError, Reply, RunId, StoredValue, TOKEN_KEY};
use crate::time::UnixMicros;
use std::time::Duration;

/// What a connection may do at its member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rights {
    /// Everything that the scripts need: INFO and TIME among it.
    #[default]
    Full,
    /// The same, on a master that others run: the record judges each vote.
    Guarded(Guard),
    /// What an operator gives to clients: neither INFO nor TIME, and of the counter INCR alone.
    Direct,
    /// What an operator gives to clients that only look: GET, PTTL and PING.
    Reader,
}

impl Rights {
    pub(super) fn scripts(&self) -> &'static Scripts {
        match self {
            Self::Full => &SCRIPTS,
            Self::Guarded(_) => &GUARDED,
            Self::Direct | Self::Reader => &DIRECT,
        }
    }

    const fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Guarded(guard) => Some(guard),
            Self::Full | Self::Direct | Self::Reader => None,
        }
    }

    /// Whether a vote may be plain commands. Only a script can look at the record.
    pub(super) const fn allow_plain_votes(&self) -> bool {
        !matches!(self, Self::Guarded(_))
    }

    /// Whether TIME may be asked for.
    pub(super) const fn allow_time(&self) -> bool {
        !matches!(self, Self::Direct | Self::Reader)
    }

    /// Whether the process may be asked who it is.
    pub(super) const fn allow_info(&self) -> bool {
        !matches!(self, Self::Direct | Self::Reader)
    }
}

/// Asks for the `run_id` and loads the scripts. Loaded on a connection they stay for its life: it does not outlive the process.
/// Returns how many replies there will be.
pub(super) fn add_preamble(out: &mut Vec<u8>, rights: &Rights) -> usize {
    let load = |out: &mut Vec<u8>, scripts: &[&Script]| {
        scripts.iter().for_each(|script| command(out, &["SCRIPT", "LOAD", script.code]));
        scripts.len()
    };
    if !rights.allow_info() {
        return load(out, &rights.scripts().of_clients());
    }
    let loaded = load(out, &rights.scripts().all());
    // Whole: only from version 7 on several sections can be named.
    command(out, &["INFO"]);
    // Keeps a connection when a member runs out of memory for its clients: the operator's are the last that may go. A master that
    // others run need not grant it.
    command(out, &["CLIENT", "NO-EVICT", "ON"]);
    loaded + 2
}

/// The `run_id` in an `INFO` text.
pub(super) fn run_id(info: &[u8]) -> Option<RunId> {
    let info = std::str::from_utf8(info).ok()?;
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(RunId::from)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `SET key value NX PX ttl`, and `INCR #token` right behind it if a token is wanted.
pub(super) fn plain_acquire(out: &mut Vec<u8>, key: &LockKey, value: &str, ttl: Duration, token: bool) {
    begin(out, 6);
    word(out, "SET");
    word(out, key.as_str());
    word(out, value);
    word(out, "NX");
    word(out, "PX");
    word_of(out, millis(ttl));
    if token {
        command(out, &["INCR", TOKEN_KEY]);
    }
}

/// GET, PTTL and GET again: [`super::due::Inspection`] says why.
pub(super) fn plain_inspect(out: &mut Vec<u8>, key: &LockKey) {
    for name in ["GET", "PTTL", "GET"] {
        command(out, &[name, key.as_str()]);
    }
}

/// The reply to GET, without the time to live.
pub(super) fn value_of(answer: &Value<'_>) -> Reply {
    match answer {
        Value::Nil => Reply::State(KeyState::Missing),
        Value::Bulk(_) => match text(answer) {
            Some(value) => Reply::State(KeyState::String { value: StoredValue::new(value), remaining: None }),
            None => Reply::Failed(unexpected()),
        },
        // Redisson's locks are hashes.
        Value::Error(line) if line.starts_with(b"WRONGTYPE") => Reply::State(unknown_holder()),
        Value::Error(line) => Reply::Failed(error(line)),
        _ => Reply::Failed(unexpected()),
    }
}

/// So many INCRs, and a look at the key behind them: a client's way to raise a counter.
pub(super) fn increments(out: &mut Vec<u8>, key: &LockKey, missing: u32) {
    for _ in 0..missing {
        command(out, &["INCR", TOKEN_KEY]);
    }
    command(out, &["GET", key.as_str()]);
}

/// PUBLISH on the key's channel.
fn announcement(out: &mut Vec<u8>, key: &LockKey, number: i64) {
    begin(out, 3);
    word(out, "PUBLISH");
    word(out, key.channel());
    word(out, number.to_string());
}

/// The beginning of a script call, up to its keys; so many arguments are to follow.
pub(super) fn call(out: &mut Vec<u8>, script: &Script, keys: &[&str], arguments: usize) {
    begin(out, 3 + keys.len() + arguments);
    word(out, "EVALSHA");
    word(out, &script.sha1);
    word_of(out, keys.len() as u64);
    keys.iter().for_each(|key| word(out, key));
}

/// One script call, or one announcement. Votes, and nothing else, are judged by the record: what is released or sealed late is no harm.
pub(super) fn encode(out: &mut Vec<u8>, asked: &Command, rights: &Rights) {
    let (scripts, guard) = (rights.scripts(), rights.guard());
    let vote = |out: &mut Vec<u8>, script: &Script, keys: &[&str], arguments: usize| match guard {
        Some(_) => call(out, script, &[keys, &[RECORD_KEY][..]].concat(), arguments + 2),
        None => call(out, script, keys, arguments),
    };
    let guarded = |out: &mut Vec<u8>| {
        if let Some(Guard { uid, epoch }) = guard {
            word(out, uid);
            word(out, epoch.to_string());
        }
    };
    match asked {
        Command::Acquire { key, value, ttl, not_after, .. } => {
            vote(out, &scripts.acquire, &[key.as_str(), TOKEN_KEY], 3);
            word(out, value.expose());
            word_of(out, millis(*ttl));
            word(out, not_after.map_or(i64::MAX, |time| time.0).to_string());
            guarded(out);
        }
        Command::RaiseCounter { key, value, token, .. } => {
            call(out, &scripts.raise_counter, &[key.as_str(), TOKEN_KEY], 2);
            word(out, value.expose());
            word(out, token.get().to_string());
        }
        Command::Extend { key, value, ttl } => {
            vote(out, &scripts.extend, &[key.as_str()], 2);
            word(out, value.expose());
            word_of(out, millis(*ttl));
            guarded(out);
        }
        Command::Repair { key, value, px, until, not_after } => {
            call(out, &scripts.repair, &[key.as_str()], 4);
            word(out, value.expose());
            word_of(out, millis(*px));
            word(out, until.0.to_string());
            word(out, not_after.0.to_string());
        }
        Command::Seal { key, value, sealed, lock_delay, least } => {
            call(out, &scripts.seal, &[key.as_str()], 4);
            word(out, value.expose());
            word(out, sealed.expose());
            word_of(out, millis(*lock_delay));
            word_of(out, millis(*least));
        }
        Command::Release { key, value } => {
            call(out, &scripts.release, &[key.as_str()], 1);
            word(out, value.expose());
        }
        Command::Announce { key, number } => announcement(out, key, *number),
        Command::Restore { token } => {
            call(out, &scripts.restore, &[TOKEN_KEY], 1);
            word(out, token.get().to_string());
        }
        Command::Inspect { key } => call(out, &scripts.inspect, &[key.as_str()], 0),
    }
}

/// The reply to a script.
pub(super) fn decode(asked: &Command, answer: &Value<'_>) -> Reply {
    if let Value::Error(line) = answer {
        return Reply::Failed(error(line));
    }
    let reply = match (asked, answer) {
        (Command::Acquire { .. } | Command::Extend { .. }, Value::Array(parts)) => vote(parts),
        (Command::RaiseCounter { .. }, Value::Int(raised)) => {
            Some(if *raised == 1 { Reply::Raised } else { Reply::NotOurs })
        }
        (Command::Restore { token }, Value::Int(counter)) if *counter >= token.get() => Some(Reply::Raised),
        (Command::Repair { .. } | Command::Release { .. }, Value::Int(done)) => Some(Reply::Done(*done == 1)),
        (Command::Seal { .. }, Value::Array(parts)) => seal(parts),
        (Command::Announce { .. }, Value::Int(listeners)) => u64::try_from(*listeners).ok().map(Reply::Announced),
        (Command::Inspect { .. }, Value::Array(parts)) => key_state(parts).map(Reply::State),
        _ => None,
    };
    reply.unwrap_or_else(|| Reply::Failed(unexpected()))
}

/// The answer of the acquire and extend scripts. Those of a client carry no time.
fn vote(parts: &[Value<'_>]) -> Option<Reply> {
    match parts {
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

/// A key that a client may not look at.
fn unknown_holder() -> KeyState {
    KeyState::OtherType { name: String::new(), remaining: None }
}

fn seal(parts: &[Value<'_>]) -> Option<Reply> {
    match parts {
        [Value::Int(1), Value::Int(millis)] => {
            Some(Reply::Sealed { remaining: remaining(*millis).unwrap_or_default() })
        }
        [Value::Int(0)] => Some(Reply::NotOurs),
        _ => None,
    }
}

/// What `holder.lua` tells.
pub(super) fn key_state(parts: &[Value<'_>]) -> Option<KeyState> {
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
pub(super) fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// The reply to `TIME`.
pub(super) fn time_of(answer: &Value<'_>) -> Result<UnixMicros, MemberError> {
    match answer {
        Value::Array(parts) => match parts.as_slice() {
            [seconds, micros] => time(seconds, micros).ok_or_else(unexpected),
            _ => Err(unexpected()),
        },
        Value::Error(line) => Err(error(line)),
        _ => Err(unexpected()),
    }
}

/// `TIME`: seconds and microseconds, as text.
fn time(seconds: &Value<'_>, micros: &Value<'_>) -> Option<UnixMicros> {
    let number = |value: &Value<'_>| str::from_utf8(bytes(value)?).ok()?.parse::<i64>().ok();
    Some(UnixMicros(number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?))
}

/// A string, whatever bytes another client has put there.
fn text(value: &Value<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(bytes(value)?).into_owned())
}

const fn bytes<'a>(value: &Value<'a>) -> Option<&'a [u8]> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Some(bytes),
        _ => None,
    }
}

pub(super) fn unexpected() -> MemberError {
    MemberError::Other("unexpected answer".to_owned())
}

/// Only the error's code: the rest of the line may quote commands and their arguments.
pub(super) fn error(line: &[u8]) -> MemberError {
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
        _ if detail.starts_with("unknown command") => MemberError::UnknownCommand,
        _ if detail.starts_with("value is not an integer") => MemberError::NoCounter,
        // EXECABORT, and a script's own failure, say in their detail why.
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
        let parts =
            [Value::Bulk(b"other"), Value::Bulk(b"hash"), Value::Int(-1), Value::Bulk(b"12"), Value::Bulk(b"34")];
        let no = Value::Array([&[Value::Int(0)][..], &parts].concat());
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
            assert_eq!(decode(&acquire(), &answer), Reply::Failed(unexpected()), "{answer:?}");
        }
    }

    #[test]
    fn errors_are_told_apart_and_show_nothing_of_what_was_sent() {
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
    fn the_run_id_is_found_in_what_the_process_tells() {
        let info = b"# Server\r\nredis_version:7.0.15\r\nother_run_id:def\r\nrun_id:abc\r\n";
        assert_eq!(run_id(info), Some(RunId::from("abc")));
        assert_eq!(run_id(b"redis_version:7.0.15\r\n"), None);
    }
}
