//! One connection, from its first command to its end.

use super::job::{Job, Link};
use super::limited::Incoming;
use super::owed::Owed;
use super::{Guard, wire};
use crate::redlock::{Answers, Command, MemberError, Reply, RunId};
use crate::time::{Boottime, Clock};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::unconstrained;

/// Ticks without any answer after which the connection is given up: two seconds.
const SILENT_TICKS: u32 = 8;
/// Ticks between two PINGs on a connection with nothing to do.
const PING_TICKS: u32 = 4;

/// The answer to the pipeline with this number.
type Answered = (u64, RedisResult<Vec<Value>>);

/// One pipeline in flight.
struct Batch {
    sent: Boottime,
    preamble: bool,
    owed: Vec<Command>,
    jobs: Vec<Job>,
}

pub(super) struct Session {
    connection: MultiplexedConnection,
    incoming: Incoming,
    clock: Arc<dyn Clock>,
    guard: Option<Guard>,
    /// Known once the preamble was answered; it never changes on one connection.
    run_id: Option<RunId>,
    batches: BTreeMap<u64, Batch>,
    /// Held until they are answered or the connection ends: the client library leaves out requests that nobody waits
    /// for, and a release that is left out leaves its key behind.
    in_flight: FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>,
    next: u64,
    silent_ticks: u32,
    idle_ticks: u32,
    /// Releases that the member has refused for the moment.
    refused: Owed,
    answered: bool,
}

impl Session {
    pub(super) fn new(
        connection: MultiplexedConnection,
        incoming: Incoming,
        clock: Arc<dyn Clock>,
        guard: Option<Guard>,
    ) -> Self {
        Self {
            connection,
            incoming,
            clock,
            guard,
            run_id: None,
            batches: BTreeMap::new(),
            in_flight: FuturesUnordered::new(),
            next: 0,
            silent_ticks: 0,
            idle_ticks: 0,
            refused: Owed::default(),
            answered: false,
        }
    }

    pub(super) const fn was_answered(&self) -> bool {
        self.answered
    }

    /// Writes everything as one pipeline, behind all that was sent before. Until the process is known, each pipeline
    /// asks for it first: the first one after the member was opened counts already.
    pub(super) async fn send(&mut self, jobs: Vec<Job>, owed: Vec<Command>) {
        let mut pipeline = Pipeline::new();
        let preamble = self.run_id.is_none();
        if preamble {
            wire::add_preamble(&mut pipeline, self.guard.as_ref());
        }
        for command in owed.iter().chain(jobs.iter().flat_map(|job| &job.commands)) {
            pipeline.add_command(wire::encode(command, self.guard.as_ref()));
        }
        if pipeline.is_empty() {
            pipeline.cmd("PING");
        }
        let number = self.next;
        self.next += 1;
        let mut connection = self.connection.clone();
        let answer = async move {
            let answer = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
            (number, answer)
        };
        // Before anything later is sent, this must stand in the library's queue, which is first-in first-out even when
        // it is full. So it is polled once here, and not held up by tokio's task budget.
        let mut answer = Box::pin(unconstrained(answer));
        let sent = self.clock.boottime();
        if self.batches.is_empty() {
            self.silent_ticks = 0;
        }
        self.batches.insert(number, Batch { sent, preamble, owed, jobs });
        match futures::poll!(&mut answer) {
            std::task::Poll::Ready(answered) => self.in_flight.push(future::ready(answered).boxed()),
            std::task::Poll::Pending => self.in_flight.push(answer),
        }
    }

    /// The next answer; pending while nothing is in flight.
    pub(super) async fn answered(&mut self) -> Answered {
        match self.in_flight.next().await {
            Some(answered) => answered,
            None => future::pending().await,
        }
    }

    /// Hands the answers out. An error means the end of the connection.
    pub(super) fn on_answer(
        &mut self,
        (number, answer): Answered,
        link: &watch::Sender<Link>,
    ) -> Result<(), MemberError> {
        let values = answer.map_err(|error| wire::error(&error))?;
        self.incoming.answered();
        let received = self.clock.boottime();
        let Some(mut batch) = self.batches.remove(&number) else { return Ok(()) };
        self.answered = true;
        self.silent_ticks = 0;
        let mut values = values.as_slice();
        if batch.preamble {
            let (preamble, rest) = values.split_at_checked(wire::PREAMBLE).ok_or_else(wire::unexpected)?;
            values = rest;
            match wire::read_preamble(preamble) {
                Ok(run_id) => self.run_id = Some(run_id),
                Err(error) => self.run_id_unknown(&mut batch, &error),
            }
        }
        let state = self.run_id.clone().map_or(Link::Fenced, Link::Open);
        link.send_if_modified(|link| {
            let changed = *link != state;
            *link = state;
            changed
        });
        // Without the process's name no answer is a vote, and run_id_unknown has answered.
        if let Some(run_id) = self.run_id.clone() {
            let mut values = values.iter();
            let owed = std::mem::take(&mut batch.owed);
            self.replies(owed, &mut values);
            for job in batch.jobs {
                let replies = self.replies(job.commands, &mut values);
                let answers = Answers { run_id: run_id.clone(), sent: batch.sent, received, replies };
                // The caller may have decided without this member.
                let _ = job.answer.send(Ok(answers));
            }
        }
        Ok(())
    }

    fn run_id_unknown(&mut self, batch: &mut Batch, error: &MemberError) {
        let owed = std::mem::take(&mut batch.owed);
        for command in owed {
            self.not_released(command, error);
        }
        for job in std::mem::take(&mut batch.jobs) {
            for command in job.commands {
                self.not_released(command, error);
            }
            let _ = job.answer.send(Err(error.clone()));
        }
    }

    fn replies<'v>(&mut self, commands: Vec<Command>, values: &mut impl Iterator<Item = &'v Value>) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(commands.len());
        for command in commands {
            let reply = values.next().map_or_else(|| Reply::Failed(wire::unexpected()), |v| wire::decode(&command, v));
            if let Reply::Failed(error) = &reply {
                if *error == MemberError::Other("NOSCRIPT".to_owned()) {
                    // Somebody flushed the scripts of a master that is not ours: load them again.
                    self.run_id = None;
                }
                self.not_released(command, error);
            }
            replies.push(reply);
        }
        replies
    }

    fn not_released(&mut self, command: Command, error: &MemberError) {
        self.refused.refused(command, error);
    }

    /// Looks after the connection: gives up a silent one, keeps an idle one under watch.
    pub(super) async fn tick(&mut self) -> Result<(), MemberError> {
        if !self.batches.is_empty() {
            self.silent_ticks += 1;
            return if self.silent_ticks >= SILENT_TICKS {
                Err(MemberError::Unreachable("no answer".to_owned()))
            } else {
                Ok(())
            };
        }
        self.idle_ticks += 1;
        if self.run_id.is_none() || self.idle_ticks >= PING_TICKS || !self.refused.is_empty() {
            self.idle_ticks = 0;
            let refused = self.refused.take();
            self.send(Vec::new(), refused).await;
        }
        Ok(())
    }

    /// What was never answered: owed releases, and jobs.
    pub(super) fn into_unanswered(mut self) -> (Vec<Command>, Vec<Job>) {
        let mut owed = self.refused.take();
        let mut jobs = Vec::new();
        for (_, batch) in self.batches {
            owed.extend(batch.owed);
            jobs.extend(batch.jobs);
        }
        (owed, jobs)
    }
}
