//! The way to one member: connecting, the connection, and what is owed between two of them.

use super::connect::{CONNECT_DEADLINE, Stream};
use super::connection::Connection;
use super::copies::Copies;
use super::endpoint::login;
use super::inbox::{Inbox, Notice};
use super::job::{Job, Link};
use super::owed::{MOST_IN_FLIGHT, Owed};
use super::wire::Rights;
use super::{Endpoint, Machine};
use crate::redlock::{BoxFuture, Command, MemberError, MemberName, RunId, jittered};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval, sleep, timeout};

/// The wait before the next connection attempt, doubled up to the longest, less a random part of up to a half.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// How often a connection is looked after.
const TICK: Duration = Duration::from_millis(250);
/// Ticks without any answer after which the connection is given up: two seconds.
const SILENT_TICKS: u32 = 8;
/// Ticks between two PINGs on a connection with nothing to do.
const PING_TICKS: u32 = 4;
/// Reads of one connection per poll, so that one member does not hold up the others.
const READS: usize = 4;
/// The buffer for what comes in, at first.
const BUFFER: usize = 16 << 10;
/// Bytes that wait for a member that does not take them. Beyond that, jobs fail at once.
const MOST_UNSENT: usize = 1 << 20;

/// Numbers of connections, for processes that may not be asked who they are.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

type Opened = Result<Box<dyn Stream>, MemberError>;

enum State {
    Connecting(Endpoint, BoxFuture<'static, Opened>),
    Waiting(Pin<Box<Sleep>>),
    Open(Box<Open>),
}

struct Open {
    endpoint: Endpoint,
    stream: Box<dyn Stream>,
    connection: Connection,
    written: usize,
    /// TLS keeps what it could not write at once.
    needs_flush: bool,
    input: Vec<u8>,
    filled: usize,
    ticks: Interval,
    silent_ticks: u32,
    idle_ticks: u32,
    /// Releases that were owed to the member, to be delivered once more. What an earlier connection has left in the buffers of a
    /// process that was frozen may be executed after what this one says first.
    again: Vec<Command>,
}

pub(super) struct Line {
    name: MemberName,
    inbox: Arc<Inbox>,
    link: watch::Sender<Link>,
    machine: Machine,
    rights: Rights,
    owed: Owed,
    backoff: Duration,
    state: State,
    /// The member was dropped. What is on its way, releases among it, is waited for.
    is_closing: bool,
    /// Room for jobs, kept from one batch to the next.
    jobs: VecDeque<Job>,
}

impl Line {
    pub(super) fn new(
        name: MemberName,
        inbox: Arc<Inbox>,
        link: watch::Sender<Link>,
        machine: Machine,
        rights: Rights,
    ) -> Self {
        let state = connecting(&inbox, &machine);
        Self {
            name,
            inbox,
            link,
            machine,
            rights,
            owed: Owed::default(),
            backoff: FIRST_BACKOFF,
            state,
            is_closing: false,
            jobs: VecDeque::new(),
        }
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.inbox.has_jobs()
    }

    pub(super) fn in_flight(&self) -> usize {
        if let State::Open(open) = &self.state { open.connection.in_flight() + open.again.len() } else { 0 }
    }

    /// Takes what the member has said, and what the owner wants.
    pub(super) fn poll_incoming(&mut self, cx: &mut Context<'_>) {
        match self.inbox.notice() {
            Some(Notice::Closed) => self.is_closing = true,
            Some(Notice::Changed(endpoint)) => self.on_endpoint(&endpoint),
            None => {}
        }
        loop {
            match &mut self.state {
                State::Connecting(endpoint, attempt) => match ready_or(attempt.as_mut().poll(cx)) {
                    Some(Ok(stream)) => {
                        let endpoint = endpoint.clone();
                        self.open(endpoint, stream);
                    }
                    Some(Err(error)) => self.wait(error),
                    None => break,
                },
                State::Waiting(wait) => match ready_or(wait.as_mut().poll(cx)) {
                    Some(()) => self.state = connecting(&self.inbox, &self.machine),
                    None => break,
                },
                State::Open(open) => match ready_or(open.poll_read(cx, &self.link)) {
                    Some(error) => self.broken(error),
                    None => break,
                },
            }
        }
    }

