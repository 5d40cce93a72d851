//! Delays the wakes of a thread until it has stored several answers.

use std::cell::RefCell;
use std::task::Waker;

thread_local! {
    /// Wakers that the thread delays, while [`DeferredWakes`] exists on it.
    static DEFERRED: RefCell<(bool, Vec<Waker>)> = const { RefCell::new((false, Vec::new())) };
}

/// Wakes the task, or delays the wake while [`DeferredWakes`] exists on this thread.
pub(super) fn wake(waker: Waker) {
    let now = DEFERRED.with_borrow_mut(|(is_deferring, wakers)| {
        if !*is_deferring {
            return Some(waker);
        }
        wakers.push(waker);
        None
    });
    if let Some(waker) = now {
        waker.wake();
    }
}

/// Delays the wakes of a thread, and wakes all at once when it is dropped.
///
/// The task that reads the answers of several members has then read all of them before the first caller runs. Otherwise
/// another thread would begin with the first answers, and wait for the lock under which the next answer is stored.
pub(crate) struct DeferredWakes(());

impl DeferredWakes {
    pub(crate) fn begin() -> Self {
        DEFERRED.with_borrow_mut(|(is_deferring, _)| *is_deferring = true);
        Self(())
    }
}

impl Drop for DeferredWakes {
    fn drop(&mut self) {
        // A woken task can store an answer itself, so nothing is borrowed here.
        let mut wakers = DEFERRED.with_borrow_mut(|(is_deferring, wakers)| {
            *is_deferring = false;
            std::mem::take(wakers)
        });
        wakers.drain(..).for_each(Waker::wake);
        DEFERRED.with_borrow_mut(|(_, kept)| {
            if kept.is_empty() && kept.capacity() < wakers.capacity() {
                *kept = wakers;
            }
        });
    }
}
