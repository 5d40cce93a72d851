//! The state of one process, without its scripts.

use super::acl::User;
use super::keyspace::Keyspace;
use super::resp::{Input, Reply, Request};
use super::rules;
use super::server::{Config, ConnectionId};
use std::collections::{BTreeMap, BTreeSet};

/// One connection.
pub(super) struct Client {
    /// Redis' own number of the connection.
    pub(super) id: i64,
    pub(super) user: String,
    pub(super) authenticated: bool,
    pub(super) name: String,
    pub(super) since: i64,
    pub(super) input: Input,
    pub(super) output: Vec<u8>,
    /// Whether the server has closed it.
    pub(super) closed: bool,
    /// Whether the peer has closed it.
    ///
    /// The server still executes the requests that arrived.
    pub(super) peer_closed: bool,
    /// Commands between MULTI and EXEC.
    pub(super) queue: Option<Vec<Request>>,
    /// Whether a command could not be queued, so EXEC executes nothing.
    pub(super) queue_failed: bool,
    pub(super) watched: BTreeSet<Vec<u8>>,
    /// Whether a watched key has changed.
    pub(super) watch_failed: bool,
}

/// A script that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    /// The connection that called it, which gets an error when the script is killed.
    pub(super) of: Option<ConnectionId>,
    /// Whether it has written, so it cannot be killed.
    pub(super) has_written: bool,
}

/// State of a running script.
#[derive(Default)]
pub(super) struct Running {
    pub(super) of: Option<ConnectionId>,
    pub(super) has_written: bool,
    /// Whether memory was short when it began.
    out_of_memory: bool,
}

pub(super) struct Core {
    pub(super) run_id: String,
    pub(super) port: u16,
    pub(super) users: BTreeMap<String, User>,
    pub(super) keys: Keyspace,
    pub(super) clients: BTreeMap<ConnectionId, Client>,
    pub(super) settings: BTreeMap<String, String>,
    /// The member's wall clock in microseconds.
    pub(super) now: i64,
    pub(super) started: i64,
    pub(super) busy: Option<Busy>,
    pub(super) loading: bool,
    pub(super) out_of_memory: bool,
    pub(super) replica: bool,
    pub(super) running: Running,
    pub(super) not_modelled: Vec<String>,
    last_id: i64,
}

impl Core {
    pub(super) fn start(config: &Config, run_id: String, now: i64) -> Result<Self, String> {
        let users = match &config.acl {
            Some(text) => rules::users(text)?,
            None => BTreeMap::from([("default".to_owned(), User::everything())]),
        };
        let setting = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = [("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("appendonly", "no"), ("save", "")];
        Ok(Self {
            run_id,
            port: config.port,
            users,
            keys: Keyspace::default(),
            clients: BTreeMap::new(),
            settings: settings.iter().map(setting).collect(),
            now,
            started: now,
            busy: None,
            loading: false,
            out_of_memory: false,
            replica: false,
            running: Running::default(),
            not_modelled: Vec::new(),
            last_id: 0,
        })
    }

    /// The member's wall clock in milliseconds.
    ///
    /// Keys expire by it.
    pub(super) fn millis(&self) -> i64 {
        self.now.div_euclid(1_000)
    }

    /// Whether connections need no authentication.
    pub(super) fn is_open(&self) -> bool {
        let default = &self.users["default"];
        default.enabled && default.nopass
    }

    pub(super) fn accept(&mut self, connection: ConnectionId) {
        self.last_id += 1;
        let client = Client {
            id: self.last_id,
            user: "default".to_owned(),
            authenticated: self.is_open(),
            name: String::new(),
            since: self.now,
            input: Input::default(),
            output: Vec::new(),
            closed: false,
            peer_closed: false,
            queue: None,
            queue_failed: false,
            watched: BTreeSet::new(),
            watch_failed: false,
        };
        self.clients.insert(connection, client);
    }

    pub(super) fn client(&mut self, connection: ConnectionId) -> &mut Client {
        self.clients.get_mut(&connection).expect("a connection of this process")
    }

    pub(super) fn user(&self, connection: ConnectionId) -> &User {
        &self.users[&self.clients[&connection].user]
    }

    pub(super) fn answer(&mut self, connection: ConnectionId, reply: &Reply) {
        let client = self.client(connection);
        if !client.closed {
            reply.write(&mut client.output);
        }
    }

    /// Closes all connections that match the condition, and returns their number.
    ///
    /// The caller's connection closes after its reply. The others close at once and lose requests and replies that are
    /// pending.
    pub(super) fn kill_where(&mut self, caller: ConnectionId, condition: impl Fn(&Client) -> bool) -> i64 {
        let mut killed = 0;
        for (connection, client) in &mut self.clients {
            if client.closed || !condition(client) {
                continue;
            }
            killed += 1;
            client.input.clear();
            client.closed = true;
            if *connection != caller {
                client.output.clear();
            }
        }
        killed
    }

    /// Marks the transactions of all connections that watch a changed key as failed.
    pub(super) fn fail_watchers(&mut self) {
        let changed = self.keys.take_changed();
        for client in self.clients.values_mut().filter(|client| !client.watched.is_empty()) {
            client.watch_failed |= changed.iter().any(|key| client.watched.contains(key));
        }
    }

    pub(super) fn begin_script(&mut self, connection: ConnectionId) {
        self.running = Running { of: Some(connection), has_written: false, out_of_memory: self.out_of_memory };
    }

    /// Whether a script's write is refused because memory was short when it began.
    pub(super) fn script_lacks_memory(&self) -> bool {
        self.running.out_of_memory && !self.running.has_written
    }
}
