//! Distributed locks through Redlock over independent Redis masters, with fencing tokens.
//!
//! Begin with [`Client`]. [README.md](https://docs.rs/crate/redlock-client/latest) describes the promises of the
//! library, and its conditions. `blocking` (with the feature of that name) is the same for programs without a runtime.
//! `test_util` (with the feature `test-util`) has fake masters, for tests of programs that take locks.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::must_use_candidate)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
#[cfg(feature = "test-util")]
pub mod test_util;

pub use client::{
    BuildError, Builder, Client, Election, Event, Guard, Held, Leadership, Lock, LossCause, Lost, Masters, MemberState,
    NotAcquired, ReadResult, Reader, ReaderBuilder, Release, Undelivered, UrlError,
};
pub use redlock_engine::redlock::{
    Drift, FencingToken, LockKey, LockValue, MemberError, MemberFailure, MemberName, Nonce, Owner, Reading, Unfit,
};
pub use redlock_engine::time::{Boottime, Clock, SystemClock};
pub use redlock_engine::voting::Machine;
// The modules of this crate use these paths.
use redlock_engine::{redlock, time, voting};
