//! Redis servers with their clocks, and where they are.

use std::collections::BTreeMap;

use crate::redis::{Config, ConnectionId, Server};
use crate::time::At;
use crate::world::World;

/// One Redis server at one address. It may die and start again.
pub(crate) struct RedisHost {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) server: Server,
    up: bool,
    /// Its wall clock is wrong by so many microseconds, and runs so many millionths faster than true time.
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
        Self { name: name.to_owned(), host: host.to_owned(), server, up: true, wrong, drift, connections }
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

/// All of them.
#[derive(Default)]
pub(crate) struct Servers {
    pub(crate) all: Vec<RedisHost>,
}

impl Servers {
    pub(crate) fn at_host(&self, host: &str) -> Option<usize> {
        self.all.iter().position(|server| server.host == host)
    }
}

impl World {
    /// SIGKILL.
    pub(crate) fn kill_server(&mut self, server: usize) {
        self.servers.all[server].up = false;
        self.server_lost(server, false);
    }

    /// A process starts with what its files say: it remembers nothing.
    pub(crate) fn restart_server(&mut self, server: usize, config: Config) {
        self.server_lost(server, false);
        let process = &mut self.servers.all[server];
        let clock = process.wall(self.now);
        process.server.restart(config, clock).expect("an ACL file that Redis starts with");
        process.up = true;
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
