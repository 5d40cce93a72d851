//! Exhaustive model checks of the rules that exclusion, tokens and the fence rest on (docs/dev/proof.md). The models hold what is
//! around the operator's decisions (members, messages, time, crashes); the decisions themselves are made by the crate's own
//! functions. Each rule has a switch, and with any of them off the checker has to find a counterexample: it is printed, and
//! kept from getting lost by the test that asks for it.
//!
//! `cargo test --test model -- --nocapture` prints counterexamples and figures; `MODEL_BOUND=large` explores further.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, clippy::too_many_lines)]

mod admission;
mod check;
mod clock;
mod continuity;
mod core;
mod deletion;
mod exclusion;
mod membership;
mod settings;
mod shared;
mod tokens;
mod votes;
mod watched;
