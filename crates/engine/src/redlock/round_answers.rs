//! Collects the answers of one round: one allocation for all members, and one wake of the waiting task.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use super::answers::{Answers, BoxFuture, MemberError};
use super::deferred_wakes::wake;
use crate::sync::{AtomicBool, Mutex, MutexGuard, locked};

/// The result of a request to one member.
pub(crate) type Answer = Result<Answers, MemberError>;

#[derive(Default)]
struct State {
    arrived: VecDeque<(usize, Answer)>,
    /// Slots without an answer.
    open: usize,
    /// The length of `arrived` that causes the first wake.
    ///
    /// With fewer answers a round cannot be decided. Answers that the waiting task has taken also count.
    wake_at: usize,
    waker: Option<Waker>,
    /// Answers of members that return futures.
    futures: Vec<(usize, BoxFuture<'static, Answer>)>,
    /// No I/O task watches the deadline, so the waiting task needs its own timer.
    is_unwatched: bool,
}

impl State {
    /// Takes the next answer that has arrived.
    fn pop(&mut self) -> Option<(usize, Answer)> {
        let answer = self.arrived.pop_front()?;
        self.on_taken();
        Some(answer)
    }

    fn on_taken(&mut self) {
        self.wake_at = self.wake_at.saturating_sub(1);
    }
}

/// Wakes the waiting task, if there is one, after the state is unlocked.
fn wake_waiting(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// Wakes the task that waits for a round, at its deadline.
///
/// The members' I/O task holds it.
#[derive(Clone)]
pub struct Expiry(Weak<Shared>);

impl Expiry {
    /// Returns true if no task waits for the round.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.upgrade().is_none_or(|shared| shared.is_abandoned.load(Ordering::Acquire))
    }

    /// Wakes the waiting task, because the deadline is now.
    pub fn wake(&self) {
        self.wake_after(|_| {});
    }

    /// Returns the deadline to the waiting task, because the members' I/O task has ended.
    ///
    /// The waiting task then uses its own timer.
    pub fn return_deadline(&self) {
        self.wake_after(|state| state.is_unwatched = true);
    }

    fn wake_after(&self, change: impl FnOnce(&mut State)) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut state = locked(&shared.state);
        change(&mut state);
        wake_waiting(state);
    }
}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiry").field("is_abandoned", &self.is_abandoned()).finish()
    }
}

/// The answers to one round.
#[derive(Clone)]
pub(crate) struct RoundAnswers(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The round was dropped.
    is_abandoned: AtomicBool,
}

impl RoundAnswers {
    /// Answers for this number of slots, each of which must be created.
    ///
    /// `wake_at` answers cause the first wake.
    pub(crate) fn of(slots: usize, wake_at: usize) -> Self {
        let arrived = VecDeque::with_capacity(slots);
        let state = Mutex::new(State { arrived, open: slots, wake_at, ..State::default() });
        Self(Arc::new(Shared { state, is_abandoned: AtomicBool::new(false) }))
    }

    /// The slot of the member with this index.
    pub(crate) fn slot(&self, index: usize) -> AnswerSlot {
        AnswerSlot { answers: self.clone(), index, is_open: true }
    }

    /// The handle for the task that watches the deadline.
    pub(crate) fn expiry(&self) -> Expiry {
        Expiry(Arc::downgrade(&self.0))
    }

