//! Kubernetes and Redis as deterministic state machines, for the simulation in `tests/operator`.
//!
//! Neither has tasks, IO or time of its own: the caller passes the time with each call. A change of the operator does not rebuild them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, clippy::too_many_lines)]
#![allow(missing_docs, reason = "a tool of the tests")]

pub mod kube;
pub mod redis;
