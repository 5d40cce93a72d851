//! Executes the commands of a fake master.
//!
//! It recognises scripts by their code, and runs them in Rust.

use std::collections::BTreeMap;
use std::time::Duration;

use super::protocol::Reply;
use super::store::Store;
use crate::time::{Boottime, UnixMillis};
use crate::voting::{CODE, digest};

/// The scripts that a client loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Script {
    Acquire,
    Extend,
    ExtendAsClient,
    Inspect,
    RaiseCounter,
    Release,
    ReleaseAll,
    Repair,
    Restore,
    Seal,
}

/// The scripts by the names of their files.
const SCRIPTS: [(&str, Script); 10] = [
    ("acquire", Script::Acquire),
    ("extend", Script::Extend),
    ("extend_as_client", Script::ExtendAsClient),
    ("inspect", Script::Inspect),
    ("raise_counter", Script::RaiseCounter),
    ("release", Script::Release),
    ("release_all", Script::ReleaseAll),
    ("repair", Script::Repair),
    ("restore_counter", Script::Restore),
    ("seal", Script::Seal),
];

/// Maximum length of a reported value.
const MAX_VALUE: usize = 128;

/// Loaded scripts, by digest.
#[derive(Debug, Default)]
pub(super) struct Loaded(BTreeMap<String, Script>);

/// The execution of commands at one time.
pub(super) struct Execution<'a> {
    pub(super) store: &'a mut Store,
    pub(super) loaded: &'a mut Loaded,
    pub(super) run_id: &'a str,
    pub(super) now: Boottime,
    pub(super) wall: UnixMillis,
}

