//! The task that reads and writes the connections of all members of a quorum.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::encoded_requests::EncodedRequests;
use super::member_connection::MemberConnection;
use super::round_timers::TaskTimer;
use super::task_waker::TaskWaker;
use crate::redlock::deferred_wakes::DeferredWakes;

/// Number of operations in flight above which the task first yields to callers that it has just woken.
///
/// Their next requests are then written together. With fewer operations a yield would only cost time.
const YIELD_ABOVE: usize = 4;
/// Maximum number of checks per poll.
///
/// Then other tasks run.
const MAX_CHECKS: usize = 16;

/// The I/O task.
///
/// It polls all its connections whenever it wakes: they are few, and a poll is cheap.
pub(super) struct IoTask {
    task_waker: Arc<TaskWaker>,
    /// The waker for connections and timers.
    waker: Waker,
    connections: Vec<MemberConnection>,
    has_yielded: bool,
    encoded: EncodedRequests,
    task_timer: TaskTimer,
}

impl IoTask {
    pub(super) fn run(
        task_waker: Arc<TaskWaker>,
        connections: Vec<MemberConnection>,
    ) -> impl Future<Output = ()> + Send {
        // Tokio's budget for a task must not delay a vote. The connections bound the work per poll.
        tokio::task::unconstrained(Self {
            waker: Waker::from(Arc::clone(&task_waker)),
            task_waker,
            connections,
            has_yielded: false,
            encoded: EncodedRequests::default(),
            task_timer: TaskTimer::default(),
        })
    }

    /// Reads from all connections, and writes unless it yields to callers first.
    ///
    /// Returns true if it yields.
    fn check(&mut self) -> bool {
        let Self { task_waker, waker, connections, has_yielded, encoded, task_timer } = self;
        let cx = &mut Context::from_waker(waker);
        let deferred_wakes = DeferredWakes::begin();
        connections.iter_mut().for_each(|connection| connection.poll_incoming(cx));
        drop(deferred_wakes);
        let is_busy = connections.iter().any(|connection| connection.in_flight() > YIELD_ABOVE)
            && connections.iter().any(MemberConnection::has_requests);
        if is_busy && !std::mem::replace(has_yielded, true) {
            return true;
        }
        *has_yielded = false;
        connections.retain_mut(|connection| {
            encoded.rewind();
            connection.poll_outgoing(cx, encoded).is_pending()
        });
        encoded.clear();
        task_timer.poll(task_waker.round_timers(), cx);
        false
    }
}

impl Future for IoTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.task_waker.begin(cx.waker());
        for _ in 0..MAX_CHECKS {
            let callers_first = this.check();
            if this.connections.is_empty() {
                return Poll::Ready(());
            }
            if callers_first {
                break;
            }
            if this.task_waker.sleep() {
                return Poll::Pending;
            }
            this.task_waker.start_check();
        }
        // The task runs again after all tasks that are ready now.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for IoTask {
    fn drop(&mut self) {
        self.task_waker.round_timers().stop();
    }
}
