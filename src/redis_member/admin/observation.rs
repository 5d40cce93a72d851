//! The state of a process, as the operator reads it at one moment.

use super::load::{Keyspace, Load};
use crate::redlock::{ClockSample, FencingToken, RunId};

/// The state that a process reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The process.
    pub run_id: RunId,
    /// Redis' version. Valkey reports that of the Redis that it is compatible with.
    pub version: String,
    /// Valkey's own version.
    pub valkey_version: Option<String>,
    /// Whether it is a master. Anything else must not vote.
    pub is_master: bool,
    /// Its name for the history of its data, which changes when it becomes a replica.
    pub replication_id: String,
    /// Whether it writes an append-only file. It must not: a file is no proof of memory.
    pub append_only: bool,
    /// `standalone`, or it is possibly no independent master.
    pub mode: String,
    /// `noeviction`, or it can evict locks.
    pub maxmemory_policy: String,
    /// The requested users with more rights than PING, by name.
    pub open_users: Vec<String>,
    /// The operator's epoch, if one was raised on this process.
    pub epoch: Option<i64>,
    /// The counter of fencing tokens.
    pub counter: Option<FencingToken>,
    /// Its clock.
    pub clock: ClockSample,
    /// How near it is to its limits.
    pub load: Load,
    /// Its keys, the operator's own included.
    pub keyspace: Keyspace,
}

impl Observation {
    /// How many keys of clients have no time to live. The operator's own, the epoch and the counter, have none.
    pub fn endless_keys(&self) -> u64 {
        let own = u64::from(self.epoch.is_some()) + u64::from(self.counter.is_some());
        self.keyspace.keys.saturating_sub(self.keyspace.expires).saturating_sub(own)
    }
}
