//! One Redis 7.0 server as a state machine: bytes of a connection go in, bytes come out.
//!
//! It has no tasks, IO or time of its own. The caller passes the time of the member's wall clock with each call, in
//! microseconds. The product's Lua scripts run unchanged. `differential.rs` compares it with a real server.
//!
//! The machine refuses and records each request that only a real server can execute, see [`Server::not_modelled`].

mod acl;
mod acl_commands;
mod acl_show;
mod cjson;
mod clients;
mod core;
#[cfg(test)]
mod differential;
mod dispatch;
mod glob;
mod hashes;
mod info;
mod keyspace;
mod number;
#[cfg(test)]
mod product;
mod resp;
mod rules;
mod script;
mod script_errors;
mod server;
mod strings;
mod table;
#[cfg(test)]
mod tests;

pub use server::{Config, ConnectionId, Server};
