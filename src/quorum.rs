//! A RedisQuorum, from its objects to the votes of its members (docs/dev/rules.md).
//!
//! It has three layers, and no layer uses a higher one. [`model`] decides by pure functions of observed state. [`session`] runs on every
//! replica. It keeps connections to the members, watches them, and observes their clocks. [`controller`] runs on the leader only. It
//! fences and admits members, and writes the objects of the quorum.

pub mod controller;
pub mod model;
pub mod session;

pub use controller::ensure_default_quorum;
