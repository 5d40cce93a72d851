//! Commands on keys, as lock clients of all kinds use them.

use super::core::Core;
use super::glob;
use super::keyspace::Value;
use super::number::integer;
use super::resp::Reply;

pub(super) const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// The options of SET.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    old_value: bool,
    keep: bool,
    end: Option<i64>,
}

impl Core {
    /// Runs a command on keys, or a command without keys.
    pub(super) fn data(&mut self, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let reply = match name {
            "set" => self.set(request),
            "get" => self.get(&request[1]),
            "getdel" => self.get(&request[1]).inspect(|_| {
                let now = self.millis();
                self.keys.remove(&request[1], now);
            }),
            "incr" => self.add(&request[1], 1),
            "decr" => self.add(&request[1], -1),
            "incrby" => argument(&request[2]).and_then(|by| self.add(&request[1], by)),
            "pexpire" | "expire" | "pexpireat" | "expireat" => self.expire(name, request),
            "persist" => Ok(self.persist(&request[1])),
            "pttl" | "ttl" => Ok(self.left(&request[1], name == "ttl")),
            "scan" => self.scan(request),
            "select" => argument(&request[1]).and_then(|number| match number {
                0 => Ok(Reply::ok()),
                1..16 => Err("ERR other databases are not modelled".to_owned()),
                _ => Err("ERR DB index is out of range".to_owned()),
            }),
            _ => match self.plain(name, request) {
                Some(reply) => Ok(reply),
                None => return self.hash(name, request),
            },
        };
        Some(reply.unwrap_or_else(Reply::Error))
    }

    /// Runs a command that cannot fail.
    fn plain(&mut self, name: &str, request: &[Vec<u8>]) -> Option<Reply> {
        let now = self.millis();
        Some(match (name, request) {
            ("ping", [_]) => Reply::Status("PONG".to_owned()),
            ("ping" | "echo", [_, text]) => Reply::text(text),
            ("ping", _) => Reply::error("ERR wrong number of arguments for 'ping' command"),
            ("time", _) => {
                Reply::texts([self.now.div_euclid(1_000_000), self.now.rem_euclid(1_000_000)].map(|n| n.to_string()))
            }
            ("del" | "unlink", _) => {
                let removed = request[1..].iter().filter(|key| self.keys.remove(key, now)).count();
                Reply::Int(i64::try_from(removed).unwrap())
            }
            ("exists", _) => {
                let there = request[1..].iter().filter(|key| self.keys.get(key, now).is_some()).count();
                Reply::Int(i64::try_from(there).unwrap())
            }
            ("type", _) => Reply::Status(self.type_of(&request[1]).to_owned()),
            ("dbsize", _) => Reply::Int(i64::try_from(self.keys.all(now).len()).unwrap()),
            ("keys", _) => Reply::texts(self.keys.all(now).keys().filter(|key| glob::matches(&request[1], key))),
            ("flushall" | "flushdb", [_]) => {
                self.keys.clear();
                Reply::ok()
            }
            _ => return None,
        })
    }

