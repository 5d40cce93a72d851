//! The state of a process, as the operator reads it at one moment.

use std::time::Duration;

use crate::redis_member::wire;
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
    /// Whether Redis refuses every new connection, or every command that needs memory.
    pub is_full: bool,
    /// The keys of clients.
    pub keys: Keys,
}

/// The keys of clients on a member, from `INFO keyspace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Number of keys without a time to live.
    pub endless: u64,
    /// Redis' estimate of the average time to live.
    pub average_ttl: Duration,
}

impl Keys {
    /// Reads the first database, because clients use no other.
    ///
    /// `own` is the number of the operator's own keys, which never have a time to live.
    pub(super) fn read(info: &str, own: u64) -> Self {
        let line = wire::info_field(info, "db0").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let text = line.trim().split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let endless = field("keys").saturating_sub(field("expires")).saturating_sub(own);
        Self { endless, average_ttl: Duration::from_millis(field("avg_ttl")) }
    }

    /// The maximum of each number, because one key is on several members.
    pub fn most(self, other: Self) -> Self {
        Self { endless: self.endless.max(other.endless), average_ttl: self.average_ttl.max(other.average_ttl) }
    }
}

/// Whether the connections or the memory of a member are used up. A limit of zero means no limit.
pub(super) fn is_full(info: &str) -> bool {
    let field = |name: &str| -> u64 {
        wire::info_field(info, name).and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    };
    let is_used_up = |used: &str, most: &str| field(most) > 0 && field(used) >= field(most);
    is_used_up("used_memory", "maxmemory") || is_used_up("connected_clients", "maxclients")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_full_when_redis_refuses_more() {
        for (connections, memory, [most_connections, most_memory], expected) in [
            (499, 999, [500, 1_000], false),
            (500, 0, [500, 1_000], true),
            (0, 1_000, [500, 1_000], true),
            (9_000, 9_000, [0, 0], false),
        ] {
            let used = format!("used_memory:{memory}\r\nconnected_clients:{connections}\r\n");
            let info = format!("{used}maxmemory:{most_memory}\r\nmaxclients:{most_connections}\r\n");
            assert_eq!(is_full(&info), expected, "{info}");
        }
        assert!(!is_full("used_memory:17\r\nconnected_clients:3\r\n"), "no limits");
    }

    #[test]
    fn keys_without_an_end_and_the_average_time_to_live_are_read() {
        let info = "# Keyspace\r\ndb0:keys=7,expires=4,avg_ttl=31000,subexpiry=0\r\ndb1:keys=9,expires=0,avg_ttl=0\r\n";
        let read = |endless| Keys { endless, average_ttl: Duration::from_secs(31) };
        assert_eq!(Keys::read(info, 0), read(3));
        assert_eq!(Keys::read(info, 2), read(1), "without the operator's own keys");
        assert_eq!(Keys::read("# Keyspace\r\n", 0), Keys::default());
    }
}
