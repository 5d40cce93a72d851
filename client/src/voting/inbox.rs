//! What callers put for the task of their members, and how they wake it.

use super::Endpoint;
use super::deadlines::Deadlines;
use super::job::Job;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What callers and the task share: whether there is something to do.
#[derive(Default)]
pub(super) struct Hub {
    /// Jobs were put somewhere and the task was not woken for them yet.
    pending: AtomicBool,
    task: Mutex<Option<Waker>>,
    deadlines: Deadlines,
}

impl Hub {
    /// When rounds end that wait for members of this task.
    pub(super) const fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Wakes the task once for all that was put.
    pub(super) fn wake(&self) {
        if self.pending.swap(false, Ordering::AcqRel) {
            let waker = locked(&self.task).clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn wake_for(&self) {
        self.pending.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn register(&self, waker: &Waker) {
        let mut task = locked(&self.task);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
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

    /// Enqueued here and now. The task is woken by [`Hub::wake`].
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
            self.hub.wake_for();
        }
    }

    pub(super) fn close(&self) {
        locked(&self.state).is_closed = true;
        self.hub.wake_for();
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
