//! What callers put for the task of their members, and how they wake it.

use super::Endpoint;
use super::deadlines::Deadlines;
use super::job::Job;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

    fn notify(&self) {
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
        self.look();
    }

    /// The task looks: what happened before is seen.
    pub(super) fn look(&self) {
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

/// What one member is to be asked.
pub(super) struct Inbox {
    hub: Arc<Hub>,
    state: Mutex<State>,
    /// Jobs in the queue, and replies outstanding on the connection.
    waiting: AtomicUsize,
    in_flight: AtomicUsize,
}

struct State {
    jobs: VecDeque<Job>,
    endpoint: Endpoint,
    has_changed: bool,
    is_closed: bool,
}

/// What the task takes out of an inbox besides jobs.
pub(super) enum Notice {
    Closed,
    /// The endpoint has changed.
    Changed(Endpoint),
}

impl Inbox {
    pub(super) fn new(hub: Arc<Hub>, endpoint: Endpoint) -> Self {
        let state = State { jobs: VecDeque::new(), endpoint, has_changed: false, is_closed: false };
        Self { hub, state: Mutex::new(state), waiting: AtomicUsize::new(0), in_flight: AtomicUsize::new(0) }
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Enqueued here and now. The task is woken by [`Hub::flush`].
    pub(super) fn put(&self, job: Job) {
        let mut state = locked(&self.state);
        state.jobs.push_back(job);
        self.waiting.store(state.jobs.len(), Ordering::Release);
        drop(state);
        self.hub.pending.store(true, Ordering::Release);
    }

    pub(super) fn set_endpoint(&self, endpoint: Endpoint) {
        let mut state = locked(&self.state);
        if state.endpoint != endpoint {
            (state.endpoint, state.has_changed) = (endpoint, true);
            drop(state);
            self.hub.notify();
        }
    }

    pub(super) fn close(&self) {
        locked(&self.state).is_closed = true;
        self.hub.notify();
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        let mut state = locked(&self.state);
        state.has_changed = false;
        state.endpoint.clone()
    }

    pub(super) fn notice(&self) -> Option<Notice> {
        let mut state = locked(&self.state);
        if state.is_closed {
            return Some(Notice::Closed);
        }
        std::mem::take(&mut state.has_changed).then(|| Notice::Changed(state.endpoint.clone()))
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// All jobs, in exchange for an empty queue.
    pub(super) fn take(&self, jobs: &mut VecDeque<Job>) {
        let mut state = locked(&self.state);
        self.waiting.store(0, Ordering::Release);
        std::mem::swap(&mut state.jobs, jobs);
    }

    pub(super) fn set_in_flight(&self, replies: usize) {
        self.in_flight.store(replies, Ordering::Release);
    }

    pub(super) fn outstanding(&self) -> usize {
        self.waiting.load(Ordering::Acquire) + self.in_flight.load(Ordering::Acquire)
    }
}
