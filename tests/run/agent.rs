//! `redlock agent` over HTTP.

pub(crate) mod client;
mod commands;
mod direct;
mod examples;
mod follows;
