//! One request to many members, with one deadline.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::redlock::round_answers::{Answer, RoundAnswers};
use crate::redlock::{Command, Elector, Electorate};
use crate::time::timers_now;

/// One request to many members, and their answers as they arrive.
///
/// Members execute the request even if the round is dropped before they answer.
pub(super) struct Round {
    answers: RoundAnswers,
    deadline: Instant,
    /// The timer of this round, if no task of the members watches the deadline.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Round {
    /// Enqueues the same commands at each of the electors before it returns.
    ///
    /// The deadline is `timeout` from now.
    pub(super) fn send<'a>(
        electorate: &Electorate,
        asked: impl Iterator<Item = (usize, &'a Elector)> + Clone,
        timeout: Duration,
        commands: impl Into<Arc<[Command]>>,
    ) -> Self {
        let commands = commands.into();
        Self::send_each(electorate, asked, timeout, |_| Arc::clone(&commands))
    }

    /// Enqueues commands for each of the electors, as [`Self::send`] does.
    pub(super) fn send_each<'a>(
        electorate: &Electorate,
        asked: impl Iterator<Item = (usize, &'a Elector)> + Clone,
        timeout: Duration,
        commands: impl Fn(usize) -> Arc<[Command]>,
    ) -> Self {
        let answers = RoundAnswers::of(asked.clone().count(), electorate.fewest_to_decide());
        for (index, elector) in asked {
            elector.member.submit(&commands(index), answers.slot(index));
        }
        let electors = electorate.electors();
        let (deadline, expiry) = (sleep(timeout).deadline(), answers.expiry());
        let has_timer = electors.iter().any(|elector| elector.member.watch(deadline, &expiry));
        // One wake for all requests.
        electors.iter().for_each(|elector| elector.member.flush());
        let timer = (!has_timer).then(|| Box::pin(sleep_until(deadline)));
        Self { answers, deadline, timer }
    }

    /// The next answer.
    ///
    /// `None` when all members have answered, or after the deadline.
    pub(super) async fn next(&mut self) -> Option<(usize, Answer)> {
        poll_fn(|cx| match self.answers.poll_next(cx) {
            Poll::Pending => self.poll_deadline(cx).map(|()| None),
            ready => ready,
        })
        .await
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.is_none() {
            if timers_now() >= self.deadline {
                return Poll::Ready(());
            }
            if !self.answers.is_unwatched() {
                return Poll::Pending;
            }
        }
        let deadline = self.deadline;
        self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline))).as_mut().poll(cx)
    }

    /// The next answer, if it has arrived.
    pub(super) fn ready(&mut self) -> Option<(usize, Answer)> {
        match self.answers.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => None,
        }
    }

    /// Shortens the deadline to `grace` from now, because the outcome is certain.
    pub(super) fn wait_at_most(&mut self, grace: Duration) {
        let end = sleep(grace).deadline();
        if end < self.deadline {
            self.deadline = end;
            self.timer = Some(Box::pin(sleep_until(end)));
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.answers.abandon();
    }
}
