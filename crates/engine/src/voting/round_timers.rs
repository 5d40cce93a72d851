//! Deadlines of rounds, on one timer of the I/O task instead of one timer for each round.
//!
//! A timer that is made and dropped thirty thousand times a second wakes the runtime as often.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::redlock::Expiry;
use crate::time::timers_now;

/// The deadline of a waiting round.
struct RoundTimer(Instant, Expiry);

impl PartialEq for RoundTimer {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for RoundTimer {}

impl PartialOrd for RoundTimer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest deadline is the greatest, because a heap returns its greatest element first.
impl Ord for RoundTimer {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

#[derive(Default)]
struct State {
    timers: BinaryHeap<RoundTimer>,
    is_stopped: bool,
}

/// The deadlines of all rounds that wait for the members of one task.
///
/// Callers add them, and the task wakes the rounds.
#[derive(Default)]
pub(super) struct RoundTimers(Mutex<State>);

impl RoundTimers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a deadline.
    ///
    /// Returns `false` after the task has ended.
    pub(super) fn add(&self, deadline: Instant, expiry: &Expiry) -> bool {
        let mut state = self.state();
        if !state.is_stopped {
            state.timers.push(RoundTimer(deadline, expiry.clone()));
        }
        !state.is_stopped
    }

    /// Wakes rounds whose deadline has passed, and returns the next deadline.
    ///
    /// It also removes dropped rounds.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let mut due = Vec::new();
        let next = loop {
            match state.timers.peek() {
                None => break None,
                Some(RoundTimer(deadline, expiry)) if *deadline > now && !expiry.is_abandoned() => {
                    break Some(*deadline);
                }
                Some(_) => due.extend(state.timers.pop()),
            }
        };
        drop(state);
        due.iter().for_each(|RoundTimer(_, expiry)| expiry.wake());
        next
    }

    /// Returns all deadlines to their rounds, because the task ends.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        let timers = std::mem::take(&mut state.timers);
        drop(state);
        timers.iter().for_each(|RoundTimer(_, expiry)| expiry.return_deadline());
    }
}

/// The timer of the I/O task.
#[derive(Default)]
pub(super) struct TaskTimer(Option<Pin<Box<Sleep>>>);

impl TaskTimer {
    /// Wakes rounds whose deadline has passed, and wakes the task at the next deadline.
    ///
    /// The timer sometimes fires early, because it is not reset for each round.
    pub(super) fn poll(&mut self, round_timers: &RoundTimers, cx: &mut Context<'_>) {
        while let Some(next) = round_timers.expire(timers_now()) {
            let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if timer.is_elapsed() || timer.deadline() > next {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::redlock::round_answers::RoundAnswers;

    #[tokio::test(start_paused = true)]
    async fn rounds_wake_at_their_deadlines_in_any_order() {
        let (round_timers, begin) = (RoundTimers::default(), timers_now());
        let wait = async |millis: u64, is_abandoned: bool| {
            let answers = RoundAnswers::of(1, 1);
            let _slot = answers.slot(0);
            let deadline = begin + Duration::from_millis(millis);
            assert!(round_timers.add(deadline, &answers.expiry()));
            if is_abandoned {
                answers.abandon();
            }
            let woken = |cx: &mut Context<'_>| {
                let is_pending = answers.poll_next(cx).is_pending();
                if is_pending && timers_now() < deadline { Poll::Pending } else { Poll::Ready(()) }
            };
            poll_fn(woken).await;
            begin.elapsed().as_millis()
        };
        let mut task_timer = TaskTimer::default();
        let rounds = async { tokio::join!(wait(50, false), wait(20, false), wait(80, false), wait(50, false)) };
        let (early, (first, second, third, fourth)) = tokio::select! {
            // The task wakes after each round that was added.
            biased;
            all = async { tokio::join!(timeout(Duration::from_millis(70), wait(10, true)), rounds) } => all,
            () = poll_fn(|cx| { task_timer.poll(&round_timers, cx); Poll::Pending }) => unreachable!(),
        };
        assert_eq!([first, second, third, fourth], [50, 20, 80, 50]);
        assert!(early.is_err() || early == Ok(20), "a closed round wakes no caller: {early:?}");
    }

    #[test]
    fn rounds_get_their_deadlines_back_when_the_task_ends() {
        let round_timers = RoundTimers::default();
        let answers = RoundAnswers::of(1, 1);
        assert!(round_timers.add(timers_now(), &answers.expiry()));
        round_timers.stop();
        assert!(answers.is_unwatched());
        assert!(!round_timers.add(timers_now(), &answers.expiry()));
    }
}
