//! One client's connection to one member: first in, first out, late, cut, and opened again.
//!
//! A connection leads to one process and ends with it. Undelivered releases are sent on the next connection, as in
//! `redis_member`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_operator::redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName};
use redlock_operator::time::{Boottime, Clock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::rng::Rng;
use super::server::Server;

/// The behaviour of a link.
///
/// The nemesis changes it.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    /// The maximum latency of one direction, in milliseconds.
    pub(crate) slowest: u64,
    /// The end of the cut, before which nothing passes.
    pub(crate) cut_until: Instant,
    /// Lost answers, in percent.
    pub(crate) deaf: u64,
}

struct Job {
    commands: Vec<Command>,
    sent: Boottime,
    answer: oneshot::Sender<Result<Answers, MemberError>>,
}

pub(crate) struct Link<C> {
    name: MemberName,
    clock: Arc<C>,
    queue: mpsc::UnboundedSender<Job>,
    pub(crate) weather: Arc<Mutex<Weather>>,
}

impl<C: Clock> Link<C> {
    pub(crate) fn new(server: Arc<Server>, clock: Arc<C>, rng: Rng) -> Arc<Self> {
        let (queue, jobs) = mpsc::unbounded_channel();
        let weather = Weather { slowest: 2, cut_until: Instant::now(), deaf: 0 };
        let link = Arc::new(Self {
            name: MemberName::new(server.name.as_str()),
            clock: clock.clone(),
            queue,
            weather: Arc::new(Mutex::new(weather)),
        });
        let wire = Wire { server, clock, rng, weather: link.weather.clone(), process: 0, owed: Vec::new() };
        tokio::spawn(wire.run(jobs));
        link
    }
}

impl<C: Clock> LockMember for Link<C> {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        let (answer, answered) = oneshot::channel();
        let _ = self.queue.send(Job { commands, sent: self.clock.boottime(), answer });
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err(MemberError::Unreachable("connection closed".to_owned())))
        })
    }
}

struct Wire<C> {
    server: Arc<Server>,
    clock: Arc<C>,
    rng: Rng,
    weather: Arc<Mutex<Weather>>,
    /// The process of the connection, or 0 without a connection.
    process: u32,
    owed: Vec<Command>,
}

impl<C: Clock> Wire<C> {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(job) = jobs.recv().await {
            let weather = *self.weather.lock().unwrap();
            sleep(self.rng.millis(0, weather.slowest)).await;
            if weather.cut_until > Instant::now() {
                if self.rng.percent(40) {
                    self.broken(job);
                    continue;
                }
                // Written requests are not lost, but late.
                sleep_until(weather.cut_until).await;
            }
            self.server.thaw().await;
            self.deliver(job, weather).await;
        }
    }

    async fn deliver(&mut self, job: Job, weather: Weather) {
        let (number, up, open) = {
            let process = self.server.process();
            (process.number, process.up, process.open)
        };
        if !up || (self.process != number && self.process != 0) {
            self.process = 0;
            return self.broken(job);
        }
        if !open {
            let _ = job.answer.send(Err(MemberError::Fenced));
            return;
        }
        if self.process == 0 {
            self.process = number;
            for release in std::mem::take(&mut self.owed) {
                self.server.execute(&release);
            }
        }
        let replies: Vec<_> = job.commands.iter().map(|command| self.server.execute(command)).collect();
        let run_id = self.server.run_id();
        if self.rng.percent(1) {
            self.execute_later(job.commands.clone(), 1_500);
        }
        if self.rng.percent(weather.deaf) {
            // The answer is lost, and the sender's deadline passes.
            tokio::spawn(async move {
                sleep(Duration::from_secs(5)).await;
                drop(job.answer);
            });
            return;
        }
        let (delay, clock) = (self.rng.millis(0, weather.slowest), self.clock.clone());
        tokio::spawn(async move {
            sleep(delay).await;
            let answers = Answers { run_id, sent: job.sent, received: clock.boottime(), replies: replies.into() };
            let _ = job.answer.send(Ok(answers));
        });
    }

    /// Handles the end of the connection.
    ///
    /// The member can still have received its requests.
    fn broken(&mut self, job: Job) {
        self.process = 0;
        self.owed.extend(job.commands.iter().filter(|command| matches!(command, Command::Release { .. })).cloned());
        if self.rng.percent(50) {
            self.execute_later(job.commands, 800);
        }
        let _ = job.answer.send(Err(MemberError::Unreachable("connection closed".to_owned())));
    }

    /// Executes the commands later, if the same process still runs then.
    fn execute_later(&mut self, commands: Vec<Command>, latest: u64) {
        let (server, delay) = (self.server.clone(), self.rng.millis(0, latest));
        let number = server.process().number;
        tokio::spawn(async move {
            sleep(delay).await;
            server.thaw().await;
            let same = {
                let process = server.process();
                process.number == number && process.up && process.open
            };
            if same {
                commands.iter().for_each(|command| drop(server.execute(command)));
            }
        });
    }
}
