//! The Redlock engine and the fence against real `redis-server` processes on loopback: frozen, dead, silent, slow and
//! forgetful ones. Needs `redis-server` 7.0 or later in the PATH (or its path in `REDIS_SERVER`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "clippy sees no test in the helpers of tests"
)]

#[path = "redis/acl.rs"]
mod acl;
#[path = "redis/clients.rs"]
mod clients;
#[path = "redis/external.rs"]
mod external;
#[path = "redis/external_changes.rs"]
mod external_changes;
#[path = "redis/faults.rs"]
mod faults;
#[path = "redis/fence.rs"]
mod fence;
#[path = "redis/grants.rs"]
mod grants;
#[path = "redis/keys.rs"]
mod keys;
#[path = "redis/limits.rs"]
mod limits;
#[path = "redis/net.rs"]
mod net;
#[path = "redis/quorum.rs"]
mod quorum;
#[path = "redis/readers.rs"]
mod readers;
#[path = "redis/rotation.rs"]
mod rotation;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/tls.rs"]
mod tls;
#[path = "redis/tokens.rs"]
mod tokens;
