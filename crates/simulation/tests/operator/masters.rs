//! External Redis masters, which the operator does not run.
//!
//! They start with the run. A restarted master has all of its keys, some of them, or none.

use redlock_api::QUORUM_LABEL;
use redlock_operator::redis_member::acl::external_user;
use redlock_simulation::kube::users::{MASTERS_SECRET, master_address, master_name};
use redlock_simulation::redis::Config;
use serde_json::json;

use crate::rng::hash;
use crate::servers::RedisHost;
use crate::users::SHOP;
use crate::world::{Event, World};

/// The port of every Redis server.
pub(crate) const PORT: u16 = 6379;
const USER: &str = "redlock";
const PASSWORD: &str = "correct-horse";

/// The ACL file of a master, with the user of docs/external.md.
fn acl() -> String {
    let user = external_user(USER).replace("ACL SETUSER", "user").replace(" reset ", " ");
    format!("user default off\n{}\n", user.replace("PASSWORD", PASSWORD))
}

fn base64(text: &str) -> serde_json::Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}

impl World {
    /// Starts all masters, and creates the Secret with their user for each quorum.
    pub(crate) fn masters_begin(&mut self) {
        for number in 0..self.plan.pool() {
            self.start_master(number, 0);
        }
        let quorums: &[&str] = match (self.plan.masters, self.plan.second) {
            (0, _) => &[],
            (_, false) => &["q"],
            (_, true) => &["q", "r"],
        };
        for quorum in quorums {
            let metadata = json!({"name": format!("{MASTERS_SECRET}-{quorum}"), "labels": {QUORUM_LABEL: quorum}});
            let data = json!({"username": base64(USER), "password": base64(PASSWORD)});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
            self.api_create(&format!("/api/v1/namespaces/{SHOP}/secrets"), &secret);
        }
    }

    /// The number of the master with this index among all members.
    ///
    /// The operator's own members come first.
    pub(crate) fn master_of(&self, member: usize) -> Option<usize> {
        member.checked_sub(self.plan.members).filter(|_| self.plan.masters > 0)
    }

    /// The present process of a master, or its last one.
    pub(crate) fn server_of_master(&self, number: usize) -> Option<usize> {
        self.servers.all.iter().rposition(|server| server.name == master_name(number))
    }

    /// Starts a process of a master with this share of the keys of its predecessor, in percent.
    pub(crate) fn start_master(&mut self, number: usize, kept: u64) {
        let (name, count) = (master_name(number), self.servers.all.len() as u64);
        let before = self.server_of_master(number);
        if before.is_some_and(|before| self.servers.all[before].is_up()) {
            return;
        }
        let clocks = self.plan.servers[(self.plan.members + number) % self.plan.servers.len()];
        let config = Config { acl: Some(acl()), port: PORT, seed: hash(self.seed, [22, count]) };
        let address = master_address(number);
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let mut master = RedisHost::new(&name, host, config, self.now, clocks.wrong * 1_000, clocks.drift);
        master.is_external = true;
        if let Some(before) = before {
            let lot = |key: &[u8]| hash(count, key.iter().map(|byte| u64::from(*byte))) % 100;
            master.server.load(&self.servers.all[before].server, |key| lot(key) < kept);
        }
        self.note(format_args!("{name} starts with {kept} % of its keys"));
        self.servers.all.push(master);
    }

    /// Ends the process of a master. The next one starts after a while.
    pub(crate) fn restart_master(&mut self, number: usize, kept: u64, away: u64) {
        let Some(server) = self.server_of_master(number).filter(|server| self.servers.all[*server].is_up()) else {
            return;
        };
        self.end_server(server, false);
        self.queue.push(self.now + away, Event::MasterStarts { number, kept });
    }

    /// Deletes all keys of a master, which continues to run.
    pub(crate) fn flush_master(&mut self, number: usize) {
        let Some(server) = self.server_of_master(number) else { return };
        // A process whose votes do not count has promised nothing since its start.
        if self.is_counted(&self.servers.all[server].server.run_id()) {
            self.servers.all[server].since = self.now;
        }
        self.servers.all[server].server.forget();
    }
}