impl Execution<'_> {
    pub(super) fn execute(&mut self, command: &[String]) -> Reply {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let Some((name, arguments)) = command.split_first() else { return unknown("") };
        match (name.to_ascii_uppercase().as_str(), arguments) {
            ("PING", []) => Reply::Pong,
            ("AUTH" | "CLIENT", _) => Reply::Ok,
            ("INFO", _) => Reply::Text(format!("# Server\r\nredis_version:7.0.0\r\nrun_id:{}\r\n", self.run_id)),
            ("GET", [key]) => self.get(key).map_or(Reply::Nil, Reply::Text),
            ("PTTL", [key]) => Reply::Int(self.pttl(key)),
            ("PUBLISH", [_, _]) => Reply::Int(0),
            ("DEL", [key]) => Reply::Int(self.store.delete(key, self.now).into()),
            ("INCR", [key]) => self.increment(key),
            ("SET", [key, value, "NX", "PX", ttl]) => self.set_free(key, value, ttl),
            ("SCRIPT", ["LOAD", code]) => self.load(code),
            ("EVALSHA", [digest, keys, rest @ ..]) => self.call(digest, keys, rest),
            _ => unknown(name),
        }
    }

    fn get(&self, key: &str) -> Option<String> {
        self.store.get(key, self.now).map(str::to_owned)
    }

    fn pttl(&self, key: &str) -> i64 {
        match (self.store.get(key, self.now), self.store.until(key, self.now)) {
            (None, _) => -2,
            (Some(_), None) => -1,
            (Some(_), Some(until)) => i64::try_from(until.since(self.now).as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// The time in seconds and microseconds.
    fn time(&self) -> [Reply; 2] {
        [self.wall.0 / 1_000, self.wall.0 % 1_000 * 1_000].map(|number| Reply::Text(number.to_string()))
    }

    fn micros(&self) -> i64 {
        self.wall.0.saturating_mul(1_000)
    }

    fn increment(&mut self, key: &str) -> Reply {
        let number = self.get(key).map_or(Some(0), |text| text.parse::<i64>().ok());
        let Some(next) = number.and_then(|number| number.checked_add(1)) else {
            return Reply::Error("ERR value is not an integer or out of range".to_owned());
        };
        let until = self.store.until(key, self.now);
        self.store.set(key, &next.to_string(), until);
        Reply::Int(next)
    }

    fn set_free(&mut self, key: &str, value: &str, ttl: &str) -> Reply {
        match ttl.parse().ok().filter(|ttl| *ttl > 0) {
            None => Reply::Error("ERR invalid expire time in 'set' command".to_owned()),
            Some(_) if self.get(key).is_some() => Reply::Nil,
            Some(ttl) => {
                self.store.set(key, value, Some(self.now + Duration::from_millis(ttl)));
                Reply::Ok
            }
        }
    }

    fn load(&mut self, code: &str) -> Reply {
        let name = CODE.iter().find(|(_, end)| code.ends_with(end)).map(|(name, _)| *name);
        let Some((_, script)) = SCRIPTS.iter().find(|(file, _)| Some(*file) == name) else {
            return Reply::Error("ERR a fake master knows no script but those of redlock-client".to_owned());
        };
        let digest = digest(code);
        self.loaded.0.insert(digest.clone(), *script);
        Reply::Text(digest)
    }

    fn call(&mut self, digest: &str, keys: &str, rest: &[&str]) -> Reply {
        let Some(script) = self.loaded.0.get(digest).copied() else {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned());
        };
        let split = keys.parse().ok().and_then(|keys| rest.split_at_checked(keys));
        match split {
            Some((keys, arguments)) => self.run(script, keys, arguments).unwrap_or_else(wrong_arguments),
            None => wrong_arguments(),
        }
    }

    /// Runs a script.
    ///
    /// `None` if its arguments are wrong.
    fn run(&mut self, script: Script, keys: &[&str], arguments: &[&str]) -> Option<Reply> {
        Some(match (script, keys, arguments) {
            (Script::Acquire, _, [_, _, not_after]) if self.micros() > not_after.parse().ok()? => {
                Reply::Error("LATE the last moment of this attempt has passed".to_owned())
            }
            (Script::Acquire, [key, counter], [value, ttl, _]) => self.acquire(key, counter, value, ttl)?,
            (Script::Extend, [key], [value, ttl]) => {
                let mut elements = vec![Reply::Int(1)];
                if !self.extend(key, value, ttl)? {
                    elements = vec![Reply::Int(0)];
                    elements.extend(self.holder(key));
                }
                elements.extend(self.time());
                Reply::Array(elements)
            }
            (Script::ExtendAsClient, [key], [value, ttl]) => {
                Reply::Array(vec![Reply::Int(self.extend(key, value, ttl)?.into())])
            }
            (Script::Inspect, [key], []) => Reply::Array(self.holder(key).into()),
            (Script::RaiseCounter, [key, counter], [value, token]) => {
                let is_ours = self.holds(key, value);
                if is_ours {
                    self.raise(counter, token.parse().ok()?)?;
                }
                Reply::Int(is_ours.into())
            }
            (Script::Restore, [counter], [token]) => Reply::Int(self.raise(counter, token.parse().ok()?)?),
            (Script::Release, [key], [value]) => self.release(key, value),
            (Script::ReleaseAll, keys, values) if keys.len() == values.len() => {
                Reply::Array(keys.iter().zip(values).map(|(key, value)| self.release(key, value)).collect())
            }
            (Script::Repair, [key], [value, longest, until, not_after]) => {
                let left = (until.parse::<i64>().ok()? - self.micros()).div_euclid(1_000);
                let ttl = longest.parse::<i64>().ok()?.min(left);
                let in_time = self.micros() <= not_after.parse().ok()?;
                let is_set = ttl > 0 && in_time && self.set_free(key, value, &ttl.to_string()) == Reply::Ok;
                Reply::Int(is_set.into())
            }
            (Script::Seal, [key], [value, sealed, delay, least]) => {
                self.seal(key, value, sealed, delay.parse().ok()?, Duration::from_millis(least.parse().ok()?))
            }
            _ => return None,
        })
    }

    fn holds(&self, key: &str, value: &str) -> bool {
        self.store.get(key, self.now) == Some(value)
    }

    fn release(&mut self, key: &str, value: &str) -> Reply {
        let is_ours = self.holds(key, value);
        Reply::Int((is_ours && self.store.delete(key, self.now)).into())
    }

    fn holder(&self, key: &str) -> [Reply; 3] {
        let (kind, value) = match self.get(key) {
            Some(value) => ("string", value.chars().take(MAX_VALUE).collect()),
            None => ("missing", String::new()),
        };
        [Reply::Text(kind.to_owned()), Reply::Text(value), Reply::Int(self.pttl(key))]
    }

    fn acquire(&mut self, key: &str, counter: &str, value: &str, ttl: &str) -> Option<Reply> {
        let mut elements = match self.set_free(key, value, ttl) {
            Reply::Ok => {
                let number = self.counter(counter)? + 1;
                self.store.set(counter, &number.to_string(), None);
                vec![Reply::Int(1), Reply::Int(number)]
            }
            Reply::Nil => [&[Reply::Int(0)][..], &self.holder(key)].concat(),
            error => return Some(error),
        };
        elements.extend(self.time());
        Some(Reply::Array(elements))
    }

    /// Extends the key to at least `ttl`.
    ///
    /// Returns true if it holds the value.
    fn extend(&mut self, key: &str, value: &str, ttl: &str) -> Option<bool> {
        let until = self.now + Duration::from_millis(ttl.parse().ok()?);
        let is_ours = self.holds(key, value);
        if is_ours {
            self.store.prolong(key, until);
        }
        Some(is_ours)
    }

    fn counter(&self, key: &str) -> Option<i64> {
        self.get(key).map_or(Some(0), |text| text.parse().ok())
    }

    /// Raises the counter, and returns its number.
    fn raise(&mut self, key: &str, token: i64) -> Option<i64> {
        let current = self.counter(key)?;
        if current < token {
            self.store.set(key, &token.to_string(), None);
        }
        Some(current.max(token))
    }

    fn seal(&mut self, key: &str, value: &str, sealed: &str, delay: u64, least: Duration) -> Reply {
        if self.holds(key, value) {
            self.store.replace(key, sealed);
            if let Some(until) = self.store.until(key, self.now) {
                self.store.prolong(key, until + Duration::from_millis(delay));
            }
        } else if !self.holds(key, sealed) {
            return Reply::Array(vec![Reply::Int(0)]);
        }
        self.store.prolong(key, self.now + least);
        Reply::Array(vec![Reply::Int(1), Reply::Int(self.pttl(key))])
    }
}

fn unknown(name: &str) -> Reply {
    Reply::Error(format!("ERR unknown command '{name}'"))
}

fn wrong_arguments() -> Reply {
    Reply::Error("ERR wrong arguments of a script".to_owned())
}
