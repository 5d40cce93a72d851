//! The state of a process, as the operator reads it at one moment.

use super::load::{Keyspace, Load};
use crate::redlock::{ClockSample, FencingToken, RunId, Unfit};

/// The state that a process reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The process.
    pub run_id: RunId,
    /// Redis' version. Valkey reports the compatible Redis version here.
    pub version: String,
    /// Valkey's own version.
    pub valkey_version: Option<String>,
    /// Why it must not vote, whatever its users are.
    pub unfit: Option<Unfit>,
    /// The ID of the history of its data, which changes when it becomes a replica.
    pub replication_id: String,
    /// The requested users with more rights than PING, by name.
    pub open_users: Vec<String>,
    /// The operator's epoch, if one was raised on this process.
    pub epoch: Option<i64>,
    /// The counter of fencing tokens.
    pub counter: Option<FencingToken>,
    /// A sample of its clock.
    pub clock: ClockSample,
    /// Its use of connections and memory.
    pub load: Load,
    /// Its keys, the operator's own included.
    pub keyspace: Keyspace,
}

impl Observation {
    /// Number of client keys without a time to live.
    ///
    /// The operator's own keys, the epoch and the counter, never have one, so they are not included.
    pub fn endless_keys(&self) -> u64 {
        let own = u64::from(self.epoch.is_some()) + u64::from(self.counter.is_some());
        self.keyspace.keys.saturating_sub(self.keyspace.expires).saturating_sub(own)
    }
}
