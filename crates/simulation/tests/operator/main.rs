//! The whole operator in one deterministic process, in simulated time.
//!
//! Two or three replicas of the product's own code use a simulated API server, a simulated cluster and simulated Redis
//! members.
//!
//! One process runs one seed, because tokio counts the runtimes of a process and draws from that counter. A seed gives
//! the same history on every machine, to the byte. `SEEDS=10000` tries more of them, `SEED=17` one alone with its
//! history, `LOG=debug` with the product's log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, clippy::too_many_lines)]

mod api_line;
mod blind;
mod cluster;
mod contender;
mod electors;
mod faults;
mod finish;
mod logs;
mod masters;
mod messages;
mod net;
mod oracle;
mod plan;
mod process;
mod replica;
mod rng;
mod runner;
mod seeds;
mod servers;
mod time;
mod trace;
mod users;
mod world;
