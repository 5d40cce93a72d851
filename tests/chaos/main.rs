//! The judge of the chaos run by itself. The run is suite `chaos` of `tests/e2e`; here it is fed bad histories, and must see what is
//! wrong with each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/judge.rs"]
mod checker;
mod checker_tests;
#[path = "../support/store.rs"]
mod store;
mod store_tests;
