//! The beliefs of each holder, and a check of them.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redlock_operator::redlock::FencingToken;
use tokio::time::Instant;

/// One belief: the holder, its key, and the interval.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) who: String,
    pub(crate) key: String,
    pub(crate) token: FencingToken,
    pub(crate) from: Duration,
    /// The end of the validity, or the release if that was earlier.
    pub(crate) until: Duration,
    /// When the seal of this hold has expired.
    pub(crate) sealed_until: Option<Duration>,
}

#[derive(Default)]
struct Log {
    intervals: Vec<Interval>,
    events: String,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) grants: u64,
    pub(crate) renewals: u64,
    pub(crate) repairs: u64,
    pub(crate) seals: u64,
    pub(crate) takeovers: u64,
    pub(crate) faults: u64,
    pub(crate) restarts: u64,
    pub(crate) admissions: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.grants += other.grants;
        self.renewals += other.renewals;
        self.repairs += other.repairs;
        self.seals += other.seals;
        self.takeovers += other.takeovers;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.admissions += other.admissions;
    }
}

pub(crate) struct History {
    start: Instant,
    log: Mutex<Log>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), log: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.log().counts);
    }

    pub(crate) fn note(&self, event: &str) {
        let now = self.now();
        writeln!(self.log().events, "{:>9.3} s  {event}", now.as_secs_f64()).unwrap();
    }

    /// Begins an interval, and returns its number.
    pub(crate) fn granted(&self, who: &str, key: &str, token: FencingToken, until: Duration) -> usize {
        self.note(&format!("{who}: holds {key} with token {token} until {:.3}", until.as_secs_f64()));
        let mut log = self.log();
        let interval =
            Interval { who: who.to_owned(), key: key.to_owned(), token, from: self.now(), until, sealed_until: None };
        log.counts.grants += 1;
        log.intervals.push(interval);
        log.intervals.len() - 1
    }

    pub(crate) fn valid_until(&self, interval: usize, who: &str, until: Duration) {
        let longer = {
            let mut log = self.log();
            let interval = &mut log.intervals[interval];
            let longer = until > interval.until;
            interval.until = interval.until.max(until);
            longer.then(|| interval.key.clone())
        };
        if let Some(key) = longer {
            self.note(&format!("{who}: {key} is valid until {:.3}", until.as_secs_f64()));
        }
    }

    pub(crate) fn released(&self, interval: usize) {
        let now = self.now();
        let message = {
            let interval = &mut self.log().intervals[interval];
            interval.until = interval.until.min(now);
            format!("{}: releases {}", interval.who, interval.key)
        };
        self.note(&message);
    }

    pub(crate) fn sealed(&self, interval: usize, until: Duration) {
        let message = {
            let interval = &mut self.log().intervals[interval];
            interval.sealed_until = Some(until);
            format!("{}'s {} is sealed until {:.3}", interval.who, interval.key, until.as_secs_f64())
        };
        self.note(&message);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.log().counts
    }

    pub(crate) fn events(&self) -> String {
        self.log().events.clone()
    }

    /// All violations.
    pub(crate) fn violations(&self) -> Vec<String> {
        let log = self.log();
        let mut wrong = Vec::new();
        for (number, later) in log.intervals.iter().enumerate() {
            if later.sealed_until.is_some_and(|sealed| later.until > sealed) {
                wrong.push(format!("a hold is valid after its seal ran out: {later:?}"));
            }
            for earlier in log.intervals[..number].iter().filter(|earlier| earlier.key == later.key) {
                if later.from < earlier.until && earlier.from < later.until {
                    wrong.push(format!("two holders: {earlier:?} and {later:?}"));
                }
                if later.token <= earlier.token {
                    wrong.push(format!("a later token is not greater: {earlier:?} and {later:?}"));
                }
            }
        }
        wrong
    }
}
