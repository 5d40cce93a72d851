//! Connects to one member again and again, and keeps releases between two connections.

mod established;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Sleep, sleep, timeout};

use super::connect::{CONNECT_DEADLINE, Stream};
use super::encoded_requests::EncodedRequests;
use super::endpoint::login;
use super::pending_releases::PendingReleases;
use super::pipeline::{Link, Pipeline, not_identified_yet};
use super::request_queue::{Notice, Request, RequestQueue};
use super::rights::Rights;
use super::{Endpoint, Machine};
use crate::redlock::{BoxFuture, MemberError, MemberName, RunId, jittered};
use established::Established;

/// The wait before the next connection attempt.
///
/// It doubles up to the maximum, less a random part of up to a half.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Numbers of connections.
///
/// They identify processes whose `run_id` the user has no permission to read.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

type Login = Result<Box<dyn Stream>, MemberError>;

enum State {
    Connecting(Endpoint, BoxFuture<'static, Login>),
    Waiting(Pin<Box<Sleep>>),
    Established(Box<Established>),
}

/// The connection to one member.
///
/// The I/O task polls it.
pub(super) struct MemberConnection {
    name: MemberName,
    queue: Arc<RequestQueue>,
    link: watch::Sender<Link>,
    machine: Machine,
    rights: Rights,
    pending_releases: PendingReleases,
    backoff: Duration,
    state: State,
    /// The member was dropped.
    ///
    /// The connection stays open for the answers of requests in flight.
    is_closing: bool,
    /// An empty buffer, reused for each batch.
    requests: VecDeque<Request>,
}

impl MemberConnection {
    pub(super) fn new(
        name: MemberName,
        queue: Arc<RequestQueue>,
        link: watch::Sender<Link>,
        machine: Machine,
        rights: Rights,
    ) -> Self {
        let state = connect(&queue, &machine);
        Self {
            name,
            queue,
            link,
            machine,
            rights,
            pending_releases: PendingReleases::default(),
            backoff: FIRST_BACKOFF,
            state,
            is_closing: false,
            requests: VecDeque::new(),
        }
    }

    pub(super) fn has_requests(&self) -> bool {
        self.queue.has_requests()
    }

    pub(super) fn in_flight(&self) -> usize {
        match &self.state {
            State::Established(established) => established.in_flight(),
            State::Connecting(..) | State::Waiting(_) => 0,
        }
    }

    /// Reads replies of the member, and changes from its owner.
    pub(super) fn poll_incoming(&mut self, cx: &mut Context<'_>) {
        match self.queue.notice() {
            Some(Notice::Closed) => self.is_closing = true,
            Some(Notice::Changed(endpoint)) => self.on_endpoint(&endpoint),
            None => {}
        }
        loop {
            match &mut self.state {
                State::Connecting(endpoint, attempt) => match if_ready(attempt.as_mut().poll(cx)) {
                    Some(Ok(stream)) => {
                        let endpoint = endpoint.clone();
                        self.open(endpoint, stream);
                    }
                    Some(Err(error)) => self.schedule_reconnect(error),
                    None => break,
                },
                State::Waiting(wait) => match if_ready(wait.as_mut().poll(cx)) {
                    Some(()) => self.state = connect(&self.queue, &self.machine),
                    None => break,
                },
                State::Established(established) => match if_ready(established.poll_read(cx, &self.link)) {
                    Some(error) => self.on_broken(error),
                    None => break,
                },
            }
        }
    }

