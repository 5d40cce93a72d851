//! Distributed locks through Redlock over independent Redis masters, with fencing tokens.
//!
//! The engine of redlock-operator as a library that needs no Kubernetes. The modules are its layers, lowest first: none imports from
//! one after it (tests/layers.rs of the workspace).
//!
//! - [`time`]: clocks as arguments.
//! - [`redlock`]: the algorithm. What it decides with is pure, and the engine asks members over a trait.
//! - [`voting`]: Redis masters as members.
//! - `blocking` (with the feature of that name): the same for programs without a runtime.
//! - [`client`]: locks for programs. Begin with [`Client`].
//! - `test_util` (with the feature `test-util`): fake masters, for tests of programs that take locks.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "blocking")]
pub mod blocking;
pub mod client;
pub mod redlock;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
pub mod time;
pub mod voting;

pub use client::{
    BuildError, Builder, Client, Election, Event, Guard, Held, Leadership, Lock, Looked, LossCause, Lost, Masters,
    MemberState, NotAcquired, Reader, ReaderBuilder, Release, Undelivered, UrlError,
};
pub use redlock::{Drift, FencingToken, LockKey, LockValue, Sighting, Whose};
