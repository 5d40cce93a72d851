//! The face of the state machine.

use super::core::{Busy, Core};
use super::keyspace::Value;
use super::resp::Reply;
use super::script::Scripts;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A connection; the number is never given again, not even to a connection of a later process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// How a process starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The text of the ACL file; without one everybody may do everything.
    pub acl: Option<String>,
    pub port: u16,
    /// What run IDs are made of.
    pub seed: u64,
}

/// One Redis server: a process, and after a restart the next one.
pub struct Server {
    pub(super) core: Rc<RefCell<Core>>,
    pub(super) scripts: Scripts,
    config: Config,
    starts: u64,
    connections: u64,
    frozen: bool,
    /// While it is frozen: connections with something to read, the first first.
    unread: Vec<ConnectionId>,
}

/// The times are those of the member's wall clock, in microseconds.
impl Server {
    /// Starts the first process.
    ///
    /// # Errors
    /// If the ACL file is one that Redis does not start with.
    pub fn new(config: Config, now: i64) -> Result<Self, String> {
        let core = Rc::new(RefCell::new(Core::start(&config, run_id(config.seed, 0), now)?));
        let scripts = Scripts::new(&core);
        Ok(Self { core, scripts, config, starts: 0, connections: 0, frozen: false, unread: Vec::new() })
    }

    /// The process dies, and the next one starts with this configuration: it remembers nothing, and no connection outlives it.
    ///
    /// # Errors
    /// If the ACL file is one that Redis does not start with; the old process lives on then.
    pub fn restart(&mut self, config: Config, now: i64) -> Result<(), String> {
        let core = Core::start(&config, run_id(config.seed, self.starts + 1), now)?;
        self.starts += 1;
        self.core = Rc::new(RefCell::new(core));
        self.scripts = Scripts::new(&self.core);
        self.config = config;
        self.frozen = false;
        self.unread.clear();
        Ok(())
    }

