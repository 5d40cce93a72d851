//! A Redis master as a voter.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::io_task::IoTask;
use super::member_connection::MemberConnection;
use super::pipeline::Link;
use super::request_queue::{Request, RequestQueue};
use super::rights::Rights;
use super::task_waker::TaskWaker;
use super::{Endpoint, Guard, Machine};
use crate::redlock::{AnswerSlot, Answers, BoxFuture, Command, Expiry, LockMember, MemberError, MemberName};

/// The permissions of a connection's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All commands that locking needs.
    Full,
    /// The permissions of a client of an operator.
    ///
    /// It can run neither INFO nor TIME, and only INCR on the token counter.
    Client,
    /// The permissions that an operator gives to a reader: GET, PTTL and PING.
    ///
    /// Only [`Command::Inspect`] works.
    Reader,
}

/// A Redis master as a voter.
///
/// It has one connection, on which requests that are enqueued at the same time are written together, in order. The
/// connection reads the `run_id` of its process before the first vote. The next connection is made in the background,
/// and reads it again.
pub struct RedisMember {
    name: MemberName,
    queue: Arc<RequestQueue>,
    link: watch::Receiver<Link>,
    /// The I/O task of this member, or of several members.
    ///
    /// It ends with the last of them.
    task: Arc<JoinHandle<()>>,
}

impl RedisMember {
    /// Starts connecting.
    ///
    /// Call it within a tokio runtime.
    ///
    /// Dropping the member closes its connection after the answers of all requests in flight.
    pub fn new(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>) -> Self {
        Self::single(name, endpoint, machine.into(), Rights::Full)
    }

    /// An external master.
    ///
    /// It votes while its record has no later epoch than the guard.
    pub fn guarded(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>, guard: Guard) -> Self {
        Self::single(name, endpoint, machine.into(), Rights::Guarded(guard))
    }

    fn single(name: MemberName, endpoint: Endpoint, machine: Machine, rights: Rights) -> Self {
        let mut members = Self::with_one_task(vec![(name, endpoint)], &machine, &rights);
        // The list has one member.
        members.swap_remove(0)
    }

    /// Makes members with one task for all of them, which makes a round of votes cheap.
    #[must_use]
    pub fn all(members: Vec<(MemberName, Endpoint)>, machine: impl Into<Machine>, access: Access) -> Vec<Self> {
        let rights = match access {
            Access::Full => Rights::Full,
            Access::Client => Rights::Direct,
            Access::Reader => Rights::Reader,
        };
        Self::with_one_task(members, &machine.into(), &rights)
    }

    fn with_one_task(members: Vec<(MemberName, Endpoint)>, machine: &Machine, rights: &Rights) -> Vec<Self> {
        let waker = Arc::new(TaskWaker::default());
        let mut handles = Vec::with_capacity(members.len());
        let mut connections = Vec::with_capacity(members.len());
        for (name, endpoint) in members {
            let queue = Arc::new(RequestQueue::new(Arc::clone(&waker), endpoint));
            let (sender, link) = watch::channel(Link::Down(not_connected_yet()));
            connections.push(MemberConnection::new(
                name.clone(),
                Arc::clone(&queue),
                sender,
                machine.clone(),
                rights.clone(),
            ));
            handles.push((name, queue, link));
        }
        let task = Arc::new(tokio::spawn(IoTask::run(waker, connections)));
        let member = |(name, queue, link)| Self { name, queue, link, task: Arc::clone(&task) };
        handles.into_iter().map(member).collect()
    }

    /// Sets the endpoint.
    ///
    /// If the address has changed, the member drops its connection and makes another one. The next connection uses a
    /// new password and new authorities.
    pub fn set_endpoint(&self, endpoint: Endpoint) {
        self.queue.set_endpoint(endpoint);
    }

    /// Returns true if its task has ended, which happens early only by a panic.
    ///
    /// The member never answers again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// The state of the connection.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// The number of requests and releases without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }
}

/// The state of a member before its first connection.
#[must_use]
pub fn not_connected_yet() -> MemberError {
    MemberError::Unreachable("not connected yet".to_owned())
}

impl LockMember for RedisMember {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        let (slot, answer) = AnswerSlot::single();
        self.submit(&commands.into(), slot);
        self.flush();
        Box::pin(answer)
    }

    fn submit(&self, commands: &Arc<[Command]>, slot: AnswerSlot) {
        // Without a task the request would stay in the queue. The dropped slot is its answer.
        if self.has_ended() {
            return;
        }
        self.queue.put(Request { commands: Arc::clone(commands), slot });
    }

    fn watch(&self, deadline: Instant, expiry: &Expiry) -> bool {
        !self.has_ended() && self.queue.waker().round_timers().add(deadline, expiry)
    }

    fn flush(&self) {
        self.queue.waker().flush();
    }
}

impl Drop for RedisMember {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for RedisMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMember").field("name", &self.name).field("link", &*self.link.borrow()).finish()
    }
}
