//! The task behind a [`super::RedisMember`].

use super::endpoint::{Connected, Driver, connect};
use super::job::{Job, Link};
use super::owed::Owed;
use super::session::Session;
use super::{Endpoint, Guard, Machine};
use crate::redlock::{MemberError, MemberName};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// TCP, TLS and authentication together.
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// The wait before the next connection attempt, doubled up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// How often a connection is looked after.
const TICK: Duration = Duration::from_millis(250);
/// Jobs taken from the queue at once.
const JOBS: usize = 1024;
/// Commands written as one pipeline, unless a single job has more: a pipeline is answered as a whole.
const PIPELINE: usize = 128;

pub(super) struct Actor {
    name: MemberName,
    queue: mpsc::UnboundedReceiver<Job>,
    endpoints: watch::Receiver<Endpoint>,
    link: watch::Sender<Link>,
    machine: Machine,
    guard: Option<Guard>,
    owed: Owed,
}

/// Why a connection, or the task, ended.
enum End {
    /// The member was dropped.
    Dropped,
    /// The endpoint has changed.
    Moved,
    /// The connection broke.
    Broken(MemberError),
}

impl Actor {
    pub(super) fn new(
        name: MemberName,
        queue: mpsc::UnboundedReceiver<Job>,
        endpoints: watch::Receiver<Endpoint>,
        link: watch::Sender<Link>,
        machine: Machine,
        guard: Option<Guard>,
    ) -> Self {
        Self { name, queue, endpoints, link, machine, guard, owed: Owed::default() }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let end = match self.connect().await {
                Ok((endpoint, Connected { connection, driver, incoming, .. })) => {
                    tracing::debug!(member = %self.name, "connected");
                    self.link.send_replace(Link::Fenced);
                    let clock = Arc::clone(&self.machine.clock);
                    let mut session = Session::new(connection, incoming, clock, self.guard.clone());
                    session.send(Vec::new(), self.owed.take()).await;
                    let end = self.serve(&endpoint, &mut session, driver).await;
                    if session.was_answered() {
                        backoff = FIRST_BACKOFF;
                    }
                    self.abandon(session);
                    end
                }
                Err(end) => end,
            };
            match end {
                End::Dropped => return,
                End::Moved => backoff = FIRST_BACKOFF,
                End::Broken(error) => {
                    tracing::debug!(member = %self.name, %error, "disconnected");
                    self.link.send_replace(Link::Down(error));
                    if let Err(End::Dropped) = self.without_connection(sleep(backoff)).await {
                        return;
                    }
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<(Endpoint, Connected), End> {
        let endpoint = self.endpoints.borrow_and_update().clone();
        let network = Arc::clone(&self.machine.network);
        let attempt = async { timeout(CONNECT_DEADLINE, connect(&endpoint, &*network)).await };
        match self.without_connection(attempt).await? {
            Ok(Ok(connected)) => Ok((endpoint, connected)),
            Ok(Err(error)) => Err(End::Broken(error)),
            Err(_) => Err(End::Broken(MemberError::Unreachable("connecting took too long".to_owned()))),
        }
    }

    /// Waits for something while there is no connection: jobs fail at once and are not kept, since a late `SET` would
    /// take the lock for nobody.
    async fn without_connection<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                done = &mut wait => return Ok(done),
                changed = self.endpoints.changed() => {
                    return Err(if changed.is_ok() { End::Moved } else { End::Dropped });
                }
                job = self.queue.recv() => match job {
                    Some(job) => self.fail(job),
                    None => return Err(End::Dropped),
                },
            }
        }
    }

    fn fail(&mut self, job: Job) {
        let error = match &*self.link.borrow() {
            Link::Down(error) => error.clone(),
            _ => MemberError::Unreachable("connection closed".to_owned()),
        };
        self.owed.keep(job.commands);
        // Nobody may be waiting for it any more.
        let _ = job.answer.send(Err(error));
    }

    /// Everything that is not answered fails; releases among it are delivered with the next connection.
    fn abandon(&mut self, session: Session) {
        self.link.send_replace(Link::Down(MemberError::Unreachable("connection closed".to_owned())));
        let (owed, jobs) = session.into_unanswered();
        self.owed.keep(owed);
        jobs.into_iter().for_each(|job| self.fail(job));
    }

    async fn serve(&mut self, endpoint: &Endpoint, session: &mut Session, mut driver: Driver) -> End {
        let mut jobs = Vec::new();
        let mut ticks = interval(TICK);
        // After a suspend the ticks that were missed are no sign of silence.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                answered = session.answered() => {
                    if let Err(error) = session.on_answer(answered, &self.link) {
                        return End::Broken(error);
                    }
                }
                // After the answers: those that came before the end still count.
                () = &mut driver => return End::Broken(MemberError::Unreachable("connection closed".to_owned())),
                count = self.queue.recv_many(&mut jobs, JOBS) => {
                    if count == 0 {
                        return End::Dropped;
                    }
                    for pipeline in pipelines(&mut jobs) {
                        session.send(pipeline, Vec::new()).await;
                    }
                }
                changed = self.endpoints.changed() => {
                    if changed.is_err() {
                        return End::Dropped;
                    }
                    // What this connection has proved stays proved: a new password is for the next one.
                    if !self.endpoints.borrow_and_update().is_same_peer(endpoint) {
                        return End::Moved;
                    }
                }
                _ = ticks.tick() => {
                    if let Err(error) = session.tick().await {
                        return End::Broken(error);
                    }
                }
            }
        }
    }
}

/// The jobs in their order, cut into pipelines.
fn pipelines(jobs: &mut Vec<Job>) -> Vec<Vec<Job>> {
    let mut pipelines = vec![Vec::new()];
    let mut commands = 0;
    for job in jobs.drain(..) {
        if commands > 0 && commands + job.commands.len() > PIPELINE {
            pipelines.push(Vec::new());
            commands = 0;
        }
        commands += job.commands.len();
        if let Some(last) = pipelines.last_mut() {
            last.push(job);
        }
    }
    pipelines
}
