//! Where the answers of one round come together: one allocation for all members, and one wake of whoever waits for them.

use super::answers::{Answers, BoxFuture, MemberError};
use crate::sync::{AtomicBool, Mutex, MutexGuard, locked};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

/// What came of asking one member.
pub(crate) type Answer = Result<Answers, MemberError>;

thread_local! {
    /// Whom the thread is to wake later, while a [`Together`] lives on it.
    static LATER: RefCell<(bool, Vec<Waker>)> = const { RefCell::new((false, Vec::new())) };
}

fn wake(waker: Waker) {
    let now = LATER.with_borrow_mut(|(puts_off, wakers)| {
        if !*puts_off {
            return Some(waker);
        }
        wakers.push(waker);
        None
    });
    if let Some(waker) = now {
        waker.wake();
    }
}

/// While it lives, this thread wakes nobody for an answer; then it wakes all at once. So a task that reads the answers of several members
/// has read them all when the first caller looks: another thread would begin with the first few, and wait for the lock that the next
/// answer is put under.
pub(crate) struct Together(());

impl Together {
    pub(crate) fn begin() -> Self {
        LATER.with_borrow_mut(|(puts_off, _)| *puts_off = true);
        Self(())
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // Whoever is woken may put an answer itself, so nothing is borrowed meanwhile.
        let mut wakers = LATER.with_borrow_mut(|(puts_off, wakers)| {
            *puts_off = false;
            std::mem::take(wakers)
        });
        wakers.drain(..).for_each(Waker::wake);
        LATER.with_borrow_mut(|(_, kept)| {
            if kept.is_empty() && kept.capacity() < wakers.capacity() {
                *kept = wakers;
            }
        });
    }
}

#[derive(Default)]
struct State {
    arrived: VecDeque<(usize, Answer)>,
    /// Slots without an answer.
    open: usize,
    /// With fewer answers nothing can be decided: nobody is woken for them.
    wake_at: usize,
    waker: Option<Waker>,
    /// Answers that members give as futures of their own.
    later: Vec<(usize, BoxFuture<'static, Answer>)>,
    /// Nobody sees to the deadline any more.
    is_unwatched: bool,
}

/// Wakes whoever waits for a round, at its deadline.
#[derive(Clone)]
pub struct Expiry(Weak<Shared>);

impl Expiry {
    /// Whether nobody waits any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|shared| shared.is_over.load(Ordering::Acquire))
    }

    /// The deadline is now.
    pub fn wake(&self) {
        self.wake_after(|_| {});
    }

    /// Nobody will call [`Expiry::wake`]: whoever waits has to see to the deadline.
    pub fn give_up(&self) {
        self.wake_after(|state| state.is_unwatched = true);
    }

    fn wake_after(&self, change: impl FnOnce(&mut State)) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut state = locked(&shared.state);
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiry").field("is_over", &self.is_over()).finish()
    }
}

/// The answers to one round.
#[derive(Clone)]
pub(crate) struct Collected(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Nobody waits for the round any more.
    is_over: AtomicBool,
}

impl Collected {
    /// Of so many slots, each of which has to be made. Nobody is woken before `wake_at` of them have an answer.
    pub(crate) fn of(slots: usize, wake_at: usize) -> Self {
        let arrived = VecDeque::with_capacity(slots);
        let state = Mutex::new(State { arrived, open: slots, wake_at, ..State::default() });
        Self(Arc::new(Shared { state, is_over: AtomicBool::new(false) }))
    }

    /// For the member with this index.
    pub(crate) fn slot(&self, index: usize) -> Slot {
        Slot { collected: self.clone(), index, is_open: true }
    }

    /// For who sees to the deadline.
    pub(crate) fn expiry(&self) -> Expiry {
        Expiry(Arc::downgrade(&self.0))
    }

    /// Whether who saw to the deadline has given that up.
    pub(crate) fn is_unwatched(&self) -> bool {
        self.state().is_unwatched
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0.state)
    }

    /// Nobody waits any more.
    pub(crate) fn leave(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }

    /// The next answer; `None` when there is none to come.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<(usize, Answer)>> {
        let mut state = self.state();
        if let Some(answer) = state.arrived.pop_front() {
            return Poll::Ready(Some(answer));
        }
        let mut later = std::mem::take(&mut state.later);
        drop(state);
        let mut found = None;
        later.retain_mut(|(index, future)| {
            if found.is_some() {
                return true;
            }
            match future.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    found = Some((*index, answer));
                    false
                }
                Poll::Pending => true,
            }
        });
        let mut state = self.state();
        state.later.append(&mut later);
        if found.is_some() {
            return Poll::Ready(found);
        }
        // One may have come meanwhile.
        if let Some(answer) = state.arrived.pop_front() {
            return Poll::Ready(Some(answer));
        }
        if state.open == 0 && state.later.is_empty() {
            return Poll::Ready(None);
        }
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Where one member puts its answer. Dropped without one it says that the connection is gone.
pub struct Slot {
    collected: Collected,
    index: usize,
    is_open: bool,
}

