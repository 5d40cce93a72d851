//! Redis servers with their clocks and addresses.
//!
//! Each is one process. A restarted container is another process.

use std::collections::BTreeMap;

use crate::time::At;
use crate::world::World;
use redlock_simulation::redis::{Config, ConnectionId, Server};

/// One Redis process at one address.
pub(crate) struct RedisHost {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) server: Server,
    up: bool,
    /// Whether the operator does not run it.
    pub(crate) is_external: bool,
    /// When the process started, or lost its data without an end.
    pub(crate) since: At,
    /// The error of its wall clock in microseconds, and the drift in millionths.
    pub(crate) wrong: i64,
    pub(crate) drift: i64,
    /// The network's number of each connection.
    pub(crate) connections: BTreeMap<ConnectionId, u64>,
}

impl RedisHost {
    pub(crate) fn new(name: &str, host: &str, config: Config, now: At, wrong: i64, drift: i64) -> Self {
        let clock = wall(now, wrong, drift);
        let server = Server::new(config, clock).expect("an ACL file that Redis starts with");
        let connections = BTreeMap::new();
        let (name, host) = (name.to_owned(), host.to_owned());
        Self { name, host, server, up: true, is_external: false, since: now, wrong, drift, connections }
    }

    /// The name of the member, in the status of its quorum.
    pub(crate) fn member(&self) -> &str {
        if self.is_external { &self.name } else { self.name.strip_suffix("-0").unwrap_or_default() }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Its wall clock in microseconds.
    pub(crate) fn wall(&self, now: At) -> i64 {
        wall(now, self.wrong, self.drift)
    }
}

fn wall(now: At, wrong: i64, drift: i64) -> i64 {
    let elapsed = i64::try_from(now.0).unwrap();
    now.unix_micros() + wrong + elapsed * drift / 1_000_000
}

/// All servers, including those that have ended.
#[derive(Default)]
pub(crate) struct Servers {
    pub(crate) all: Vec<RedisHost>,
}

impl Servers {
    /// The process that answers at an address.
    ///
    /// If several run there, the first one has the port. If none runs, it is an ended one.
    pub(crate) fn at_host(&self, host: &str) -> Option<usize> {
        let here = || self.all.iter().enumerate().filter(|(_, server)| server.host == host).map(|(number, _)| number);
        here().find(|number| self.all[*number].up).or_else(|| here().next())
    }
}

impl World {
    /// Ends a process.
    ///
    /// If its machine is gone, no peer is notified.
    pub(crate) fn end_server(&mut self, server: usize, silently: bool) {
        self.servers.all[server].up = false;
        self.server_lost(server, silently);
    }

    pub(crate) fn freeze_server(&mut self, server: usize) {
        self.servers.all[server].server.freeze();
    }

    pub(crate) fn thaw_server(&mut self, server: usize) {
        let process = &mut self.servers.all[server];
        let clock = process.wall(self.now);
        process.server.thaw(clock);
        self.pump(server);
    }
}