    /// Returns true if the members' I/O task has returned the deadline.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.state().is_unwatched
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }

    /// Marks the round as dropped.
    pub(crate) fn abandon(&self) {
        self.0.is_abandoned.store(true, Ordering::Release);
    }

    /// The next answer.
    ///
    /// `None` when all slots have answered.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<(usize, Answer)>> {
        let mut state = self.state();
        if let Some(answer) = state.pop() {
            return Poll::Ready(Some(answer));
        }
        let mut futures = std::mem::take(&mut state.futures);
        drop(state);
        let mut ready = None;
        futures.retain_mut(|(index, future)| {
            if ready.is_some() {
                return true;
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    ready = Some((*index, answer));
                    false
                }
                Poll::Pending => true,
            }
        });
        let mut state = self.state();
        state.futures.append(&mut futures);
        if ready.is_some() {
            state.on_taken();
            return Poll::Ready(ready);
        }
        // An answer can have arrived since the first check.
        if let Some(answer) = state.pop() {
            return Poll::Ready(Some(answer));
        }
        if state.open == 0 && state.futures.is_empty() {
            return Poll::Ready(None);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The place for the answer of one member.
///
/// A slot that is dropped without an answer reports a closed connection.
pub struct AnswerSlot {
    answers: RoundAnswers,
    index: usize,
    is_open: bool,
}

impl AnswerSlot {
    /// A slot of its own, and its answer.
    pub(crate) fn single() -> (Self, impl Future<Output = Answer> + Send + use<>) {
        let answers = RoundAnswers::of(1, 1);
        let slot = answers.slot(0);
        let answer = async move {
            let next = std::future::poll_fn(|cx| answers.poll_next(cx)).await;
            next.map_or_else(|| Err(MemberError::closed()), |(_, answer)| answer)
        };
        (slot, answer)
    }

    /// A slot for an answer that the caller ignores.
    pub(crate) fn detached() -> Self {
        RoundAnswers::of(1, 1).slot(0)
    }

    /// Stores the member's answer.
    pub fn answer(mut self, answer: Result<Answers, MemberError>) {
        self.put(answer);
    }

    /// Stores a future that gives the answer.
    ///
    /// The task that waits for the round polls it.
    pub fn answer_later(mut self, answer: BoxFuture<'static, Result<Answers, MemberError>>) {
        self.is_open = false;
        let mut state = self.answers.state();
        state.open -= 1;
        state.futures.push((self.index, answer));
        wake_waiting(state);
    }

    fn put(&mut self, answer: Answer) {
        self.is_open = false;
        let mut state = self.answers.state();
        state.open -= 1;
        state.arrived.push_back((self.index, answer));
        if state.arrived.len() < state.wake_at && state.open > 0 {
            return;
        }
        state.wake_at = 0;
        wake_waiting(state);
    }
}

impl Drop for AnswerSlot {
    fn drop(&mut self) {
        if self.is_open {
            self.put(Err(MemberError::closed()));
        }
    }
}

impl fmt::Debug for AnswerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSlot").field("index", &self.index).finish_non_exhaustive()
    }
}

#[cfg(all(test, redlock_loom))]
mod interleavings {
    use loom::future::block_on;
    use loom::thread;

    use super::*;

    /// Every interleaving of the tasks of two members and the task that waits for both.
    ///
    /// No answer is lost, and the waiting task always wakes.
    #[test]
    fn answers_of_several_tasks_reach_the_waiting_task() {
        loom::model(|| {
            let round = RoundAnswers::of(2, 1);
            let members: Vec<_> = (0..2)
                .map(|index| {
                    let slot = round.slot(index);
                    // The first answers, and the second is dropped.
                    thread::spawn(move || if index == 0 { slot.answer(Err(MemberError::Busy)) } else { drop(slot) })
                })
                .collect();
            let mut answers = block_on(async {
                let mut answers = Vec::new();
                while let Some(answer) = std::future::poll_fn(|cx| round.poll_next(cx)).await {
                    answers.push(answer);
                }
                answers
            });
            answers.sort_by_key(|(index, _)| *index);
            assert_eq!(answers, [(0, Err(MemberError::Busy)), (1, Err(MemberError::closed()))]);
            members.into_iter().for_each(|member| member.join().unwrap());
        });
    }

    /// The members' I/O task returns the deadlines during a wait.
    ///
    /// The waiting task wakes, and uses its own timer.
    #[test]
    fn a_waiting_task_gets_its_deadline_back() {
        loom::model(|| {
            let round = RoundAnswers::of(1, 1);
            let slot = round.slot(0);
            let expiry = round.expiry();
            let task = thread::spawn(move || expiry.return_deadline());
            block_on(std::future::poll_fn(|cx| {
                // A round does the same: answers first, then the deadline.
                assert!(round.poll_next(cx).is_pending());
                if round.is_unwatched() { Poll::Ready(()) } else { Poll::Pending }
            }));
            task.join().unwrap();
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests;
