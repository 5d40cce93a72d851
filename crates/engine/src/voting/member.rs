use super::driver::Driver;
use super::hub::Hub;
use super::inbox::Inbox;
use super::job::{Job, Link};
use super::line::Line;
use super::wire::Rights;
use super::{Endpoint, Guard, Machine};
use crate::redlock::{Answers, BoxFuture, Command, Expiry, LockMember, MemberError, MemberName, Slot};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the user of a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything that locking needs.
    Full,
    /// What an operator gives to a client: it may ask neither INFO nor TIME, and of the counter of tokens it may INCR alone.
    Client,
    /// What an operator gives to a client that only looks: GET, PTTL and PING. [`Command::Inspect`] works, nothing else does.
    Reader,
}

/// A Redis master as a voter. It has one connection, on which what is enqueued at the same moment is written at once, in order. The
/// connection learns the `run_id` of its process before the first vote and ends with it; the next one, made in the background, learns
/// it again.
pub struct RedisMember {
    name: MemberName,
    inbox: Arc<Inbox>,
    link: watch::Receiver<Link>,
    /// Moves the bytes of one member, or of several. It ends by itself with the last of them.
    task: Arc<JoinHandle<()>>,
}

impl RedisMember {
    /// Starts connecting. Must be called within a tokio runtime. Dropping the member closes its connection as soon as
    /// what is on its way was answered.
    pub fn new(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>) -> Self {
        Self::alone(name, endpoint, machine.into(), Rights::Full)
    }

    /// A master that others run: it votes while its record knows of no later epoch than the guard's.
    pub fn guarded(name: MemberName, endpoint: Endpoint, machine: impl Into<Machine>, guard: Guard) -> Self {
        Self::alone(name, endpoint, machine.into(), Rights::Guarded(guard))
    }

    fn alone(name: MemberName, endpoint: Endpoint, machine: Machine, rights: Rights) -> Self {
        let mut members = Self::together(vec![(name, endpoint)], &machine, &rights);
        // One was asked for.
        members.swap_remove(0)
    }

    /// Members with one task for all of them, which is what makes a round of votes cheap.
    #[must_use]
    pub fn all(members: Vec<(MemberName, Endpoint)>, machine: impl Into<Machine>, access: Access) -> Vec<Self> {
        let rights = match access {
            Access::Full => Rights::Full,
            Access::Client => Rights::Direct,
            Access::Reader => Rights::Reader,
        };
        Self::together(members, &machine.into(), &rights)
    }

    fn together(members: Vec<(MemberName, Endpoint)>, machine: &Machine, rights: &Rights) -> Vec<Self> {
        let hub = Arc::new(Hub::default());
        let mut parts = Vec::with_capacity(members.len());
        let mut lines = Vec::with_capacity(members.len());
        for (name, endpoint) in members {
            let inbox = Arc::new(Inbox::new(Arc::clone(&hub), endpoint));
            let (sender, link) = watch::channel(Link::Down(not_connected_yet()));
            lines.push(Line::new(name.clone(), Arc::clone(&inbox), sender, machine.clone(), rights.clone()));
            parts.push((name, inbox, link));
        }
        let task = Arc::new(tokio::spawn(Driver::run(hub, lines)));
        let member = |(name, inbox, link)| Self { name, inbox, link, task: Arc::clone(&task) };
        parts.into_iter().map(member).collect()
    }

    /// The member is there from now on. If it has moved, the connection is dropped and another one made; a new password, and
    /// new authorities, are for the next connection.
    pub fn set_endpoint(&self, endpoint: Endpoint) {
        self.inbox.set_endpoint(endpoint);
    }

    /// Whether its task has ended, which it does of itself only by a panic: it never answers again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// The state of the connection, to read or to wait for.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    /// Jobs and releases that are not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.inbox.outstanding()
    }
}

/// What a member is before its first connection.
#[must_use]
pub fn not_connected_yet() -> MemberError {
    MemberError::Unreachable("not connected yet".to_owned())
}

impl LockMember for RedisMember {
    fn name(&self) -> &MemberName {
        &self.name
    }

    fn send(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        let (slot, answer) = Slot::alone();
        self.submit(&commands.into(), slot);
        self.flush();
        Box::pin(answer)
    }

    fn submit(&self, commands: &Arc<[Command]>, slot: Slot) {
        // If the task is gone, nobody takes the job.
        if self.has_ended() {
            return;
        }
        self.inbox.put(Job { commands: Arc::clone(commands), slot });
    }

    fn watch(&self, deadline: Instant, expiry: &Expiry) -> bool {
        !self.has_ended() && self.inbox.hub().deadlines().add(deadline, expiry)
    }

    fn flush(&self) {
        self.inbox.hub().flush();
    }
}

impl Drop for RedisMember {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl fmt::Debug for RedisMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMember").field("name", &self.name).field("link", &*self.link.borrow()).finish()
    }
}
