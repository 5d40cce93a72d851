//! One task for the connections of all members of a quorum.

use super::copies::Copies;
use super::deadlines::Alarm;
use super::hub::Hub;
use super::line::Line;
use crate::redlock::slot::Together;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// With more operations in flight the task lets the callers that it has just woken go first, so that their next requests are
/// written together. Never when less is going on: then it would only cost time.
const FEW: usize = 4;
/// So often the task looks once more because something has happened meanwhile. Then others have their turn.
const MOST_CHECKS: usize = 16;

/// The task. It polls all its lines whenever one of them may have something to do: they are few, and a look costs little.
pub(super) struct Driver {
    hub: Arc<Hub>,
    /// The hub, as connections and timers know it.
    waker: Waker,
    lines: Vec<Line>,
    has_yielded: bool,
    copies: Copies,
    alarm: Alarm,
}

impl Driver {
    pub(super) fn run(hub: Arc<Hub>, lines: Vec<Line>) -> impl Future<Output = ()> + Send {
        // Tokio's budget for a task must not hold up a vote. What is done per poll is bounded by the lines.
        tokio::task::unconstrained(Self {
            waker: Waker::from(Arc::clone(&hub)),
            hub,
            lines,
            has_yielded: false,
            copies: Copies::default(),
            alarm: Alarm::default(),
        })
    }

    /// Reads, and writes unless callers go first: then `true`.
    fn check(&mut self) -> bool {
        let Self { hub, waker, lines, has_yielded, copies, alarm } = self;
        let cx = &mut Context::from_waker(waker);
        let together = Together::begin();
        lines.iter_mut().for_each(|line| line.poll_incoming(cx));
        drop(together);
        let is_busy = lines.iter().any(|line| line.in_flight() > FEW) && lines.iter().any(Line::has_jobs);
        if is_busy && !std::mem::replace(has_yielded, true) {
            return true;
        }
        *has_yielded = false;
        lines.retain_mut(|line| {
            copies.rewind();
            line.poll_outgoing(cx, copies).is_pending()
        });
        copies.clear();
        alarm.poll(hub.deadlines(), cx);
        false
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.hub.begin(cx.waker());
        for _ in 0..MOST_CHECKS {
            let callers_first = this.check();
            if this.lines.is_empty() {
                return Poll::Ready(());
            }
            if callers_first {
                break;
            }
            if this.hub.sleep() {
                return Poll::Pending;
            }
            this.hub.check_inbox();
        }
        // Behind all tasks that can run now.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.hub.deadlines().end();
    }
}
