//! Whether the task of some members has something to do, and how it is woken.

use super::deadlines::Deadlines;
use crate::sync::{AtomicBool, AtomicU8, Mutex, locked};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

/// The task waits to be woken.
const ASLEEP: u8 = 0;
/// The task looks at its lines.
const RUNNING: u8 = 1;
/// The task has been woken, or has to look once more.
const AGAIN: u8 = 2;

/// What callers, connections and the task share: whether there is something to do.
///
/// It is the waker of all that the task waits for. What happens while the task runs makes it look once more before it ends. If the
/// runtime were told instead, it would schedule the task again and wake another thread for it, at each answer that comes a moment
/// after the one before.
#[derive(Default)]
pub(super) struct Hub {
    /// Jobs were put somewhere and the task was not woken for them yet.
    pending: AtomicBool,
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
    deadlines: Deadlines,
}

impl Hub {
    /// When rounds end that wait for members of this task.
    pub(super) const fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Wakes the task once for all that was put.
    pub(super) fn flush(&self) {
        if self.pending.swap(false, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// There is something for the task, which [`Hub::flush`] wakes for it.
    ///
    /// It reads what it overwrites: whoever flushes for several callers then makes the task see the jobs of all of them. A plain store would
    /// hide the one before it, and on a processor that reorders writes the task could miss that caller's job.
    pub(super) fn put(&self) {
        self.pending.swap(true, Ordering::AcqRel);
    }

    pub(super) fn notify(&self) {
        if self.state.swap(AGAIN, Ordering::AcqRel) == ASLEEP {
            let waker = locked(&self.task).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// The task begins to look, and is woken by `waker` from now on.
    pub(super) fn begin(&self, waker: &Waker) {
        let mut task = locked(&self.task);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
        drop(task);
        self.check_inbox();
    }

    /// The task looks: what happened before is seen.
    pub(super) fn check_inbox(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// The task goes to sleep: `false` if something has happened since it began to look.
    pub(super) fn sleep(&self) -> bool {
        self.state.compare_exchange(RUNNING, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Wake for Hub {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

#[cfg(all(test, redlock_loom))]
mod interleavings {
    use super::*;
    use crate::sync::AtomicUsize;
    use loom::future::block_on;
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    /// Each interleaving of callers and the task: whatever was put before a flush is taken, though the task is woken once for several.
    /// A job that nobody is woken for would be a deadlock, which loom reports.
    #[test]
    fn the_task_sees_all_that_was_put_before_a_flush() {
        loom::model(|| {
            let hub = Arc::new(Hub::default());
            let waiting = Arc::new(AtomicUsize::new(0));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let (hub, waiting) = (Arc::clone(&hub), Arc::clone(&waiting));
                    thread::spawn(move || {
                        waiting.fetch_add(1, Ordering::Release);
                        hub.put();
                        hub.flush();
                    })
                })
                .collect();
            let mut taken = 0;
            // As the driver does it.
            block_on(poll_fn(|cx| {
                hub.begin(cx.waker());
                loop {
                    taken += waiting.swap(0, Ordering::AcqRel);
                    if taken == 2 {
                        return Poll::Ready(());
                    }
                    if hub.sleep() {
                        return Poll::Pending;
                    }
                    hub.check_inbox();
                }
            }));
            callers.into_iter().for_each(|caller| caller.join().unwrap());
        });
    }

    /// The same for what connections wake it for, by the hub as their waker.
    #[test]
    fn the_task_sees_what_connections_have_become() {
        loom::model(|| {
            let hub = Arc::new(Hub::default());
            let is_ready = Arc::new(AtomicUsize::new(0));
            let (waker, ready) = (Waker::from(Arc::clone(&hub)), Arc::clone(&is_ready));
            let connection = thread::spawn(move || {
                ready.store(1, Ordering::Release);
                waker.wake_by_ref();
                ready.store(2, Ordering::Release);
                waker.wake();
            });
            block_on(poll_fn(|cx| {
                hub.begin(cx.waker());
                loop {
                    if is_ready.load(Ordering::Acquire) == 2 {
                        return Poll::Ready(());
                    }
                    if hub.sleep() {
                        return Poll::Pending;
                    }
                    hub.check_inbox();
                }
            }));
            connection.join().unwrap();
        });
    }
}
