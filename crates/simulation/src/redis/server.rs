//! The public interface of the state machine.

use super::core::{Busy, Core};
use super::keyspace::Value;
use super::resp::Reply;
use super::script::Scripts;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The ID of a connection.
///
/// No later connection gets it again, not even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// The configuration of a process.
#[derive(Clone, Debug)]
pub struct Config {
    /// The text of the ACL file.
    ///
    /// Without one every connection has all permissions.
    pub acl: Option<String>,
    pub port: u16,
    /// The seed of the run IDs.
    pub seed: u64,
}

/// One Redis server: a process, and its successor after each restart.
pub struct Server {
    pub(super) core: Rc<RefCell<Core>>,
    pub(super) scripts: Scripts,
    config: Config,
    starts: u64,
    connections: u64,
    frozen: bool,
    /// Connections with pending requests while the process is frozen, in order of arrival.
    unread: Vec<ConnectionId>,
}

/// The times are those of the member's wall clock, in microseconds.
impl Server {
    /// Starts the first process.
    ///
    /// # Errors
    ///
    /// If Redis would not start with the ACL file.
    pub fn new(config: Config, now: i64) -> Result<Self, String> {
        let core = Rc::new(RefCell::new(Core::start(&config, run_id(config.seed, 0), now)?));
        let scripts = Scripts::new(&core);
        Ok(Self { core, scripts, config, starts: 0, connections: 0, frozen: false, unread: Vec::new() })
    }

    /// Ends the process, and starts the next one with this configuration.
    ///
    /// The new process has no data and no connections.
    ///
    /// # Errors
    ///
    /// If Redis would not start with the ACL file. The old process continues to run then.
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

    /// The configuration of the current process.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Loads keys of an ended process, as from an append-only file.
    pub fn load(&mut self, other: &Self, keeps: impl Fn(&[u8]) -> bool) {
        self.core.borrow_mut().keys.load(&other.core.borrow().keys, keeps);
    }

    /// Accepts a connection.
    ///
    /// The kernel accepts connections even for a frozen process.
    pub fn connect(&mut self, now: i64) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let mut core = self.core.borrow_mut();
        core.now = now;
        core.accept(connection);
        connection
    }

    /// Delivers bytes to a connection.
    ///
    /// A closed connection loses them.
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

    /// Takes the bytes that the server has written.
    pub fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let mut core = self.core.borrow_mut();
        core.clients.get_mut(&connection).map(|client| std::mem::take(&mut client.output)).unwrap_or_default()
    }

    /// Whether the server has closed the connection, or the process has ended.
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        self.core.borrow().clients.get(&connection).is_none_or(|client| client.closed)
    }

    /// The peer closes its connection.
    ///
    /// Requests that arrived earlier are still executed.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(client) = self.core.borrow_mut().clients.get_mut(&connection) {
            client.peer_closed = true;
        }
        self.execute_unread();
    }

    /// Cuts the connection: requests that were not executed are lost.
    pub fn cut(&mut self, connection: ConnectionId) {
        self.unread.retain(|one| *one != connection);
        self.core.borrow_mut().clients.remove(&connection);
    }

    /// Deletes all keys in the same process.
    ///
    /// No real Redis does this. Runs that must find violations use it.
    pub fn forget(&mut self) {
        self.core.borrow_mut().keys.clear();
    }

    /// SIGSTOP: the kernel accepts connections and bytes, and the process executes nothing.
    pub const fn freeze(&mut self) {
        self.frozen = true;
    }

    /// SIGCONT: executes the requests that arrived.
    pub fn thaw(&mut self, now: i64) {
        self.frozen = false;
        self.core.borrow_mut().now = now;
        self.execute_unread();
    }

    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// LOADING: the process answers and refuses nearly all commands.
    pub fn set_loading(&mut self, loading: bool) {
        self.core.borrow_mut().loading = loading;
    }

    /// OOM: the process refuses commands that need memory.
    pub fn set_out_of_memory(&mut self, out_of_memory: bool) {
        self.core.borrow_mut().out_of_memory = out_of_memory;
    }

    /// READONLY: the server is a replica.
    pub fn set_replica(&mut self, replica: bool) {
        self.core.borrow_mut().replica = replica;
    }

    /// BUSY: a script of a client that is not simulated does not end.
    ///
    /// A script that has written cannot be killed.
    pub fn set_busy(&mut self, has_written: bool) {
        self.core.borrow_mut().busy = Some(Busy { of: None, has_written });
    }

    pub fn is_busy(&self) -> bool {
        self.core.borrow().busy.is_some()
    }

    pub fn run_id(&self) -> String {
        self.core.borrow().run_id.clone()
    }

    /// All string keys that have not expired, with value and time to live, for oracles.
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

    /// The line of a user in `ACL LIST`, for oracles.
    pub fn user(&self, name: &str) -> Option<String> {
        self.core.borrow().users.get(name).map(super::acl::User::line)
    }

    /// The users that can set keys, except the operator's own, for oracles.
    pub fn voting_users(&self) -> Vec<String> {
        let core = self.core.borrow();
        let users = core.users.iter().filter(|(name, _)| !matches!(name.as_str(), "default" | "operator" | "probe"));
        users.filter(|(_, user)| user.line().contains("+set")).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a client other than the operator's can set keys, for oracles.
    pub fn takes_votes(&self) -> bool {
        !self.voting_users().is_empty()
    }

    /// Requests that only a real server can execute.
    ///
    /// A simulation with such a request proves nothing.
    pub fn not_modelled(&self) -> Vec<String> {
        self.core.borrow().not_modelled.clone()
    }

    /// Executes pending requests, connection by connection.
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
            // If a script was killed, its connection continues.
            if self.unread.is_empty() || !was_busy || self.is_busy() {
                break;
            }
        }
        self.core.borrow_mut().clients.retain(|_, client| !client.peer_closed);
    }

    /// Executes the requests of a connection.
    ///
    /// Returns false if a script does not end, so the connection has to wait.
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

/// 40 pseudorandom hexadecimal digits.
fn run_id(seed: u64, start: u64) -> String {
    let digest = Sha256::digest(format!("process {start} of {seed}"));
    digest.iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}
