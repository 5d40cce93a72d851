//! The Redlock engine and the fence against real `redis-server` processes on loopback: frozen, dead, silent, slow and
//! forgetful ones. They need `redis-server` 7.0 or later in the PATH (or its path in `REDIS_SERVER`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "clippy sees no test in the helpers of tests"
)]

mod acl;
mod clients;
mod external;
mod external_changes;
mod faults;
mod fence;
mod grants;
mod keys;
mod library;
mod limits;
mod net;
#[path = "../support/port.rs"]
mod port;
mod quorum;
mod readers;
mod rotation;
mod server;
mod tls;
mod tokens;
