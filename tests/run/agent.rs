//! `redlock agent` over HTTP.

mod client;
mod commands;
mod direct;
mod examples;
mod follows;
