//! Mutexes and atomics for state that threads share.
//!
//! `dev/threads.sh` replaces them with those of loom, which tries every interleaving.

#[cfg(redlock_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(redlock_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(not(redlock_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks the mutex, also after a panic of its holder.
///
/// A panic leaves nothing half done: each change under a lock is one assignment, or one operation of a queue.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
