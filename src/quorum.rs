//! A quorum of Redis members that the operator runs: the objects it is made of, the connections to it, and the controller
//! that lets its members vote (docs/dev/rules.md).
//!
//! Three floors, and nothing on one of them knows those above it. [`model`] decides: pure functions of what was seen. [`session`] runs
//! on every replica: it keeps connections to the members, watches them, and has their clock. [`controller`] runs where this replica
//! leads: it fences and admits members, and writes what the quorum is made of.

pub mod controller;
pub mod model;
pub mod session;

pub use controller::ensure_default_quorum;
