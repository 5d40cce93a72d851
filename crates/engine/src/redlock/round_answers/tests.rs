use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

struct Wakes(AtomicUsize);

impl Wakes {
    /// A waker, and the number of its wakes.
    fn counted() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self(AtomicUsize::new(0)));
        (Arc::clone(&wakes), Waker::from(wakes))
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn no_task_is_woken_before_a_round_can_be_decided() {
    let (wakes, waker) = Wakes::counted();
    let mut cx = Context::from_waker(&waker);
    let answers = RoundAnswers::of(5, 3);
    let mut slots: Vec<_> = (0..5).map(|index| answers.slot(index)).collect();
    assert!(answers.poll_next(&mut cx).is_pending());
    for expected in [0, 0, 1, 1] {
        slots.remove(0).answer(Err(MemberError::Busy));
        assert_eq!(wakes.0.load(Ordering::Relaxed), expected);
    }
    for index in 0..4 {
        assert_eq!(answers.poll_next(&mut cx), Poll::Ready(Some((index, Err(MemberError::Busy)))));
    }
    assert!(answers.poll_next(&mut cx).is_pending());
    // The last slot is dropped, which is an answer.
    drop(slots);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
    assert_eq!(answers.poll_next(&mut cx), Poll::Ready(Some((4, Err(MemberError::closed())))));
    assert_eq!(answers.poll_next(&mut cx), Poll::Ready(None));
}

#[test]
fn an_answer_that_is_a_future_is_polled_with_the_others() {
    let mut cx = Context::from_waker(Waker::noop());
    let answers = RoundAnswers::of(2, 2);
    let (one, other) = (answers.slot(0), answers.slot(1));
    one.answer_later(Box::pin(std::future::ready(Err(MemberError::Loading))));
    assert_eq!(answers.poll_next(&mut cx), Poll::Ready(Some((0, Err(MemberError::Loading)))));
    assert!(answers.poll_next(&mut cx).is_pending());
    other.answer(Err(MemberError::Busy));
    assert_eq!(answers.poll_next(&mut cx), Poll::Ready(Some((1, Err(MemberError::Busy)))));
    assert_eq!(answers.poll_next(&mut cx), Poll::Ready(None));
}

/// A task polls the round without a wake if it also waits for something else.
#[test]
fn an_early_answer_is_one_of_the_answers_for_the_first_wake() {
    for is_future in [false, true] {
        let (wakes, waker) = Wakes::counted();
        let mut cx = Context::from_waker(&waker);
        let answers = RoundAnswers::of(3, 2);
        let (one, other, _frozen) = (answers.slot(0), answers.slot(1), answers.slot(2));
        if is_future {
            one.answer_later(Box::pin(std::future::ready(Err(MemberError::Busy))));
        } else {
            assert!(answers.poll_next(&mut cx).is_pending());
            one.answer(Err(MemberError::Busy));
        }
        assert_eq!(answers.poll_next(&mut cx), Poll::Ready(Some((0, Err(MemberError::Busy)))));
        assert!(answers.poll_next(&mut cx).is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        // The third member is frozen. Two answers can decide the round.
        other.answer(Err(MemberError::Busy));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "a future: {is_future}");
    }
}
