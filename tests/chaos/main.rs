//! The judge of suite `chaos` of `tests/e2e`, without the suite.
//!
//! It gets bad histories here, and must find the violation of each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/judge.rs"]
mod checker;
mod checker_tests;
#[path = "../support/store.rs"]
mod store;
mod store_tests;
