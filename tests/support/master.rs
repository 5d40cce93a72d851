//! A Redis master in memory, for one command after the other.
//!
//! It has the contracts of the scripts in `crates/engine/src/voting/scripts`. The tests of the engine and the simulation
//! of the library add their own delays and faults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Command, FencingToken, KeyState, MemberError, Reply, StoredValue, UnixMicros};

/// The data of one process.
#[derive(Default)]
pub(crate) struct Master {
    pub(crate) counter: i64,
    /// The value of each key, and the last millisecond of the master's time in which the key exists.
    pub(crate) keys: BTreeMap<String, (String, i64)>,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

impl Master {
    /// Executes one command at this time of the master.
    pub(crate) fn execute(&mut self, command: &Command, time: UnixMicros) -> Reply {
        let now = time.0.div_euclid(1_000);
        self.keys.retain(|_, (_, last)| now <= *last);
        let Some(key) = command.key() else { return Reply::Raised };
        let key = key.as_str().to_owned();
        let held = self.keys.get(&key).cloned();
        let holds = |value: &str| held.as_ref().is_some_and(|(held, _)| held == value);
        let left = |last: i64| Duration::from_millis(u64::try_from(last - now).unwrap());
        let holder = held.as_ref().map_or(KeyState::Missing, |(value, last)| KeyState::String {
            value: StoredValue::new(value),
            remaining: Some(left(*last)),
        });
        match command {
            Command::Acquire { .. } if held.is_some() => Reply::Refused { holder, time: Some(time) },
            Command::Acquire { not_after: Some(last), .. } if time > *last => Reply::Failed(MemberError::TimedOut),
            Command::Acquire { value, ttl, token, .. } => {
                self.keys.insert(key, (value.expose().to_owned(), now + millis(*ttl)));
                self.counter += i64::from(*token);
                let number = if *token { self.counter } else { 0 };
                Reply::Acquired { token: FencingToken::new(number).unwrap(), time: Some(time) }
            }
            Command::RaiseCounter { value, .. } if !holds(value.expose()) => Reply::NotOurs,
            Command::RaiseCounter { token, .. } => {
                self.counter = self.counter.max(token.get());
                Reply::Raised
            }
            Command::Extend { value, .. } if !holds(value.expose()) => Reply::Refused { holder, time: Some(time) },
            Command::Extend { ttl, .. } => {
                let (value, last) = held.unwrap();
                self.keys.insert(key, (value, last.max(now + millis(*ttl))));
                Reply::Extended { time: Some(time) }
            }
            Command::Repair { value, px, until, not_after, .. } => {
                let ttl = (until.0 - time.0).div_euclid(1_000).min(millis(*px));
                let sets = ttl > 0 && time <= *not_after && held.is_none();
                if sets {
                    self.keys.insert(key, (value.expose().to_owned(), now + ttl));
                }
                Reply::Done(sets)
            }
            Command::Seal { value, sealed, lock_delay, least, .. } => {
                let last = match held {
                    Some((held, last)) if held == value.expose() => last + millis(*lock_delay),
                    Some((held, last)) if held == sealed.expose() => last,
                    _ => return Reply::NotOurs,
                };
                let last = last.max(now + millis(*least));
                self.keys.insert(key, (sealed.expose().to_owned(), last));
                Reply::Sealed { remaining: left(last) }
            }
            Command::Release { value, .. } => {
                let ours = holds(value.expose());
                if ours {
                    self.keys.remove(&key);
                }
                Reply::Done(ours)
            }
            Command::Announce { .. } => Reply::Announced(0),
            Command::Restore { .. } | Command::Inspect { .. } => Reply::State(holder),
        }
    }
}
