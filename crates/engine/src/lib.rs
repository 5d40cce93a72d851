//! Redlock for the client library and the operator: decisions, and connections to members.
//!
//! It has no promise of stability. Programs use redlock-client.
//!
//! The modules are its layers, lowest first. No module imports from one after it (tests/layers.rs of the workspace).
//!
//! - [`time`]: clocks as arguments.
//! - [`redlock`]: the algorithm. Its decisions are pure, and the engine sends requests to members over a trait.
//! - [`voting`]: Redis masters as members.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod redlock;
mod sync;
pub mod time;
pub mod voting;
