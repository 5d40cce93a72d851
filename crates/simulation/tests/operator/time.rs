//! True time, which no process of the simulation can read, and the clocks that it can read.

use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_operator::time::{Boottime, Clock, Monotonic, UnixMillis};

/// 2026-01-01T00:00:00Z: the start of every simulation.
const START: i64 = 1_767_225_600_000;
/// The uptime of machines at the start, so that earlier times exist.
const UPTIME: u64 = 1_000_000_000_000;

/// True time in microseconds since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At(pub(crate) u64);

impl At {
    /// The time of a correct clock.
    pub(crate) const fn unix_millis(self) -> i64 {
        START + (self.0 / 1_000) as i64
    }

    pub(crate) const fn unix_micros(self) -> i64 {
        START * 1_000 + self.0 as i64
    }
}

impl Add<u64> for At {
    type Output = Self;

    fn add(self, micros: u64) -> Self {
        Self(self.0 + micros)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// The clocks of one machine with a process of the simulation.
///
/// They stand still between ticks, and follow tokio's clock inside a tick.
#[derive(Debug)]
pub(crate) struct MachineClock(Mutex<State>);

#[derive(Debug)]
struct State {
    /// CLOCK_MONOTONIC at the beginning of this tick.
    monotonic: u64,
    /// The part of CLOCK_BOOTTIME during which the machine was suspended.
    suspended: u64,
    /// The difference of the wall clock and CLOCK_BOOTTIME, in microseconds.
    wall: i64,
    /// True time at the beginning of this tick, and its length.
    tick: (At, u64),
    /// tokio's clock at the beginning of this tick, while the runtime runs.
    began: Option<tokio::time::Instant>,
}

impl MachineClock {
    /// A machine whose wall clock has this error, in microseconds.
    pub(crate) fn new(now: At, wrong: i64) -> Arc<Self> {
        let monotonic = UPTIME + now.0;
        let wall = now.unix_micros() + wrong - monotonic as i64;
        Arc::new(Self(Mutex::new(State { monotonic, suspended: 0, wall, tick: (now, 0), began: None })))
    }

    /// Begins a tick, inside the runtime.
    pub(crate) fn begin(&self, now: At, length: u64) {
        let mut state = self.0.lock().unwrap();
        state.tick = (now, length);
        state.began = Some(tokio::time::Instant::now());
    }

    /// Ends the tick, inside the runtime.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock().unwrap();
        state.monotonic += state.passed();
        state.began = None;
    }

    /// Advances the clocks while the process does not run.
    pub(crate) fn pass(&self, micros: u64) {
        self.0.lock().unwrap().monotonic += micros;
    }

    /// Suspends the machine for this time.
    pub(crate) fn suspend(&self, micros: u64) {
        self.0.lock().unwrap().suspended += micros;
    }

    /// Steps the wall clock.
    pub(crate) fn step(&self, by: i64) {
        self.0.lock().unwrap().wall += by;
    }

    /// True time, for messages of the process.
    pub(crate) fn true_time(&self) -> At {
        let state = self.0.lock().unwrap();
        state.tick.0 + state.passed().min(state.tick.1)
    }

    fn boottime(&self) -> u64 {
        let state = self.0.lock().unwrap();
        state.monotonic + state.suspended + state.passed()
    }
}

impl State {
    /// Microseconds since the beginning of this tick, on the process's own clock.
    fn passed(&self) -> u64 {
        self.began.map_or(0, |began| u64::try_from(began.elapsed().as_micros()).unwrap())
    }
}

impl Clock for MachineClock {
    fn boottime(&self) -> Boottime {
        Boottime::new(Duration::from_micros(self.boottime()))
    }

    fn monotonic(&self) -> Monotonic {
        let state = self.0.lock().unwrap();
        Monotonic::new(Duration::from_micros(state.monotonic + state.passed()))
    }

    fn wall(&self) -> UnixMillis {
        let wall = self.0.lock().unwrap().wall;
        UnixMillis((self.boottime() as i64 + wall).div_euclid(1_000))
    }
}
