//! `redlock agent` over HTTP.

mod client;
mod direct;
mod follows;
