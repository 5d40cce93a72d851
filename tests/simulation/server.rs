//! A Redis master with a clock of its own, whose processes end and freeze.

#[path = "../support/master.rs"]
mod master;

use std::sync::{Mutex, MutexGuard};

use redlock_operator::redlock::{Command, FencingToken, KeyState, MemberError, Reply, RunId, StoredValue};
use redlock_operator::time::UnixMicros;
use tokio::time::Instant;

use master::Master;

/// 2026-01-01T00:00:00Z.
const EPOCH_MICROS: i64 = 1_767_225_600_000_000;

pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) up: bool,
    /// Whether the voting users can run commands.
    pub(crate) open: bool,
    pub(crate) master: Master,
    pub(crate) frozen_until: Instant,
    /// The total of the steps of the wall clock, and its drift.
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
            master: Master::default(),
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
        (process.up, process.open, process.master) = (false, false, Master::default());
    }

    fn time_of(&self, process: &Process) -> UnixMicros {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).unwrap();
        UnixMicros(EPOCH_MICROS + elapsed + elapsed * process.ppm / 1_000_000 + process.stepped_micros)
    }

    /// The member's `TIME`.
    pub(crate) fn time(&self) -> UnixMicros {
        self.time_of(&self.process())
    }

    /// Waits until the process is not frozen at the moment.
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
        process.master.execute(command, time)
    }
}
