//! The base of quorums and locks: API client, watched caches, leadership, metrics and settings.

pub mod cache;
pub mod context;
pub mod fair_queue;
#[cfg(test)]
pub(crate) mod fake_api;
pub mod keys;
mod kinds;
pub mod leader;
pub mod limits;
pub mod metrics;
pub mod node_watch;
pub mod panics;
pub mod reconciles;
pub mod scope;
pub mod settings;
