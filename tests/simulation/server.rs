//! A Redis master from the view of its clients.
//!
//! It has the contracts of the scripts in `crates/engine/src/voting/scripts`, and a clock of its own.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redlock_operator::redlock::{Command, FencingToken, KeyState, MemberError, Reply, RunId, StoredValue};
use redlock_operator::time::UnixMicros;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z.
const EPOCH_MICROS: i64 = 1_767_225_600_000_000;

pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) up: bool,
    /// Whether the voting users can run commands.
    pub(crate) open: bool,
    pub(crate) counter: i64,
    /// The value of each key, and the last millisecond of the member's time in which the key exists.
    keys: BTreeMap<String, (String, i64)>,
    pub(crate) frozen_until: Instant,
    /// By how much the wall clock was stepped, and its drift.
    pub(crate) stepped_micros: i64,
    ppm: i64,
}

pub(crate) struct Server {
    pub(crate) name: String,
    start: Instant,
    process: Mutex<Process>,
}

impl Server {
    pub(crate) fn new(name: String, ppm: i64) -> Self {
        let start = Instant::now();
        let process = Process {
            number: 1,
            up: true,
            open: false,
            counter: 0,
            keys: BTreeMap::new(),
            frozen_until: start,
            stepped_micros: 0,
            ppm,
        };
        Self { name, start, process: Mutex::new(process) }
    }

    pub(crate) fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap()
    }

    pub(crate) fn run_id(&self) -> RunId {
        RunId::new(format!("{} run {}", self.name, self.process().number))
    }

    /// Ends the process.
    ///
    /// The next one has no data, but the same clock.
    pub(crate) fn stop(&self) {
        let mut process = self.process();
        process.number += 1;
        (process.up, process.open, process.counter) = (false, false, 0);
        process.keys.clear();
    }

    fn time_of(&self, process: &Process) -> UnixMicros {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).unwrap();
        UnixMicros(EPOCH_MICROS + elapsed + elapsed * process.ppm / 1_000_000 + process.stepped_micros)
    }

    /// The member's `TIME`.
    pub(crate) fn time(&self) -> UnixMicros {
        self.time_of(&self.process())
    }

    /// Resolves when the process runs, for a moment at least.
    pub(crate) async fn thaw(&self) {
        loop {
            let until = self.process().frozen_until;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    pub(crate) fn execute(&self, command: &Command) -> Reply {
        let mut process = self.process();
        let time = self.time_of(&process);
        let now = time.0.div_euclid(1_000);
        process.keys.retain(|_, (_, last)| now <= *last);
        let process = &mut *process;
        let name = command.key().expect("no counter is restored by a voter here").as_str().to_owned();
        let held = process.keys.get(&name).cloned();
        let holds = |value: &str| held.as_ref().is_some_and(|(held, _)| held == value);
        let ends_in = |ttl: Duration| now + i64::try_from(ttl.as_millis()).unwrap();
        let left = |last: i64| Duration::from_millis(u64::try_from(last - now).unwrap());
        let holder = held.as_ref().map_or(KeyState::Missing, |(value, last)| KeyState::String {
            value: StoredValue::new(value),
            remaining: Some(left(*last)),
        });
        match command {
            Command::Acquire { .. } if held.is_some() => Reply::Refused { holder, time: Some(time) },
            Command::Acquire { not_after: Some(last), .. } if time > *last => Reply::Failed(MemberError::TimedOut),
            Command::Acquire { value, ttl, .. } => {
                process.keys.insert(name, (value.expose().to_owned(), ends_in(*ttl)));
                process.counter += 1;
                Reply::Acquired { token: FencingToken::new(process.counter).unwrap(), time: Some(time) }
            }
            Command::RaiseCounter { value, .. } if !holds(value.expose()) => Reply::NotOurs,
            Command::RaiseCounter { token, .. } => {
                process.counter = process.counter.max(token.get());
                Reply::Raised
            }
            Command::Extend { value, .. } if !holds(value.expose()) => Reply::Refused { holder, time: Some(time) },
            Command::Extend { ttl, .. } => {
                let (value, last) = held.unwrap();
                process.keys.insert(name, (value, last.max(ends_in(*ttl))));
                Reply::Extended { time: Some(time) }
            }
            Command::Repair { value, px, until, not_after, .. } => {
                let left = (until.0 - time.0).div_euclid(1_000);
                let ttl = left.min(i64::try_from(px.as_millis()).unwrap());
                let sets = ttl > 0 && time <= *not_after && held.is_none();
                if sets {
                    process.keys.insert(name, (value.expose().to_owned(), now + ttl));
                }
                Reply::Done(sets)
            }
            Command::Seal { value, sealed, lock_delay, least, .. } => {
                let last = match held {
                    Some((held, last)) if held == value.expose() => last + ends_in(*lock_delay) - now,
                    Some((held, last)) if held == sealed.expose() => last,
                    _ => return Reply::NotOurs,
                };
                let last = last.max(ends_in(*least));
                process.keys.insert(name, (sealed.expose().to_owned(), last));
                Reply::Sealed { remaining: left(last) }
            }
            Command::Release { value, .. } => {
                let ours = holds(value.expose());
                if ours {
                    process.keys.remove(&name);
                }
                Reply::Done(ours)
            }
            Command::Announce { .. } => Reply::Announced(0),
            Command::Restore { .. } | Command::Inspect { .. } => Reply::State(holder),
        }
    }
}