impl Slot {
    /// One that nobody shares, and its answer.
    pub(crate) fn alone() -> (Self, impl Future<Output = Answer> + Send + use<>) {
        let collected = Collected::of(1, 1);
        let slot = collected.slot(0);
        let answer = async move {
            let next = std::future::poll_fn(|cx| collected.poll_next(cx)).await;
            next.map_or_else(|| Err(gone()), |(_, answer)| answer)
        };
        (slot, answer)
    }

    /// For an answer that nobody waits for.
    pub(crate) fn of_nobody() -> Self {
        Collected::of(1, 1).slot(0)
    }

    /// The member's answer.
    pub fn answer(mut self, answer: Result<Answers, MemberError>) {
        self.put(answer);
    }

    /// The answer comes as a future: it is polled by whoever waits for the round.
    pub fn answer_later(mut self, answer: BoxFuture<'static, Result<Answers, MemberError>>) {
        self.is_open = false;
        let mut state = self.collected.state();
        state.open -= 1;
        state.later.push((self.index, answer));
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    fn put(&mut self, answer: Answer) {
        self.is_open = false;
        let mut state = self.collected.state();
        state.open -= 1;
        state.arrived.push_back((self.index, answer));
        if state.arrived.len() < state.wake_at && state.open > 0 {
            return;
        }
        state.wake_at = 0;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_open {
            self.put(Err(gone()));
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("index", &self.index).finish_non_exhaustive()
    }
}

fn gone() -> MemberError {
    MemberError::Unreachable("connection closed".to_owned())
}

#[cfg(all(test, redlock_loom))]
mod interleavings {
    use super::*;
    use loom::future::block_on;
    use loom::thread;

    /// Each interleaving of the tasks of two members and of who waits for both: no answer is missed, and none is waited for in vain.
    #[test]
    fn answers_of_several_tasks_reach_whoever_waits() {
        loom::model(|| {
            let collected = Collected::of(2, 1);
            let members: Vec<_> = (0..2)
                .map(|index| {
                    let slot = collected.slot(index);
                    // One answers, and one is gone.
                    thread::spawn(move || if index == 0 { slot.answer(Err(MemberError::Busy)) } else { drop(slot) })
                })
                .collect();
            let mut answers = block_on(async {
                let mut answers = Vec::new();
                while let Some(answer) = std::future::poll_fn(|cx| collected.poll_next(cx)).await {
                    answers.push(answer);
                }
                answers
            });
            answers.sort_by_key(|(index, _)| *index);
            assert_eq!(answers, [(0, Err(MemberError::Busy)), (1, Err(gone()))]);
            members.into_iter().for_each(|member| member.join().unwrap());
        });
    }

    /// The task of the members gives up the deadlines meanwhile: whoever waits is woken, and sees to its own.
    #[test]
    fn whoever_waits_hears_that_nobody_sees_to_the_deadline() {
        loom::model(|| {
            let collected = Collected::of(1, 1);
            let slot = collected.slot(0);
            let expiry = collected.expiry();
            let task = thread::spawn(move || expiry.give_up());
            block_on(std::future::poll_fn(|cx| {
                // As a round does it: answers, and then the deadline.
                assert!(collected.poll_next(cx).is_pending());
                if collected.is_unwatched() { Poll::Ready(()) } else { Poll::Pending }
            }));
            task.join().unwrap();
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nobody_is_woken_before_something_can_be_decided() {
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let collected = Collected::of(5, 3);
        let mut slots: Vec<_> = (0..5).map(|index| collected.slot(index)).collect();
        assert!(collected.poll_next(&mut cx).is_pending());
        for expected in [0, 0, 1, 1] {
            slots.remove(0).answer(Err(MemberError::Busy));
            assert_eq!(wakes.0.load(Ordering::Relaxed), expected);
        }
        for index in 0..4 {
            assert_eq!(collected.poll_next(&mut cx), Poll::Ready(Some((index, Err(MemberError::Busy)))));
        }
        assert!(collected.poll_next(&mut cx).is_pending());
        // The last one is gone, and says so.
        drop(slots);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert_eq!(collected.poll_next(&mut cx), Poll::Ready(Some((4, Err(gone())))));
        assert_eq!(collected.poll_next(&mut cx), Poll::Ready(None));
    }

    #[test]
    fn an_answer_that_is_a_future_is_polled_with_the_others() {
        let mut cx = Context::from_waker(Waker::noop());
        let collected = Collected::of(2, 2);
        let (one, other) = (collected.slot(0), collected.slot(1));
        one.answer_later(Box::pin(std::future::ready(Err(MemberError::Loading))));
        assert_eq!(collected.poll_next(&mut cx), Poll::Ready(Some((0, Err(MemberError::Loading)))));
        assert!(collected.poll_next(&mut cx).is_pending());
        other.answer(Err(MemberError::Busy));
        assert_eq!(collected.poll_next(&mut cx), Poll::Ready(Some((1, Err(MemberError::Busy)))));
        assert_eq!(collected.poll_next(&mut cx), Poll::Ready(None));
    }
}
