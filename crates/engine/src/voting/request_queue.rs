//! The queue between callers and the I/O task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Endpoint;
use super::task_waker::TaskWaker;
use crate::redlock::{AnswerSlot, Command};
use crate::sync::{AtomicUsize, Mutex, locked};

/// A request of a caller: its commands, and the slot for their answers.
pub(super) struct Request {
    pub(super) commands: Arc<[Command]>,
    pub(super) slot: AnswerSlot,
}

/// The requests and changes for one member.
///
/// Callers add them, and the I/O task takes them.
pub(super) struct RequestQueue {
    waker: Arc<TaskWaker>,
    state: Mutex<State>,
    /// Requests in the queue.
    waiting: AtomicUsize,
    in_flight: AtomicUsize,
}

struct State {
    requests: VecDeque<Request>,
    endpoint: Endpoint,
    has_changed: bool,
    is_closed: bool,
}

/// A change that the task takes from a queue.
pub(super) enum Notice {
    Closed,
    /// The endpoint has changed.
    Changed(Endpoint),
}

impl RequestQueue {
    pub(super) fn new(waker: Arc<TaskWaker>, endpoint: Endpoint) -> Self {
        let state = State { requests: VecDeque::new(), endpoint, has_changed: false, is_closed: false };
        Self { waker, state: Mutex::new(state), waiting: AtomicUsize::new(0), in_flight: AtomicUsize::new(0) }
    }

    pub(super) fn waker(&self) -> &TaskWaker {
        &self.waker
    }

    /// Enqueues a request before it returns.
    ///
    /// [`TaskWaker::flush`] wakes the task.
    pub(super) fn put(&self, request: Request) {
        let mut state = locked(&self.state);
        state.requests.push_back(request);
        self.waiting.store(state.requests.len(), Ordering::Release);
        drop(state);
        self.waker.mark_pending();
    }

    pub(super) fn set_endpoint(&self, endpoint: Endpoint) {
        let mut state = locked(&self.state);
        if state.endpoint != endpoint {
            (state.endpoint, state.has_changed) = (endpoint, true);
            drop(state);
            self.waker.notify();
        }
    }

    pub(super) fn close(&self) {
        locked(&self.state).is_closed = true;
        self.waker.notify();
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

    pub(super) fn has_requests(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Takes all requests in exchange for an empty queue.
    pub(super) fn take(&self, requests: &mut VecDeque<Request>) {
        let mut state = locked(&self.state);
        self.waiting.store(0, Ordering::Release);
        std::mem::swap(&mut state.requests, requests);
    }

    pub(super) fn set_in_flight(&self, replies: usize) {
        self.in_flight.store(replies, Ordering::Release);
    }

    pub(super) fn outstanding(&self) -> usize {
        self.waiting.load(Ordering::Acquire) + self.in_flight.load(Ordering::Acquire)
    }
}