    /// How the present process was started.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Accepts a connection: the kernel does so for a frozen process, too.
    pub fn connect(&mut self, now: i64) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let mut core = self.core.borrow_mut();
        core.now = now;
        core.accept(connection);
        connection
    }

    /// Bytes arrive on a connection. On one that has ended they are lost.
    pub fn feed(&mut self, connection: ConnectionId, bytes: &[u8], now: i64) {
        {
            let mut core = self.core.borrow_mut();
            core.now = now;
            let Some(client) = core.clients.get_mut(&connection).filter(|client| !client.closed) else { return };
            client.input.push(bytes);
        }
        if !self.unread.contains(&connection) {
            self.unread.push(connection);
        }
        self.execute_unread();
    }

    /// What the server has written since this was last asked.
    pub fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let mut core = self.core.borrow_mut();
        core.clients.get_mut(&connection).map(|client| std::mem::take(&mut client.output)).unwrap_or_default()
    }

    /// Whether the server has ended the connection, or the process has.
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        self.core.borrow().clients.get(&connection).is_none_or(|client| client.closed)
    }

    /// The peer ends its connection: what has arrived before is executed all the same.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(client) = self.core.borrow_mut().clients.get_mut(&connection) {
            client.peer_closed = true;
        }
        self.execute_unread();
    }

    /// The connection is cut: what has arrived and was not executed is lost.
    pub fn cut(&mut self, connection: ConnectionId) {
        self.unread.retain(|one| *one != connection);
        self.core.borrow_mut().clients.remove(&connection);
    }

    /// All keys are gone, though the process is the same: what no Redis does, for runs that have to find violations.
    pub fn forget(&mut self) {
        self.core.borrow_mut().keys.clear();
    }

    /// SIGSTOP: connections are accepted and bytes are taken, but nothing is executed.
    pub const fn freeze(&mut self) {
        self.frozen = true;
    }

    /// SIGCONT: what has arrived meanwhile is executed now.
    pub fn thaw(&mut self, now: i64) {
        self.frozen = false;
        self.core.borrow_mut().now = now;
        self.execute_unread();
    }

    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// LOADING: the process answers, and executes next to nothing.
    pub fn set_loading(&mut self, loading: bool) {
        self.core.borrow_mut().loading = loading;
    }

    /// OOM: nothing that needs memory is executed.
    pub fn set_out_of_memory(&mut self, out_of_memory: bool) {
        self.core.borrow_mut().out_of_memory = out_of_memory;
    }

    /// READONLY: the server is the replica of another one.
    pub fn set_replica(&mut self, replica: bool) {
        self.core.borrow_mut().replica = replica;
    }

    /// BUSY: a script of a client that is not simulated does not end. One that has written cannot be killed.
    pub fn set_busy(&mut self, has_written: bool) {
        self.core.borrow_mut().busy = Some(Busy { of: None, has_written });
    }

    pub fn is_busy(&self) -> bool {
        self.core.borrow().busy.is_some()
    }

    pub fn run_id(&self) -> String {
        self.core.borrow().run_id.clone()
    }

    /// All living keys that hold a string: the value, and the time to live if there is one. For oracles.
    pub fn strings(&self, now: i64) -> Vec<(String, String, Option<Duration>)> {
        let now = now.div_euclid(1_000);
        let mut core = self.core.borrow_mut();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut strings = Vec::new();
        for (key, entry) in core.keys.all(now) {
            if let Value::String(value) = &entry.value {
                let left = entry.end.map(|end| Duration::from_millis(u64::try_from(end - now).unwrap_or(0)));
                strings.push((text(key), text(value), left));
            }
        }
        strings
    }

    /// The line of a user in `ACL LIST`. For oracles.
    pub fn user(&self, name: &str) -> Option<String> {
        self.core.borrow().users.get(name).map(super::acl::User::line)
    }

    /// Whether anybody but the operator's own hands may set keys. For oracles.
    pub fn takes_votes(&self) -> bool {
        let core = self.core.borrow();
        let mut users =
            core.users.iter().filter(|(name, _)| !matches!(name.as_str(), "default" | "operator" | "probe"));
        users.any(|(_, user)| user.line().contains("+set"))
    }

    /// What was asked of the server that only a real one can do. A simulation in which there is any proves nothing.
    pub fn not_modelled(&self) -> Vec<String> {
        self.core.borrow().not_modelled.clone()
    }

    /// Executes what has arrived, connection by connection.
    pub(super) fn execute_unread(&mut self) {
        if self.frozen {
            return;
        }
        loop {
            let was_busy = self.is_busy();
            let mut waiting = Vec::new();
            while !self.unread.is_empty() {
                let connection = self.unread.remove(0);
                if !self.execute_all(connection) {
                    waiting.push(connection);
                }
            }
            self.unread = waiting;
            // A script was killed: its connection goes on.
            if self.unread.is_empty() || !was_busy || self.is_busy() {
                break;
            }
        }
        self.core.borrow_mut().clients.retain(|_, client| !client.peer_closed);
    }

    /// Whether all was executed: a connection whose script does not end has to wait.
    fn execute_all(&mut self, connection: ConnectionId) -> bool {
        loop {
            let next = {
                let mut core = self.core.borrow_mut();
                if core.busy.is_some_and(|busy| busy.of == Some(connection)) {
                    return false;
                }
                let now = core.millis();
                core.keys.sweep(now);
                core.fail_watchers();
                let open = core.is_open();
                let Some(client) = core.clients.get_mut(&connection).filter(|client| !client.closed) else {
                    return true;
                };
                client.input.next(open || client.authenticated)
            };
            match next {
                Ok(None) => return true,
                Ok(Some(request)) => self.execute(connection, request),
                Err(error) => {
                    let mut core = self.core.borrow_mut();
                    core.answer(connection, &Reply::error(format!("ERR Protocol error: {error}")));
                    core.client(connection).closed = true;
                }
            }
        }
    }
}

/// 40 hexadecimal digits, as if drawn.
fn run_id(seed: u64, start: u64) -> String {
    let digest = Sha256::digest(format!("process {start} of {seed}"));
    digest.iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}
