//! What threads share is made of these, so that loom can try every interleaving of them (`dev/threads.sh`).

#[cfg(redlock_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(redlock_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks. A thread that has panicked with the lock leaves nothing half done: each change here is one assignment, or a queue's own.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
