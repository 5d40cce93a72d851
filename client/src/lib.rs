//! Distributed locks through Redlock over independent Redis masters, with fencing tokens.
//!
//! The engine of redlock-operator as a library that needs no Kubernetes. The modules are its layers, lowest first: none imports from
//! one after it (tests/layers.rs of the workspace).
//!
//! - [`time`]: clocks as arguments.
//! - [`redlock`]: the algorithm. What it decides with is pure, and the engine asks members over a trait.
//! - [`voting`]: Redis masters as members.

pub mod redlock;
pub mod time;
pub mod voting;
