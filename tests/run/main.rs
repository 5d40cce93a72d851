//! `redlock run` and `redlock agent` with real processes, against real `redis-server` processes on loopback.
//!
//! They need Linux, `redis-server` 7.0 or later in the PATH (or its path in `REDIS_SERVER`), and `setsid`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod agent;
mod api;
mod children;
mod claims;
mod completion;
mod cut;
mod faults;
mod kubeconfig;
mod losses;
#[path = "../support/port.rs"]
mod port;
mod processes;
mod screen;
#[path = "../support/self_signed.rs"]
mod self_signed;
mod servers;
mod shifted;
#[path = "../support/shifted_clock.rs"]
mod shifted_clock;
mod terminal;
mod usage;
