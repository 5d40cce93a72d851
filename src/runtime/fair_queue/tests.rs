use std::time::Duration;

use super::*;

fn renewal(left: u64) -> Class {
    Class::Renewal(Boottime::new(Duration::from_secs(left)))
}

/// The entries that are served now.
fn served<W>(queue: &mut Queue<W>) -> Vec<W> {
    queue.serve().into_iter().map(|(_, waits)| waits).collect()
}

#[test]
fn a_namespace_gets_half_of_the_slots_and_the_next_goes_at_once() {
    let mut queue = Queue::new(8);
    (0..8).for_each(|_| queue.wait("greedy", Class::Change, ()));
    assert_eq!(served(&mut queue).len(), 4);
    (0..8).for_each(|_| queue.wait("second", Class::Change, ()));
    assert_eq!(served(&mut queue).len(), 2);
}

#[test]
fn many_locks_delay_another_namespace_by_at_most_one_turn() {
    for class in [Class::Change, renewal(1)] {
        let mut queue = Queue::new(8);
        (0..10_000).for_each(|_| queue.wait("many", class, "many"));
        let at_once = served(&mut queue).len();
        assert_eq!(at_once, 4);
        queue.wait("few", Class::Change, "few");
        assert_eq!(served(&mut queue), ["few"], "a slot is free for it");
        // Other namespaces take the remaining slots.
        (0..3).for_each(|number| queue.wait(&format!("other-{number}"), Class::Change, "other"));
        assert_eq!(served(&mut queue).len(), 3);
        queue.wait("few", Class::Change, "few");
        queue.wait("fresh", Class::Change, "fresh");
        assert!(served(&mut queue).is_empty(), "no slot is free");
        // The namespace with many locks can have one turn first.
        let mut next = Vec::new();
        for namespace in ["many", "other-0"] {
            queue.give_back(namespace);
            next.extend(served(&mut queue));
        }
        assert!(next.contains(&"fresh"), "{next:?}");
    }
}

/// Serves the namespace one entry after another.
fn order<'a>(queue: &mut Queue<&'a str>, namespace: &str, entries: usize) -> Vec<&'a str> {
    let mut order = Vec::new();
    for _ in 0..entries {
        queue.give_back(namespace);
        order.extend(served(queue));
    }
    order
}

#[test]
fn changes_pass_alternately_with_renewals_in_order_of_validity() {
    let mut queue = Queue::new(2);
    queue.wait("a", renewal(9), "late");
    assert_eq!(served(&mut queue), ["late"]);
    queue.wait("a", renewal(7), "7");
    queue.wait("a", renewal(5), "5");
    queue.wait("a", Class::Change, "first change");
    queue.wait("a", renewal(5), "5 again");
    queue.wait("a", Class::Change, "second change");
    assert_eq!(order(&mut queue, "a", 5), ["first change", "5", "second change", "5 again", "7"]);
    queue.give_back("a");
    assert!(queue.waiting.is_empty() && queue.turns.is_empty() && queue.used.is_empty());
}

#[test]
fn changes_without_end_do_not_starve_a_renewal() {
    let mut queue = Queue::new(2);
    (0..100).for_each(|_| queue.wait("a", Class::Change, "change"));
    assert_eq!(served(&mut queue), ["change"]);
    queue.wait("a", renewal(5), "renewal");
    assert!(order(&mut queue, "a", 2).contains(&"renewal"), "it waited for changes that came earlier");
}

#[test]
fn namespaces_that_wait_take_turns() {
    let mut queue = Queue::new(2);
    for number in 0..4 {
        queue.wait("a", Class::Change, number);
    }
    assert_eq!(served(&mut queue), [0]);
    queue.wait("b", Class::Change, 10);
    queue.wait("b", Class::Change, 11);
    assert_eq!(served(&mut queue), [10]);
    queue.give_back("b");
    assert_eq!(served(&mut queue), [11], "a uses one slot, and no other is free");
    queue.give_back("a");
    assert_eq!(served(&mut queue), [1]);
}

#[tokio::test]
async fn a_dropped_slot_goes_to_the_next_waiter_that_still_waits() {
    let queue = FairQueue::new(2);
    let first = queue.enter("a", Class::Change).await;
    let mut gone = Box::pin(queue.enter("a", Class::Change));
    let mut waits = Box::pin(queue.enter("a", Class::Change));
    assert!(futures::poll!(&mut gone).is_pending());
    assert!(futures::poll!(&mut waits).is_pending());
    drop(gone);
    drop(first);
    let second = waits.await;
    assert_eq!(queue.0.lock().free, 1);
    drop(second);
    assert_eq!(queue.0.lock().free, 2);
    assert!(queue.0.lock().used.is_empty());
}

/// A term ends while thousands of locks wait.
#[tokio::test]
async fn a_slot_passes_any_number_of_dropped_waiters() {
    let queue = FairQueue::new(2);
    let first = queue.enter("a", Class::Change).await;
    for _ in 0..200_000 {
        let mut waits = Box::pin(queue.enter("a", Class::Change));
        assert!(futures::poll!(&mut waits).is_pending());
    }
    drop(first);
    assert_eq!(queue.0.lock().free, 2);
    assert!(queue.0.lock().waiting.is_empty());
}

#[tokio::test]
async fn a_waiter_that_gives_up_returns_its_slot() {
    let queue = FairQueue::new(2);
    let first = queue.enter("a", Class::Change).await;
    let mut waits = Box::pin(queue.enter("a", Class::Change));
    assert!(futures::poll!(&mut waits).is_pending());
    drop(first);
    assert_eq!(queue.0.lock().free, 1, "the waiter has the slot now");
    drop(waits);
    assert_eq!(queue.0.lock().free, 2);
}
