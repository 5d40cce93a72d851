//! A process of the product on a machine of its own.
//!
//! Its runtime has paused time, and the coordinator advances it tick by tick.

use std::sync::Arc;
use std::time::Duration;

use redlock_operator::redlock::BoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::logs;
use crate::messages::{MessageQueue, Port, Sent};
use crate::time::{At, MachineClock};

/// Whether the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Running,
    /// SIGSTOP: its clocks continue, and its timers are late.
    Stopped,
    /// Its machine is suspended: only CLOCK_BOOTTIME and the wall clock continue.
    Suspended,
}

/// The inputs of one life of a process.
pub(crate) struct Life {
    /// Its name.
    pub(crate) name: String,
    pub(crate) port: Arc<Port>,
    pub(crate) clock: Arc<MachineClock>,
    /// Cancelled by SIGTERM.
    pub(crate) terminated: CancellationToken,
}

/// The program.
pub(crate) type Main = Box<dyn Fn(Life) -> BoxFuture<'static, ()>>;

pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) clock: Arc<MachineClock>,
    pub(crate) pace: Pace,
    /// The drift of the machine's clocks, in millionths.
    pub(crate) drift: i64,
    /// Number of lives up to now.
    pub(crate) life: u32,
    /// Whether each life has a name of its own, like the pods of a Deployment.
    pub(crate) renames: bool,
    main: Main,
    number: usize,
    life_now: Option<(Runtime, Arc<Port>, CancellationToken)>,
    /// Microseconds by which the clocks are behind, because a runtime advances by whole milliseconds.
    owed: i64,
    /// Microseconds that a stopped process has missed.
    missed: u64,
}

impl Process {
    pub(crate) fn new(number: usize, name: &str, clock: Arc<MachineClock>, drift: i64, main: Main) -> Self {
        let (name, pace) = (name.to_owned(), Pace::Running);
        Self { name, clock, pace, drift, life: 0, renames: false, main, number, life_now: None, owed: 0, missed: 0 }
    }

    pub(crate) fn lives(&self) -> bool {
        self.life_now.is_some()
    }

    /// Number of tasks of its runtime, for leak checks.
    pub(crate) fn tasks(&self) -> usize {
        self.life_now.as_ref().map_or(0, |(runtime, ..)| runtime.metrics().num_alive_tasks())
    }

    pub(crate) fn start(&mut self, messages: &Arc<MessageQueue>) {
        let port = Port::new(messages.clone(), self.number, self.clock.clone());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let terminated = CancellationToken::new();
        if self.renames && self.life > 0 {
            let base = self.name.split('-').next().unwrap_or_default();
            self.name = format!("{base}-{}", self.life);
        }
        let life = Life {
            name: self.name.clone(),
            port: port.clone(),
            clock: self.clock.clone(),
            terminated: terminated.clone(),
        };
        let (main, ending) = ((self.main)(life), port.clone());
        runtime.spawn(async move {
            main.await;
            ending.send(Sent::Ended);
        });
        self.life_now = Some((runtime, port, terminated));
        self.life += 1;
        self.pace = Pace::Running;
        (self.owed, self.missed) = (0, 0);
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        if let Some((.., terminated)) = &self.life_now {
            terminated.cancel();
        }
    }

    /// Whether this life got SIGTERM.
    pub(crate) fn is_terminated(&self) -> bool {
        self.life_now.as_ref().is_some_and(|(.., terminated)| terminated.is_cancelled())
    }

    /// SIGKILL: the process is off the network before any destructor runs.
    pub(crate) fn kill(&mut self) {
        if let Some((runtime, port, _)) = self.life_now.take() {
            port.unplug();
            drop(runtime);
        }
    }

    /// One tick of true time.
    ///
    /// The machine's clocks continue while a process does not run.
    pub(crate) fn tick(&mut self, now: At, length: u64) {
        self.owed += length as i64 + length as i64 * self.drift / 1_000_000;
        let local = self.owed / 1_000 * 1_000;
        self.owed -= local;
        let local = local as u64;
        let Some((runtime, ..)) = self.life_now.as_ref().filter(|_| self.pace == Pace::Running) else {
            match self.pace {
                Pace::Suspended if self.lives() => self.clock.suspend(local),
                Pace::Stopped if self.lives() => self.missed += local,
                _ => self.clock.pass(local),
            }
            return;
        };
        logs::turn(now, &self.name);
        let (clock, missed) = (self.clock.clone(), std::mem::take(&mut self.missed));
        runtime.block_on(async move {
            clock.begin(now, length);
            if missed > 0 {
                tokio::time::advance(Duration::from_micros(missed)).await;
            }
            tokio::time::sleep(Duration::from_micros(local)).await;
            clock.end();
        });
    }
}
