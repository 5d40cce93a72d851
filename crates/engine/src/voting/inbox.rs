//! What callers put for the task of their members.

use super::Endpoint;
use super::hub::Hub;
use super::job::Job;
use crate::sync::{AtomicUsize, Mutex, locked};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        self.hub.put();
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
