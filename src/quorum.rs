//! A RedisQuorum, from its objects to the votes of its members (docs/dev/rules.md).
//!
//! It has three floors, and no floor uses a higher one. [`model`] decides by pure functions of observed state. [`session`] runs on every
//! replica: it keeps connections to the members, watches them, and has their clock. [`controller`] runs where this replica leads: it
//! fences and admits members, and writes the objects of the quorum.

pub mod controller;
pub mod model;
pub mod session;

pub use controller::ensure_default_quorum;
