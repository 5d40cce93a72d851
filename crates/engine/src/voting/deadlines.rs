//! Deadlines of rounds, seen to by the task that moves the bytes: one timer for all, in place of one for each round. A timer that is
//! made and dropped thirty thousand times a second wakes the runtime as often.

use crate::redlock::Expiry;
use crate::time::timers_now;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;
use tokio::time::{Instant, Sleep, sleep_until};

/// A round that waits.
struct Waiting(Instant, Expiry);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest: that is what a heap gives first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

#[derive(Default)]
struct State {
    waiting: BinaryHeap<Waiting>,
    has_ended: bool,
}

/// What callers and the task share.
#[derive(Default)]
pub(super) struct Deadlines(Mutex<State>);

impl Deadlines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false` once the task has ended.
    pub(super) fn add(&self, deadline: Instant, expiry: &Expiry) -> bool {
        let mut state = self.state();
        if !state.has_ended {
            state.waiting.push(Waiting(deadline, expiry.clone()));
        }
        !state.has_ended
    }

    /// Wakes those whose time has come, forgets those that nobody waits for, and tells when the next one is due.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        let mut due = Vec::new();
        let next = loop {
            match state.waiting.peek() {
                None => break None,
                Some(Waiting(deadline, expiry)) if *deadline > now && !expiry.is_over() => break Some(*deadline),
                Some(_) => due.extend(state.waiting.pop()),
            }
        };
        drop(state);
        due.iter().for_each(|Waiting(_, expiry)| expiry.wake());
        next
    }

    /// The task ends: rounds see to their deadlines themselves.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(|Waiting(_, expiry)| expiry.give_up());
    }
}

/// The task's timer.
#[derive(Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Wakes rounds whose time has come, and sees to it that the task is polled when the next one is due. It rings too early rather
    /// than being set again for each round.
    pub(super) fn poll(&mut self, deadlines: &Deadlines, cx: &mut Context<'_>) {
        while let Some(next) = deadlines.expire(timers_now()) {
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
    use super::*;
    use crate::redlock::slot::Collected;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn rounds_are_woken_at_their_deadlines_in_whatever_order_they_came() {
        let (deadlines, begin) = (Deadlines::default(), timers_now());
        let wait = async |millis: u64, is_over: bool| {
            let collected = Collected::of(1, 1);
            let _slot = collected.slot(0);
            let deadline = begin + Duration::from_millis(millis);
            assert!(deadlines.add(deadline, &collected.expiry()));
            if is_over {
                collected.leave();
            }
            let woken = |cx: &mut Context<'_>| {
                let is_pending = collected.poll_next(cx).is_pending();
                if is_pending && timers_now() < deadline { Poll::Pending } else { Poll::Ready(()) }
            };
            poll_fn(woken).await;
            begin.elapsed().as_millis()
        };
        let mut alarm = Alarm::default();
        let rounds = async { tokio::join!(wait(50, false), wait(20, false), wait(80, false), wait(50, false)) };
        let (early, (first, second, third, fourth)) = tokio::select! {
            // The task is woken after each round that has been added.
            biased;
            all = async { tokio::join!(timeout(Duration::from_millis(70), wait(10, true)), rounds) } => all,
            () = poll_fn(|cx| { alarm.poll(&deadlines, cx); Poll::Pending }) => unreachable!(),
        };
        assert_eq!([first, second, third, fourth], [50, 20, 80, 50]);
        assert!(early.is_err() || early == Ok(20), "nobody is woken for a round that is over: {early:?}");
    }

    #[test]
    fn rounds_are_told_when_the_task_ends() {
        let deadlines = Deadlines::default();
        let collected = Collected::of(1, 1);
        assert!(deadlines.add(timers_now(), &collected.expiry()));
        deadlines.end();
        assert!(collected.is_unwatched());
        assert!(!deadlines.add(timers_now(), &collected.expiry()));
    }
}