    /// Writes what there is to write. Ready when the member was dropped, and nothing is outstanding or can be waited for.
    pub(super) fn poll_outgoing(&mut self, cx: &mut Context<'_>, copies: &mut Copies) -> Poll<()> {
        if self.inbox.has_jobs() {
            let mut jobs = std::mem::take(&mut self.jobs);
            self.inbox.take(&mut jobs);
            if let State::Open(open) = &mut self.state {
                let room = open.room().min(jobs.len());
                if room > 0 {
                    jobs.range(..room).for_each(|job| self.owed.on_sent(&job.commands));
                    open.write(jobs.drain(..room), copies);
                }
            }
            for job in jobs.drain(..) {
                self.owed.keep_unsent(&job.commands);
                self.refuse(job);
            }
            self.jobs = jobs;
        }
        self.deliver_owed();
        if let State::Open(open) = &mut self.state
            && let Some(error) = ready_or(open.poll_write(cx))
        {
            self.broken(error);
            // The wait for the next attempt has to be begun.
            cx.waker().wake_by_ref();
        }
        self.inbox.set_in_flight(self.in_flight());
        if self.is_closing && self.in_flight() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What is owed since the connection took no more, and now it does.
    fn deliver_owed(&mut self) {
        if let State::Open(open) = &mut self.state
            && !self.owed.is_empty()
            && open.room() > 0
        {
            open.connection.write([], self.owed.take(), &mut Copies::default());
        }
    }

    /// What a connection has proved stays proved: a new password is for the next one.
    fn on_endpoint(&mut self, endpoint: &Endpoint) {
        match &self.state {
            State::Open(open) if open.endpoint.is_same_peer(endpoint) => {}
            State::Open(_) => {
                self.abandon();
                self.backoff = FIRST_BACKOFF;
                self.state = connecting(&self.inbox, &self.machine);
            }
            State::Connecting(..) | State::Waiting(_) => {
                self.backoff = FIRST_BACKOFF;
                self.state = connecting(&self.inbox, &self.machine);
            }
        }
    }

    fn open(&mut self, endpoint: Endpoint, stream: Box<dyn Stream>) {
        tracing::debug!(member = %self.name, "connected");
        // A cause that lasts is not hidden by each new connection.
        self.link.send_if_modified(|link| {
            let changes = !matches!(link, Link::Down(error) if error.is_lasting());
            if changes {
                *link = Link::Fenced;
            }
            changes
        });
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let alias = RunId::new(format!("connection {number} to {}", self.name));
        let mut connection = Connection::new(Arc::clone(&self.machine.clock), self.rights.clone(), alias);
        let owed = self.owed.take();
        connection.write([], owed.clone(), &mut Copies::default());
        let mut ticks = interval(TICK);
        // After a suspend the ticks that were missed are no sign of silence.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.state = State::Open(Box::new(Open {
            endpoint,
            stream,
            connection,
            written: 0,
            needs_flush: false,
            input: vec![0; BUFFER],
            filled: 0,
            ticks,
            silent_ticks: 0,
            idle_ticks: 0,
            again: owed,
        }));
    }

    fn wait(&mut self, error: MemberError) {
        tracing::debug!(member = %self.name, %error, "disconnected");
        self.link.send_replace(Link::Down(error));
        // Without chance all clients of a member that was away would come back at the same moment.
        let pause = jittered(self.backoff * 3 / 4, self.backoff / 4, rand::random());
        self.state = State::Waiting(Box::pin(sleep(pause)));
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
    }

    fn broken(&mut self, error: MemberError) {
        self.abandon();
        if error.is_lasting() {
            // It will be the same the next time.
            self.backoff = LONGEST_BACKOFF;
        }
        self.wait(error);
    }

    /// Everything that is not answered fails; releases among it are delivered with the next connection.
    fn abandon(&mut self) {
        self.link.send_replace(Link::Down(MemberError::Unreachable("connection closed".to_owned())));
        let idle = State::Waiting(Box::pin(sleep(Duration::ZERO)));
        if let State::Open(open) = std::mem::replace(&mut self.state, idle) {
            if open.connection.was_answered() {
                self.backoff = FIRST_BACKOFF;
            }
            let (owed, jobs) = open.connection.into_unanswered();
            self.owed.keep(open.again);
            self.owed.keep(owed);
            jobs.into_iter().for_each(|job| self.fail(job));
        }
    }

    /// Jobs are not kept for later, since a late `SET` would take the lock for nobody.
    fn fail(&mut self, job: Job) {
        self.owed.keep(job.commands.iter().cloned());
        self.refuse(job);
    }

    fn refuse(&self, job: Job) {
        let error = match &*self.link.borrow() {
            Link::Down(error) => error.clone(),
            Link::Open(_) | Link::Fenced => MemberError::Unreachable("too many requests are outstanding".to_owned()),
        };
        job.slot.answer(Err(error));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.link.send_replace(Link::Down(MemberError::Unreachable("connection closed".to_owned())));
    }
}

