//! Generators of objects, for property tests of this crate and of its users.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests alone use it")]

mod accepted;
mod odd;

pub use accepted::accepted;
pub use odd::{config, object};
#[cfg(test)]
pub(crate) use odd::{text, times};
