use super::connection::Actor;
use super::job::{Job, Link};
use super::{Endpoint, Guard, Machine};
use crate::redlock::{Answers, BoxFuture, Command, LockMember, MemberError, MemberName};
use std::fmt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

/// A Redis master as a voter. A task of its own holds the one connection: what is enqueued at the same moment is
/// written as one pipeline, in order, and pipelines stay in flight concurrently. The connection learns the `run_id` of
/// its process before the first vote and ends with it; the next one, made in the background, learns it anew.
pub struct RedisMember {
    name: MemberName,
    jobs: mpsc::UnboundedSender<Job>,
    endpoint: watch::Sender<Endpoint>,
    link: watch::Receiver<Link>,
    task: AbortOnDropHandle<()>,
}

impl RedisMember {
    /// Starts connecting. Must be called within a tokio runtime; dropping the member closes its connection.
    pub fn new(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>) -> Self {
        Self::start(name, endpoint, machine.into(), None)
    }

    /// A master that others run: it votes while its record knows of no later epoch than the guard's.
    pub fn guarded(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>, guard: Guard) -> Self {
        Self::start(name, endpoint, machine.into(), Some(guard))
    }

    fn start(name: MemberName, endpoint: Endpoint, machine: Machine, guard: Option<Guard>) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let (endpoint, endpoints) = watch::channel(endpoint);
        let down = Link::Down(MemberError::Unreachable("not connected yet".to_owned()));
        let (link_sender, link) = watch::channel(down);
        let actor = Actor::new(name.clone(), queue, endpoints, link_sender, machine, guard);
        Self { name, jobs, endpoint, link, task: AbortOnDropHandle::new(tokio::spawn(actor.run())) }
    }

    /// The member is there from now on. If it has moved, the connection is dropped and another one made; a new password, and
    /// new authorities, are for the next connection.
    pub fn set_endpoint(&self, endpoint: Endpoint) {
        self.endpoint.send_if_modified(|current| {
            let moved = *current != endpoint;
            *current = endpoint;
            moved
        });
    }

    /// Whether its task has ended, which it does of itself only by a panic: it never answers again.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// The state of the connection, to read or to wait for.
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }
}

impl LockMember for RedisMember {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        let (answer, answered) = oneshot::channel();
        // Enqueued here and now, not when the future is polled. If the task is gone, so is `answer`, and this fails
        // below.
        let _ = self.jobs.send(Job { commands, answer });
        Box::pin(async move {
            answered.await.unwrap_or_else(|_| Err(MemberError::Unreachable("connection closed".to_owned())))
        })
    }
}

impl fmt::Debug for RedisMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMember").field("name", &self.name).field("link", &*self.link.borrow()).finish()
    }
}
