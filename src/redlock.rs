//! Redlock, from the library `redlock-client`, and the values of the operator's own locks.

mod signer;

pub use redlock_engine::redlock::*;
pub use signer::ValueSigner;
