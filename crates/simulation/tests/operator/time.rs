//! True time, which nobody in the simulation can read, and the clocks that they can.

use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_operator::time::{Boottime, Clock, Monotonic, UnixMillis};

/// 2026-01-01T00:00:00Z: when every simulation begins.
const START: i64 = 1_767_225_600_000;
/// Machines have run for a while, so that "before now" exists.
const UPTIME: u64 = 1_000_000_000_000;

/// True time in microseconds since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At(pub(crate) u64);

impl At {
    /// As a clock that is right would show it.
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

/// The clocks of one machine that runs a process of the simulation. Between ticks they stand; inside one they follow tokio's.
#[derive(Debug)]
pub(crate) struct MachineClock(Mutex<State>);

#[derive(Debug)]
struct State {
    /// CLOCK_MONOTONIC at the beginning of this tick.
    monotonic: u64,
    /// What CLOCK_BOOTTIME has more: time that the machine was suspended.
    suspended: u64,
    /// What has to be added to CLOCK_BOOTTIME to give the wall clock, in microseconds.
    wall: i64,
    /// True time at the beginning of this tick, and its length.
    tick: (At, u64),
    /// tokio's clock at the beginning of this tick, while a runtime runs.
    began: Option<tokio::time::Instant>,
}

impl MachineClock {
    /// A machine whose wall clock is wrong by so many microseconds.
    pub(crate) fn new(now: At, wrong: i64) -> Arc<Self> {
        let monotonic = UPTIME + now.0;
        let wall = now.unix_micros() + wrong - monotonic as i64;
        Arc::new(Self(Mutex::new(State { monotonic, suspended: 0, wall, tick: (now, 0), began: None })))
    }

    /// A tick begins, inside the runtime.
    pub(crate) fn begin(&self, now: At, length: u64) {
        let mut state = self.0.lock().unwrap();
        state.tick = (now, length);
        state.began = Some(tokio::time::Instant::now());
    }

    /// It has ended, inside the runtime.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock().unwrap();
        state.monotonic += state.passed();
        state.began = None;
    }

    /// Time passes while the process does not run.
    pub(crate) fn pass(&self, micros: u64) {
        self.0.lock().unwrap().monotonic += micros;
    }

    /// The machine is suspended for so long.
    pub(crate) fn suspend(&self, micros: u64) {
        self.0.lock().unwrap().suspended += micros;
    }

    /// Somebody sets the wall clock.
    pub(crate) fn step(&self, by: i64) {
        self.0.lock().unwrap().wall += by;
    }

    /// True time, for what the process sends.
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
    /// Since the beginning of this tick, on the process's own clock.
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
