//! A queue for work that many locks need at once: reconciles, renewals, questions to holders, requests to the API server.
//!
//! It has a fixed number of slots. A namespace gets another slot while it uses fewer slots than are free (dynamic thresholds: Choudhury and
//! Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A single namespace gets half of the slots. So the next namespace finds a free slot
//! immediately, even if members or pods answer the first one slowly. Waiting namespaces take turns. In its turns a namespace passes a change
//! and a renewal alternately, so neither can starve the other. The renewal with the least remaining validity is the next one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::time::Boottime;

/// The classes of waiting entries.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// A user or another lock waits for it.
    Change,
    /// A renewal, which can wait until this validity ends.
    Renewal(Boottime),
}

/// The queue with its slots.
#[derive(Clone, Debug)]
pub struct FairQueue(Arc<Mutex<Queue<oneshot::Sender<Slot>>>>);

/// A slot that is in use until this is dropped.
#[derive(Debug)]
pub struct Slot {
    /// `None` if nothing has to be given back.
    queue: Option<FairQueue>,
    namespace: String,
}

impl FairQueue {
    /// A queue whose slots are all free.
    pub fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Queue::new(slots))))
    }

    /// Waits for a slot. If the future is dropped, it loses its place in the queue.
    pub async fn enter(&self, namespace: &str, class: Class) -> Slot {
        let (slot, waits) = oneshot::channel();
        self.0.lock().wait(namespace, class, slot);
        self.serve();
        // This cannot fail, because the queue keeps the sender until it serves it.
        waits.await.unwrap_or_else(|_ended| Slot { queue: None, namespace: namespace.to_owned() })
    }

    fn serve(&self) {
        loop {
            let served = self.0.lock().serve();
            if served.is_empty() {
                return;
            }
            for (namespace, waits) in served {
                // If the receiver was dropped, `send` returns the slot. A drop of it would serve the next entry in a nested call, and thousands
                // of dropped receivers would overflow the stack.
                if let Err(mut slot) = waits.send(Slot { queue: Some(self.clone()), namespace }) {
                    slot.give_back();
                }
            }
        }
    }
}

impl Slot {
    fn give_back(&mut self) -> Option<FairQueue> {
        let queue = self.queue.take()?;
        queue.0.lock().give_back(&self.namespace);
        Some(queue)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(queue) = self.give_back() {
            queue.serve();
        }
    }
}

/// Pure: the slots that each namespace uses, and the waiting entries.
#[derive(Debug)]
struct Queue<W> {
    free: usize,
    used: HashMap<String, usize>,
    /// The waiting namespaces, the next one first.
    turns: VecDeque<String>,
    waiting: HashMap<String, Waiting<W>>,
    arrivals: u64,
}

/// The waiting entries of one namespace.
#[derive(Debug)]
struct Waiting<W> {
    /// By arrival.
    changes: VecDeque<W>,
    /// By the end of the validity, and then by arrival.
    renewals: BTreeMap<(Boottime, u64), W>,
    has_served_change: bool,
}

impl<W> Waiting<W> {
    const EMPTY: Self = Self { changes: VecDeque::new(), renewals: BTreeMap::new(), has_served_change: false };

    fn take_next(&mut self) -> Option<W> {
        let takes_change = !self.changes.is_empty() && (self.renewals.is_empty() || !self.has_served_change);
        self.has_served_change = takes_change;
        if takes_change { self.changes.pop_front() } else { self.renewals.pop_first().map(|(_, next)| next) }
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.renewals.is_empty()
    }
}

impl<W> Queue<W> {
    fn new(slots: usize) -> Self {
        Self { free: slots, used: HashMap::new(), turns: VecDeque::new(), waiting: HashMap::new(), arrivals: 0 }
    }

    fn wait(&mut self, namespace: &str, class: Class, waits: W) {
        if !self.waiting.contains_key(namespace) {
            self.turns.push_back(namespace.to_owned());
        }
        self.arrivals += 1;
        let waiting = self.waiting.entry(namespace.to_owned()).or_insert(Waiting::EMPTY);
        match class {
            Class::Change => waiting.changes.push_back(waits),
            Class::Renewal(ends) => drop(waiting.renewals.insert((ends, self.arrivals), waits)),
        }
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

    /// Assigns the free slots to waiting entries, by turns of their namespaces.
    fn serve(&mut self) -> Vec<(String, W)> {
        let mut served = Vec::new();
        let mut passed_over = 0;
        while self.free > 0 && passed_over < self.turns.len() {
            let Some(namespace) = self.turns.pop_front() else { break };
            let used = self.used.get(&namespace).copied().unwrap_or(0);
            if used >= self.free {
                self.turns.push_back(namespace);
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            let Some(waiting) = self.waiting.get_mut(&namespace) else { continue };
            let next = waiting.take_next();
            if waiting.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.turns.push_back(namespace.clone());
            }
            if let Some(next) = next {
                self.free -= 1;
                self.used.insert(namespace.clone(), used + 1);
                served.push((namespace, next));
            }
        }
        served
    }
}

#[cfg(test)]
mod tests;
