//! One task for the connections of all members of a quorum.

use super::copies::Copies;
use super::deadlines::Alarm;
use super::inbox::Hub;
use super::line::Line;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// With more operations in flight the task lets the callers that it has just woken go first, so that their next requests are
/// written together. Never when less is going on: then it would only cost time.
const FEW: usize = 4;

/// The task. It polls all its lines whenever one of them may have something to do: they are few, and a look costs little.
pub(super) struct Driver {
    hub: Arc<Hub>,
    lines: Vec<Line>,
    has_yielded: bool,
    copies: Copies,
    alarm: Alarm,
}

impl Driver {
    pub(super) fn run(hub: Arc<Hub>, lines: Vec<Line>) -> impl Future<Output = ()> + Send {
        // Tokio's budget for a task must not hold up a vote. What is done per poll is bounded by the lines.
        tokio::task::unconstrained(Self {
            hub,
            lines,
            has_yielded: false,
            copies: Copies::default(),
            alarm: Alarm::default(),
        })
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.hub.register(cx.waker());
        this.lines.iter_mut().for_each(|line| line.poll_incoming(cx));
        let is_busy = this.lines.iter().any(|line| line.in_flight() > FEW) && this.lines.iter().any(Line::has_jobs);
        if is_busy && !std::mem::replace(&mut this.has_yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.has_yielded = false;
        let Self { hub, lines, copies, alarm, .. } = this;
        lines.retain_mut(|line| {
            copies.rewind();
            line.poll_outgoing(cx, copies).is_pending()
        });
        copies.clear();
        alarm.poll(hub.deadlines(), cx);
        if lines.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.hub.deadlines().end();
    }
}
