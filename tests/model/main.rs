//! Exhaustive model checks of the rules for exclusion, tokens and the fence (docs/dev/proof.md).
//!
//! The models contain the environment of the operator's decisions (members, messages, time, crashes). The crate's own
//! functions make the decisions. Each rule has a switch. With any of them off the checker must find and print a
//! counterexample, and a test requires it.
//!
//! `cargo test --test model -- --nocapture` prints counterexamples and figures. `MODEL_BOUND=large` explores further.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, clippy::too_many_lines)]

mod admission;
mod change;
mod check;
mod clock;
mod continuity;
mod core;
mod deletion;
mod membership;
mod protocol;
mod sets;
mod settings;
mod shared;
mod tokens;
mod votes;
