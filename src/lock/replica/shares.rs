//! Fair shares: so many locks are looked at side by side, and no namespace takes all the slots.
//!
//! A namespace gets another slot while it has fewer than are free (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998). Alone it gets half of them, and the next namespace finds a free one at once, however slowly the members
//! or the pods of the first answer. Namespaces that wait take turns.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A fixed number of slots.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Mutex<Shares<oneshot::Sender<Slot>>>>);

/// A slot that is in use until this is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    namespace: String,
}

impl Slots {
    /// All of them free.
    pub fn new(number: usize) -> Self {
        Self(Arc::new(Mutex::new(Shares::new(number))))
    }

    /// Waits for a slot for something of this namespace. Dropping the future gives up the place in the queue.
    pub async fn enter(&self, namespace: &str) -> Slot {
        let waits = {
            let mut shares = self.0.lock();
            if shares.take(namespace) {
                None
            } else {
                let (slot, waits) = oneshot::channel();
                shares.wait(namespace, slot);
                Some(waits)
            }
        };
        let slot = match waits {
            None => None,
            // The sender is dropped only with the slots themselves.
            Some(waits) => waits.await.ok(),
        };
        slot.unwrap_or_else(|| Slot { slots: self.clone(), namespace: namespace.to_owned() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut shares = self.slots.0.lock();
            shares.give_back(&self.namespace);
            shares.serve()
        };
        for (namespace, waits) in next {
            // One that has gone away meanwhile gives its slot back by dropping it, here.
            drop(waits.send(Slot { slots: self.slots.clone(), namespace }));
        }
    }
}

/// Pure: who uses how many slots, and who waits.
#[derive(Debug)]
struct Shares<W> {
    free: usize,
    used: HashMap<String, usize>,
    /// The namespaces that wait, the next one first.
    turns: VecDeque<String>,
    waiting: HashMap<String, VecDeque<W>>,
}

impl<W> Shares<W> {
    fn new(number: usize) -> Self {
        Self { free: number, used: HashMap::new(), turns: VecDeque::new(), waiting: HashMap::new() }
    }

    fn may_take(&self, namespace: &str) -> bool {
        self.used.get(namespace).copied().unwrap_or(0) < self.free
    }

    /// Takes a slot, unless others of the same namespace wait already or it has its share.
    fn take(&mut self, namespace: &str) -> bool {
        let may = !self.waiting.contains_key(namespace) && self.may_take(namespace);
        if may {
            self.occupy(namespace);
        }
        may
    }

    fn occupy(&mut self, namespace: &str) {
        self.free -= 1;
        *self.used.entry(namespace.to_owned()).or_default() += 1;
    }

    fn wait(&mut self, namespace: &str, waits: W) {
        let queue = self.waiting.entry(namespace.to_owned()).or_default();
        if queue.is_empty() {
            self.turns.push_back(namespace.to_owned());
        }
        queue.push_back(waits);
    }

    fn give_back(&mut self, namespace: &str) {
        self.free += 1;
        if let Some(used) = self.used.get_mut(namespace) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(namespace);
            }
        }
    }

    /// Gives the free slots to those who wait, by turns. They are occupied already.
    fn serve(&mut self) -> Vec<(String, W)> {
        let mut served = Vec::new();
        let mut passed_over = 0;
        while passed_over < self.turns.len() {
            let Some(namespace) = self.turns.pop_front() else { break };
            if !self.may_take(&namespace) {
                self.turns.push_back(namespace);
                passed_over += 1;
                continue;
            }
            let queue = self.waiting.entry(namespace.clone()).or_default();
            let next = queue.pop_front();
            if queue.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.turns.push_back(namespace.clone());
            }
            if let Some(next) = next {
                self.occupy(&namespace);
                served.push((namespace, next));
            }
            passed_over = 0;
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_gets_half_and_the_next_one_is_served_at_once() {
        let mut shares = Shares::<()>::new(8);
        assert_eq!((0..8).filter(|_| shares.take("greedy")).count(), 4);
        assert!(shares.take("victim"));
        assert_eq!((0..8).filter(|_| shares.take("second")).count(), 2);
        assert!(shares.take("third") || shares.free == 0);
    }

    #[test]
    fn namespaces_that_wait_take_turns() {
        let mut shares = Shares::new(2);
        assert!(shares.take("a"));
        for number in 0..3 {
            assert!(!shares.take("a"));
            shares.wait("a", number);
        }
        assert!(shares.take("b"));
        assert!(!shares.take("b"));
        shares.wait("b", 10);
        assert!(shares.serve().is_empty(), "none is free");
        shares.give_back("b");
        assert_eq!(shares.serve(), [("b".to_owned(), 10)], "a has one, and no more are free");
        shares.give_back("a");
        assert_eq!(shares.serve(), [("a".to_owned(), 0)]);
        shares.give_back("b");
        assert!(shares.serve().is_empty());
        shares.give_back("a");
        assert_eq!(shares.serve(), [("a".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_slot_goes_to_the_next_when_it_is_dropped_and_not_to_one_who_gave_up() {
        let slots = Slots::new(2);
        let first = slots.enter("a").await;
        let mut gone = Box::pin(slots.enter("a"));
        let mut waits = Box::pin(slots.enter("a"));
        assert!(futures::poll!(&mut gone).is_pending());
        assert!(futures::poll!(&mut waits).is_pending());
        drop(gone);
        drop(first);
        let second = waits.await;
        assert_eq!(slots.0.lock().free, 1);
        drop(second);
        assert_eq!(slots.0.lock().free, 2);
        assert!(slots.0.lock().used.is_empty());
    }

    #[tokio::test]
    async fn one_who_gives_up_with_a_slot_in_hand_gives_it_back() {
        let slots = Slots::new(2);
        let first = slots.enter("a").await;
        let mut waits = Box::pin(slots.enter("a"));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        assert_eq!(slots.0.lock().free, 1, "it is the other's now");
        drop(waits);
        assert_eq!(slots.0.lock().free, 2);
    }
}
