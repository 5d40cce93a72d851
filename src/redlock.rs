//! Redlock, from the crate `redlock-engine`, and the values of the operator's own locks.

mod signer;

pub use redlock_engine::redlock::*;
pub use signer::ValueSigner;
pub(crate) use signer::{hex, mac};