    fn type_of(&mut self, key: &[u8]) -> &'static str {
        let now = self.millis();
        match self.keys.get(key, now).map(|entry| &entry.value) {
            None => "none",
            Some(Value::String(_)) => "string",
            Some(Value::Hash(_)) => "hash",
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Reply, String> {
        let now = self.millis();
        match self.keys.get(key, now).map(|entry| &entry.value) {
            None => Ok(Reply::Nil),
            Some(Value::String(value)) => Ok(Reply::text(value)),
            Some(Value::Hash(_)) => Err(WRONGTYPE.to_owned()),
        }
    }

    fn set(&mut self, request: &[Vec<u8>]) -> Result<Reply, String> {
        let now = self.millis();
        let options = set_options(&request[3..], now)?;
        let key = &request[1];
        let old = if options.old_value { Some(self.get(key)?) } else { None };
        let there = self.keys.get(key, now).is_some();
        if (options.only_new && there) || (options.only_old && !there) {
            return Ok(old.unwrap_or(Reply::Nil));
        }
        let kept = self.keys.get(key, now).and_then(|entry| entry.end).filter(|_| options.keep);
        self.keys.set(key, Value::String(request[2].clone()), options.end.or(kept));
        Ok(old.unwrap_or_else(Reply::ok))
    }

    fn add(&mut self, key: &[u8], by: i64) -> Result<Reply, String> {
        let now = self.millis();
        let old = match self.get(key)? {
            Reply::Bulk(text) => integer(&text).ok_or(NOT_AN_INTEGER)?,
            _ => 0,
        };
        let sum = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        let end = self.keys.get(key, now).and_then(|entry| entry.end);
        self.keys.set(key, Value::String(sum.to_string().into_bytes()), end);
        Ok(Reply::Int(sum))
    }

    fn expire(&mut self, name: &str, request: &[Vec<u8>]) -> Result<Reply, String> {
        let now = self.millis();
        let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
        let unit = if name.starts_with('p') { 1 } else { 1_000 };
        let base = if name.ends_with("at") { 0 } else { now };
        for option in &request[3..] {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => nx = true,
                b"xx" => xx = true,
                b"gt" => gt = true,
                b"lt" => lt = true,
                _ => return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(option))),
            }
        }
        if nx && (xx || gt || lt) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
        }
        if gt && lt {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        let number = argument(&request[2])?;
        let invalid = || format!("ERR invalid expire time in '{name}' command");
        let end = number.checked_mul(unit).and_then(|millis| millis.checked_add(base)).ok_or_else(invalid)?;
        let Some(entry) = self.keys.get(&request[1], now) else { return Ok(Reply::Int(0)) };
        // A key without an expiry outlives any other.
        let refused = match entry.end {
            None => xx || gt,
            Some(old) => nx || (gt && end <= old) || (lt && end >= old),
        };
        if refused {
            return Ok(Reply::Int(0));
        }
        if end <= now {
            self.keys.remove(&request[1], now);
        } else if let Some(entry) = self.keys.get_mut(&request[1], now) {
            entry.end = Some(end);
        }
        Ok(Reply::Int(1))
    }

    fn persist(&mut self, key: &[u8]) -> Reply {
        let now = self.millis();
        if self.keys.get(key, now).is_none_or(|entry| entry.end.is_none()) {
            return Reply::Int(0);
        }
        if let Some(entry) = self.keys.get_mut(key, now) {
            entry.end = None;
        }
        Reply::Int(1)
    }

    fn left(&mut self, key: &[u8], seconds: bool) -> Reply {
        let now = self.millis();
        Reply::Int(match self.keys.get(key, now).map(|entry| entry.end) {
            None => -2,
            Some(None) => -1,
            Some(Some(end)) if seconds => ((end - now).max(0) + 500) / 1_000,
            Some(Some(end)) => (end - now).max(0),
        })
    }

    fn scan(&mut self, request: &[Vec<u8>]) -> Result<Reply, String> {
        let now = self.millis();
        let cursor = std::str::from_utf8(&request[1]).ok().and_then(|text| text.parse().ok());
        let cursor: u64 = cursor.ok_or("ERR invalid cursor")?;
        let (mut count, mut pattern, mut kind) = (10, None, None);
        let (pairs, rest) = request[2..].as_chunks::<2>();
        for [option, value] in pairs {
            match option.to_ascii_lowercase().as_slice() {
                b"count" => count = usize::try_from(argument(value)?).ok().filter(|count| *count > 0).ok_or(SYNTAX)?,
                b"match" => pattern = Some(value),
                b"type" => kind = Some(String::from_utf8_lossy(value).to_ascii_lowercase()),
                _ => return Err(SYNTAX.to_owned()),
            }
        }
        if !rest.is_empty() {
            return Err(SYNTAX.to_owned());
        }
        let (next, page) = self.keys.page(cursor, count, now);
        let wanted = page
            .into_iter()
            .filter(|key| pattern.is_none_or(|pattern| glob::matches(pattern, key)))
            .filter(|key| kind.as_ref().is_none_or(|kind| kind == self.type_of(key)));
        let keys = Reply::texts(wanted.collect::<Vec<_>>());
        Ok(Reply::Array(vec![Reply::text(next.to_string()), keys]))
    }
}

pub(super) fn argument(text: &[u8]) -> Result<i64, String> {
    integer(text).ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

fn set_options(words: &[Vec<u8>], now: i64) -> Result<SetOptions, String> {
    let mut options = SetOptions::default();
    // The unit in milliseconds, whether the time is absolute, and the time.
    let mut expiry: Option<(i64, bool, &[u8])> = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let fresh = expiry.is_none() && !options.keep;
        let mut time = |unit, absolute| words.next().map(|text| (unit, absolute, text.as_slice())).ok_or(SYNTAX);
        match word.to_ascii_lowercase().as_slice() {
            b"nx" if !options.only_old => options.only_new = true,
            b"xx" if !options.only_new => options.only_old = true,
            b"get" => options.old_value = true,
            b"keepttl" if expiry.is_none() => options.keep = true,
            b"ex" if fresh => expiry = Some(time(1_000, false)?),
            b"px" if fresh => expiry = Some(time(1, false)?),
            b"exat" if fresh => expiry = Some(time(1_000, true)?),
            b"pxat" if fresh => expiry = Some(time(1, true)?),
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    if let Some((unit, absolute, text)) = expiry {
        let invalid = "ERR invalid expire time in 'set' command";
        let number = argument(text)?;
        let millis = number.checked_mul(unit).filter(|_| number > 0).ok_or(invalid)?;
        options.end = Some(millis.checked_add(if absolute { 0 } else { now }).ok_or(invalid)?);
    }
    Ok(options)
}