    /// Writes all requests.
    ///
    /// It is ready when the member was dropped and no answer is outstanding.
    pub(super) fn poll_outgoing(&mut self, cx: &mut Context<'_>, encoded: &mut EncodedRequests) -> Poll<()> {
        if self.queue.has_requests() {
            let mut requests = std::mem::take(&mut self.requests);
            self.queue.take(&mut requests);
            if let State::Established(established) = &mut self.state {
                let room = established.room().min(requests.len());
                if room > 0 {
                    requests.range(..room).for_each(|request| self.pending_releases.on_sent(&request.commands));
                    established.write(requests.drain(..room), encoded);
                }
            }
            for request in requests.drain(..) {
                self.pending_releases.keep_unsent(&request.commands);
                self.refuse(request);
            }
            self.requests = requests;
        }
        self.deliver_pending_releases();
        if let State::Established(established) = &mut self.state
            && let Some(error) = if_ready(established.poll_write(cx))
        {
            self.on_broken(error);
            // The timer of the next attempt must be polled once.
            cx.waker().wake_by_ref();
        }
        self.queue.set_in_flight(self.in_flight());
        if self.is_closing && self.in_flight() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Delivers releases that were kept while the connection was full.
    fn deliver_pending_releases(&mut self) {
        if let State::Established(established) = &mut self.state
            && !self.pending_releases.is_empty()
            && established.room() > 0
        {
            established.pipeline.write([], self.pending_releases.take(), &mut EncodedRequests::default());
        }
    }

    /// Applies a new endpoint.
    ///
    /// A connection to the same peer stays, and the next one uses the new password.
    fn on_endpoint(&mut self, endpoint: &Endpoint) {
        if let State::Established(established) = &self.state {
            if established.endpoint.is_same_peer(endpoint) {
                return;
            }
            self.close();
        }
        self.backoff = FIRST_BACKOFF;
        self.state = connect(&self.queue, &self.machine);
    }

    fn open(&mut self, endpoint: Endpoint, stream: Box<dyn Stream>) {
        tracing::debug!(member = %self.name, "connected");
        // A new connection does not hide a lasting error.
        self.link.send_if_modified(|link| {
            let changes = !matches!(link, Link::Down(error) if error.is_lasting());
            if changes {
                *link = Link::Unidentified(not_identified_yet());
            }
            changes
        });
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let alias = RunId::new(format!("connection {number} to {}", self.name));
        let mut pipeline = Pipeline::new(Arc::clone(&self.machine.clock), self.rights.clone(), alias);
        let releases = self.pending_releases.take();
        pipeline.write([], releases.clone(), &mut EncodedRequests::default());
        let established = Established::new(endpoint, stream, pipeline, releases);
        self.state = State::Established(Box::new(established));
    }

    fn schedule_reconnect(&mut self, error: MemberError) {
        tracing::debug!(member = %self.name, %error, "disconnected");
        self.link.send_replace(Link::Down(error));
        // Without the random part all clients of a member would reconnect at the same time.
        let pause = jittered(self.backoff * 3 / 4, self.backoff / 4, rand::random());
        self.state = State::Waiting(Box::pin(sleep(pause)));
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    fn on_broken(&mut self, error: MemberError) {
        self.close();
        if error.is_lasting() {
            // The next attempt will have the same error.
            self.backoff = MAX_BACKOFF;
        }
        self.schedule_reconnect(error);
    }

    /// Closes the connection.
    ///
    /// Requests without an answer fail, and their releases are kept for the next connection.
    fn close(&mut self) {
        self.link.send_replace(Link::Down(MemberError::closed()));
        let idle = State::Waiting(Box::pin(sleep(Duration::ZERO)));
        if let State::Established(established) = std::mem::replace(&mut self.state, idle) {
            // A refusal, for example by `maxclients`, is an answer, too.
            if matches!(established.pipeline.link(), Link::Open(_)) {
                self.backoff = FIRST_BACKOFF;
            }
            if established.pipeline.was_answered() {
                // Without an answer the pipeline still has all of them.
                self.pending_releases.keep(established.delivered_twice);
            }
            let (releases, requests) = established.pipeline.into_unanswered();
            self.pending_releases.keep(releases);
            requests.into_iter().for_each(|request| self.fail(request));
        }
    }

    /// Fails a request and keeps its releases.
    ///
    /// No other command is kept, because a late `SET` would take the lock for no holder.
    fn fail(&mut self, request: Request) {
        self.pending_releases.keep(request.commands.iter().cloned());
        self.refuse(request);
    }

    fn refuse(&self, request: Request) {
        let error = match &*self.link.borrow() {
            Link::Down(error) => error.clone(),
            Link::Open(_) | Link::Unidentified(_) => {
                MemberError::Unreachable("too many requests are outstanding".to_owned())
            }
        };
        request.slot.answer(Err(error));
    }
}

impl Drop for MemberConnection {
    fn drop(&mut self) {
        self.link.send_replace(Link::Down(MemberError::closed()));
    }
}

fn if_ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn connect(queue: &RequestQueue, machine: &Machine) -> State {
    let endpoint = queue.endpoint();
    let (network, peer) = (Arc::clone(&machine.network), endpoint.clone());
    let attempt = async move {
        let attempt = timeout(CONNECT_DEADLINE, login(&peer, &*network)).await;
        attempt.unwrap_or_else(|_| Err(MemberError::Unreachable("connecting took too long".to_owned())))
    };
    State::Connecting(endpoint, Box::pin(attempt))
}

#[cfg(test)]
mod tests;
