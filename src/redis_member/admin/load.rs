//! How near a member is to its limits, its number of keys, and the end of scripts that keep it busy.

use std::time::Duration;

use redis::cmd;

use super::AdminConnection;
use crate::redis_member::{Endpoint, Machine, wire};
use crate::redlock::MemberError;

/// The use of connections and memory on a member. A limit of zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of connections.
    pub connections: u64,
    /// `maxclients`.
    pub most_connections: u64,
    /// Used memory in bytes.
    pub memory: u64,
    /// `maxmemory` in bytes.
    pub most_memory: u64,
}

impl Load {
    pub(super) fn read(info: &str) -> Self {
        let field = |name| wire::info_field(info, name).and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        Self {
            connections: field("connected_clients"),
            most_connections: field("maxclients"),
            memory: field("used_memory"),
            most_memory: field("maxmemory"),
        }
    }

    /// Whether Redis refuses every new connection, or every command that needs memory.
    pub const fn is_full(&self) -> bool {
        let memory_is_used_up = self.most_memory > 0 && self.memory >= self.most_memory;
        memory_is_used_up || (self.most_connections > 0 && self.connections >= self.most_connections)
    }
}

/// The keys of a member, from `INFO keyspace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// Number of keys.
    pub keys: u64,
    /// Number of keys with a time to live.
    pub expires: u64,
    /// Redis' estimate of the average time to live.
    pub average_ttl: Duration,
}

impl Keyspace {
    /// Reads the first database, because clients use no other.
    pub(super) fn read(info: &str) -> Self {
        let line = wire::info_field(info, "db0").unwrap_or_default();
        let field = |name: &str| {
            let text = line.trim().split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let average_ttl = Duration::from_millis(field("avg_ttl"));
        Self { keys: field("keys"), expires: field("expires"), average_ttl }
    }
}

impl AdminConnection {
    /// Ends a script that has made a member BUSY.
    ///
    /// It opens a separate connection, because a busy process does not return its identity.
    ///
    /// # Errors
    /// As [`AdminConnection::script_kill`], and if there is no connection.
    pub async fn kill_busy_script(
        endpoint: &Endpoint,
        machine: impl Into<Machine>,
        deadline: Duration,
    ) -> Result<(), MemberError> {
        Self::open_connection(endpoint, machine.into(), deadline).await?.script_kill().await
    }

    /// Ends a running script.
    ///
    /// # Errors
    /// If there is no answer in time, if no script runs (`NOTBUSY`), or if the script wrote data and cannot be ended (`UNKILLABLE`).
    pub async fn script_kill(&mut self) -> Result<(), MemberError> {
        self.ask(cmd("SCRIPT").arg("KILL")).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_full_when_redis_refuses_more() {
        let load = |connections, memory| Load { connections, most_connections: 500, memory, most_memory: 1_000 };
        assert!(!load(499, 999).is_full());
        assert!(load(500, 0).is_full() && load(0, 1_000).is_full());
        assert!(!Load { connections: 9_000, memory: 9_000, ..Load::default() }.is_full(), "no limits");
        let info = "used_memory:17\r\nmaxmemory:100\r\nconnected_clients:3\r\nmaxclients:512\r\n";
        assert_eq!(Load::read(info), Load { connections: 3, most_connections: 512, memory: 17, most_memory: 100 });
    }

    #[test]
    fn keys_without_an_end_and_the_average_time_to_live_are_read() {
        let info = "# Keyspace\r\ndb0:keys=7,expires=4,avg_ttl=31000,subexpiry=0\r\ndb1:keys=9,expires=0,avg_ttl=0\r\n";
        let read = Keyspace { keys: 7, expires: 4, average_ttl: Duration::from_secs(31) };
        assert_eq!(Keyspace::read(info), read);
        assert_eq!(Keyspace::read("# Keyspace\r\n"), Keyspace::default());
    }
}
