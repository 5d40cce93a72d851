//! The Redlock engine and the fence against real `redis-server` processes on loopback: frozen, dead, silent, slow and
//! forgetful ones. Needs `redis-server` 7.0 or later in the PATH (or its path in `REDIS_SERVER`).
#![cfg(feature = "redis-client")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
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
#[cfg(feature = "operator")]
mod limits;
mod net;
mod quorum;
mod readers;
mod rotation;
mod server;
#[cfg(feature = "operator")]
mod tls;
mod tokens;