fn ready_or<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn connecting(inbox: &Inbox, machine: &Machine) -> State {
    let endpoint = inbox.endpoint();
    let (network, peer) = (Arc::clone(&machine.network), endpoint.clone());
    let attempt = async move {
        let attempt = timeout(CONNECT_DEADLINE, login(&peer, &*network)).await;
        attempt.unwrap_or_else(|_| Err(MemberError::Unreachable("connecting took too long".to_owned())))
    };
    State::Connecting(endpoint, Box::pin(attempt))
}

impl Open {
    /// So many jobs may be written.
    fn room(&self) -> usize {
        let unsent = self.connection.out.len() - self.written;
        if unsent < MOST_UNSENT { MOST_IN_FLIGHT.saturating_sub(self.connection.in_flight()) } else { 0 }
    }

    fn write(&mut self, jobs: impl IntoIterator<Item = Job>, copies: &mut Copies) {
        if !self.connection.is_busy() {
            self.silent_ticks = 0;
        }
        self.connection.write(jobs, Vec::new(), copies);
    }

    /// Ready with the reason when the connection has ended.
    fn poll_read(&mut self, cx: &mut Context<'_>, link: &watch::Sender<Link>) -> Poll<MemberError> {
        for turn in 0.. {
            if turn == READS {
                cx.waker().wake_by_ref();
                break;
            }
            if self.filled == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            let read = Pin::new(&mut *self.stream).poll_read(cx, &mut buffer);
            let bytes = buffer.filled().len();
            match read {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if bytes > 0 => self.filled += bytes,
                Poll::Ready(_) => return Poll::Ready(closed()),
            }
            if let Err(error) = self.take_replies(link) {
                return Poll::Ready(error);
            }
        }
        while self.ticks.poll_tick(cx).is_ready() {
            if let Err(error) = self.tick() {
                return Poll::Ready(error);
            }
        }
        Poll::Pending
    }

    fn take_replies(&mut self, link: &watch::Sender<Link>) -> Result<(), MemberError> {
        let used = self.connection.read(&self.input[..self.filled])?;
        if used > 0 {
            self.silent_ticks = 0;
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
            if self.filled == 0 && self.input.len() > BUFFER {
                self.input = vec![0; BUFFER];
            }
            let state = self.connection.link();
            link.send_if_modified(|link| {
                let changed = *link != state;
                *link = state;
                changed
            });
        }
        Ok(())
    }

    /// Looks after the connection: gives up a silent one, keeps an idle one under watch.
    fn tick(&mut self) -> Result<(), MemberError> {
        if self.connection.was_answered() && !self.again.is_empty() {
            self.connection.write([], std::mem::take(&mut self.again), &mut Copies::default());
        }
        if self.connection.is_busy() {
            self.silent_ticks += 1;
            let is_dead = self.silent_ticks >= SILENT_TICKS;
            return if is_dead { Err(MemberError::Unreachable("no answer".to_owned())) } else { Ok(()) };
        }
        self.idle_ticks += 1;
        if self.idle_ticks >= PING_TICKS || self.connection.has_something_to_say() {
            (self.idle_ticks, self.silent_ticks) = (0, 0);
            self.connection.speak();
        }
        Ok(())
    }

    /// Ready with the reason when the connection has ended.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<MemberError> {
        while self.written < self.connection.out.len() {
            let bytes = &self.connection.out[self.written..];
            match ready!(Pin::new(&mut *self.stream).poll_write(cx, bytes)) {
                Ok(0) | Err(_) => return Poll::Ready(closed()),
                Ok(written) => self.written += written,
            }
        }
        if self.written > 0 {
            self.connection.out.clear();
            (self.written, self.needs_flush) = (0, true);
        }
        if self.needs_flush {
            if ready!(Pin::new(&mut *self.stream).poll_flush(cx)).is_err() {
                return Poll::Ready(closed());
            }
            self.needs_flush = false;
        }
        Poll::Pending
    }
}

fn closed() -> MemberError {
    MemberError::Unreachable("connection closed".to_owned())
}
