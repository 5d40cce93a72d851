//! A held lock without renewal, whose parts a program can store.

use crate::redlock::{FencingToken, LockKey, LockValue};

/// A held lock without a guard.
///
/// Only [`crate::Client::release`] releases it, and nothing renews it.
///
/// A program can store its parts. [`crate::Client::resume`] takes the lock again from them, on any machine. A client
/// with [`crate::Masters::wait_before_voting`] can do so only after that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lock is held until it is released or runs out"]
pub struct Held {
    pub(super) key: LockKey,
    pub(super) value: LockValue,
    pub(super) token: FencingToken,
}

impl Held {
    /// Makes it from the parts that [`Held::into_parts`] returned.
    pub const fn from_parts(key: LockKey, value: LockValue, token: FencingToken) -> Self {
        Self { key, value, token }
    }

    /// The key, its value, and the token.
    ///
    /// The value is secret: it is enough to release the lock.
    #[must_use]
    pub fn into_parts(self) -> (LockKey, LockValue, FencingToken) {
        (self.key, self.value, self.token)
    }

    /// The fencing token, greater than that of every earlier holder.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }
}
