//! Wakes the I/O task, once for several requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

use super::round_timers::RoundTimers;
use crate::sync::{AtomicBool, AtomicU8, Mutex, locked};

/// The task sleeps until a wake.
const ASLEEP: u8 = 0;
/// The task checks its connections.
const RUNNING: u8 = 1;
/// The task was woken, or must check its connections once more.
const AGAIN: u8 = 2;

/// The wake state that callers, connections and the I/O task share.
///
/// The I/O task passes it as the waker to everything that it polls. A wake during a check sets [`AGAIN`], and the task
/// checks once more. The runtime gets a wake only while the task sleeps. Otherwise each answer that arrives during a
/// check would schedule the task again and wake another thread.
#[derive(Default)]
pub(super) struct TaskWaker {
    /// True if requests were enqueued after the last wake of the task.
    pending: AtomicBool,
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
    round_timers: RoundTimers,
}

impl TaskWaker {
    /// The deadlines of rounds that wait for members of this task.
    pub(super) const fn round_timers(&self) -> &RoundTimers {
        &self.round_timers
    }

    /// Wakes the task once for all enqueued requests.
    pub(super) fn flush(&self) {
        if self.pending.swap(false, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// Records a new request.
    ///
    /// [`TaskWaker::flush`] wakes the task for it.
    ///
    /// The swap acquires the writes of every caller that marked before. One flush therefore makes the requests of all
    /// these callers visible to the task. A plain store would not acquire them, so the task could miss an earlier
    /// request on a processor that reorders writes.
    pub(super) fn mark_pending(&self) {
        self.pending.swap(true, Ordering::AcqRel);
    }

    /// Wakes the task if it sleeps. Otherwise the task checks once more.
    pub(super) fn notify(&self) {
        if self.state.swap(AGAIN, Ordering::AcqRel) == ASLEEP {
            let waker = locked(&self.waker).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// The task begins a poll.
    ///
    /// From now on `waker` wakes it.
    pub(super) fn begin(&self, waker: &Waker) {
        let mut current = locked(&self.waker);
        if !current.as_ref().is_some_and(|current| current.will_wake(waker)) {
            *current = Some(waker.clone());
        }
        drop(current);
        self.start_check();
    }

    /// The task begins a check, which includes everything that happened before.
    pub(super) fn start_check(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// The task goes to sleep.
    ///
    /// Returns `false` if it was woken since the check began.
    pub(super) fn sleep(&self) -> bool {
        self.state.compare_exchange(RUNNING, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

#[cfg(all(test, redlock_loom))]
mod interleavings {
    use std::future::poll_fn;
    use std::task::Poll;

    use loom::future::block_on;
    use loom::thread;

    use super::*;
    use crate::sync::AtomicUsize;

    /// Every interleaving of callers and the task.
    ///
    /// The task takes everything that was enqueued before a flush, with one wake for several requests.
    ///
    /// A request without a wake would be a deadlock, which loom reports.
    #[test]
    fn the_task_takes_all_requests_from_before_a_flush() {
        loom::model(|| {
            let task_waker = Arc::new(TaskWaker::default());
            let waiting = Arc::new(AtomicUsize::new(0));
            let callers: Vec<_> = (0..2)
                .map(|_| {
                    let (task_waker, waiting) = (Arc::clone(&task_waker), Arc::clone(&waiting));
                    thread::spawn(move || {
                        waiting.fetch_add(1, Ordering::Release);
                        task_waker.mark_pending();
                        task_waker.flush();
                    })
                })
                .collect();
            let mut taken = 0;
            // The I/O task does the same.
            block_on(poll_fn(|cx| {
                task_waker.begin(cx.waker());
                loop {
                    taken += waiting.swap(0, Ordering::AcqRel);
                    if taken == 2 {
                        return Poll::Ready(());
                    }
                    if task_waker.sleep() {
                        return Poll::Pending;
                    }
                    task_waker.start_check();
                }
            }));
            callers.into_iter().for_each(|caller| caller.join().unwrap());
        });
    }

    /// The same for wakes by connections.
    #[test]
    fn the_task_checks_connections_after_their_wakes() {
        loom::model(|| {
            let task_waker = Arc::new(TaskWaker::default());
            let is_ready = Arc::new(AtomicUsize::new(0));
            let (waker, ready) = (Waker::from(Arc::clone(&task_waker)), Arc::clone(&is_ready));
            let connection = thread::spawn(move || {
                ready.store(1, Ordering::Release);
                waker.wake_by_ref();
                ready.store(2, Ordering::Release);
                waker.wake();
            });
            block_on(poll_fn(|cx| {
                task_waker.begin(cx.waker());
                loop {
                    if is_ready.load(Ordering::Acquire) == 2 {
                        return Poll::Ready(());
                    }
                    if task_waker.sleep() {
                        return Poll::Pending;
                    }
                    task_waker.start_check();
                }
            }));
            connection.join().unwrap();
        });
    }
}
