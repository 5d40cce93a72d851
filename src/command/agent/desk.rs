//! What the agent knows and has said, behind one mutex: the tasks write what they learn, requests are answered from it.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::holding::{LONGEST_SLEEP, LockArgs};
use super::book::{Book, Who, Word};
use super::instances::Instances;
use crate::time::{Boottime, Clock, SystemClock};

/// Locks at the same time.
const MOST_LOCKS: usize = 64;

/// How a lock is wanted.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) args: LockArgs,
    /// The request that asked for it may be repeated.
    pub(super) request: Option<String>,
    /// Hold it so long without being asked, and no longer.
    pub(super) until: Option<Boottime>,
    /// Do not give it back before.
    pub(super) not_before: Option<Boottime>,
}

#[derive(Debug)]
struct Lock {
    book: Book,
    order: Order,
    is_wanted: bool,
    /// Requests that wait for the lock now.
    waiting: usize,
    /// One of them has had the answer that it is held.
    is_confirmed: bool,
    /// Every instance that registers wants it.
    is_standing: bool,
}

impl Lock {
    fn new(order: Order) -> Self {
        let book = Book::new();
        Self { book, order, is_wanted: false, waiting: 0, is_confirmed: false, is_standing: false }
    }
}

#[derive(Debug)]
struct State {
    instances: Instances,
    locks: BTreeMap<String, Lock>,
    is_stopping: bool,
}

/// The desk.
#[derive(Debug)]
pub(super) struct Desk {
    /// The lock that /leader is about.
    pub(super) elected: String,
    patience: Duration,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

/// Why a lock is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NotServed(Who),
    /// By this instance, with another request.
    Taken,
    TooMany,
    Stopping,
}

impl Desk {
    /// `order`: for the lock that every instance wants, if the agent takes it itself.
    pub(super) fn new(elected: String, order: Order, patience: Duration) -> Self {
        let instances = Instances::new();
        let lock = Lock { is_standing: true, ..Lock::new(order) };
        let locks = [(elected.clone(), lock)].into();
        let state = Mutex::new(State { instances, locks, is_stopping: false });
        Self { elected, patience, state, changed: watch::Sender::new(0) }
    }

    /// Wakes when something was learnt or is wanted.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A new instance is served from now on, unless it wants to come behind one that asks. Whether it is.
    pub(super) fn register(&self, id: String, reads_first: bool, if_none: bool) -> bool {
        let mut state = self.state.lock();
        if if_none && state.instances.is_present(now(), self.patience) {
            return false;
        }
        state.instances.register(id, now());
        for lock in state.locks.values_mut() {
            lock.book.register(reads_first && lock.is_standing);
            lock.is_wanted = lock.is_standing;
        }
        drop(state);
        self.tell();
        true
    }

    /// The instance that is served has ended, and gives back all that it has.
    ///
    /// # Errors
    /// If it is not served.
    pub(super) fn unregister(&self, instance: Option<&str>) -> Result<(), Who> {
        let mut state = self.state.lock();
        let now = now();
        let who = state.instances.asks(instance, now);
        if who != Who::Served {
            return Err(who);
        }
        state.instances.leave();
        for lock in state.locks.values_mut() {
            lock.book.leaves(now);
            lock.is_wanted = false;
        }
        drop(state);
        self.tell();
        Ok(())
    }

    /// Writes down what was learnt of a lock.
    pub(super) fn learns(&self, lock: &str, how: impl FnOnce(&mut Book, Boottime)) {
        let mut state = self.state.lock();
        let Some(lock) = state.locks.get_mut(lock) else { return };
        let before = lock.book.sequence();
        how(&mut lock.book, now());
        let is_new = lock.book.sequence() != before;
        drop(state);
        if is_new {
            self.tell();
        }
    }

    /// Looks something up in what is known of a lock.
    pub(super) fn look<T>(&self, lock: &str, how: impl FnOnce(&mut Book, Boottime) -> T) -> Option<T> {
        let mut state = self.state.lock();
        state.locks.get_mut(lock).map(|lock| how(&mut lock.book, now()))
    }

    /// The answer now, and what it counts as. `None`: the agent has nothing to do with this lock.
    pub(super) fn word(&self, lock: &str, instance: Option<&str>) -> Option<(Word, u64)> {
        let mut state = self.state.lock();
        let now = now();
        let who = state.instances.asks(instance, now);
        let book = &mut state.locks.get_mut(lock)?.book;
        Some((book.word(who, now), book.sequence()))
    }

    /// What the instance that is served would be told. `None`: there is none.
    pub(super) fn served_word(&self) -> Option<Word> {
        let mut state = self.state.lock();
        let now = now();
        state.instances.is_present(now, self.patience).then_some(())?;
        Some(state.locks.get_mut(&self.elected)?.book.word(Who::Served, now))
    }

    /// The leader's name, for programs that know nothing of instances.
    pub(super) fn name(&self) -> Option<String> {
        let mut state = self.state.lock();
        let now = now();
        let _ = state.instances.asks(None, now);
        state.locks.get_mut(&self.elected)?.book.name(now)
    }

    /// The instance wants a lock, and waits until [`Desk::waits_no_more`]. Whether the agent has not cared for this lock before.
    pub(super) fn orders(&self, name: &str, instance: Option<&str>, order: Order) -> Result<bool, Refused> {
        let mut state = self.state.lock();
        let who = state.instances.asks(instance, now());
        if state.is_stopping {
            return Err(Refused::Stopping);
        }
        if who != Who::Served {
            return Err(Refused::NotServed(who));
        }
        let count = state.locks.len();
        let is_new = match state.locks.get_mut(name) {
            Some(lock) if lock.is_wanted => {
                if order.request.is_none() || order.request != lock.order.request {
                    return Err(Refused::Taken);
                }
                lock.waiting += 1;
                return Ok(false);
            }
            Some(lock) => {
                if !lock.is_standing {
                    lock.order = order;
                }
                (lock.is_wanted, lock.is_confirmed) = (true, false);
                lock.waiting += 1;
                false
            }
            None if count >= MOST_LOCKS => return Err(Refused::TooMany),
            None => {
                let lock = Lock { is_wanted: true, waiting: 1, ..Lock::new(order) };
                state.locks.insert(name.to_owned(), lock);
                true
            }
        };
        drop(state);
        self.tell();
        Ok(is_new)
    }

    /// The instance has stopped, and gives the lock back. Whether it had it with this token.
    pub(super) fn gives_back(&self, name: &str, instance: Option<&str>, token: i64) -> Result<bool, Who> {
        let mut state = self.state.lock();
        let now = now();
        let who = state.instances.asks(instance, now);
        if who != Who::Served {
            return Err(who);
        }
        let lock = state.locks.get_mut(name).filter(|lock| lock.is_wanted);
        let had = lock.is_some_and(|lock| {
            let had = lock.book.gives_back(token, now);
            lock.is_wanted &= !had;
            had
        });
        drop(state);
        self.tell();
        Ok(had)
    }

    /// A request has ended, with the lock or without. When the last one has ended without it, the lock is not wanted any more.
    pub(super) fn waits_no_more(&self, name: &str, is_held: bool) {
        if let Some(lock) = self.state.lock().locks.get_mut(name) {
            lock.waiting = lock.waiting.saturating_sub(1);
            lock.is_confirmed |= is_held;
            lock.is_wanted &= lock.waiting > 0 || lock.is_confirmed;
        }
        self.tell();
    }

    /// The same of one that nobody wants in general.
    pub(super) fn has_failed(&self, name: &str) {
        if let Some(lock) = self.state.lock().locks.get_mut(name) {
            lock.is_wanted &= lock.is_standing;
        }
        self.tell();
    }

    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.wish(name).is_some()
    }

    /// How the lock is wanted now, by an instance that lives.
    pub(super) fn wish(&self, name: &str) -> Option<Order> {
        let state = self.state.lock();
        let lock = state.locks.get(name).filter(|lock| lock.is_wanted && !state.is_stopping)?;
        let now = now();
        let lives = match lock.order.until {
            Some(until) => now < until,
            None => state.instances.is_present(now, self.patience),
        };
        lives.then(|| lock.order.clone())
    }

    /// Forgets a lock that nobody wants. Whether it did.
    pub(super) fn forgets(&self, name: &str) -> bool {
        let mut state = self.state.lock();
        let is_over = |lock: &Lock| !lock.is_wanted && !lock.is_standing;
        if !state.is_stopping && !state.locks.get(name).is_none_or(is_over) {
            return false;
        }
        if state.locks.get(name).is_some_and(is_over) {
            state.locks.remove(name);
        }
        true
    }

    /// Nothing is wanted any more.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.tell();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Until something of the lock can be different without a word.
    fn next_look(&self, name: &str) -> Duration {
        let state = self.state.lock();
        let now = now();
        let of_book = state.locks.get(name).and_then(|lock| lock.book.next_change(now));
        let of_instance = state.instances.gone_in(now, self.patience);
        of_book.into_iter().chain(of_instance).min().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }

    /// Waits for a change, or until the clock has to be looked at.
    pub(super) async fn pause(&self, name: &str, changes: &mut watch::Receiver<u64>) {
        let _ = timeout(self.next_look(name), changes.changed()).await;
    }
}

pub(super) fn now() -> Boottime {
    SystemClock.boottime()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::agent::tests::template;

    fn order(request: Option<&str>) -> Order {
        Order { args: template(), request: request.map(str::to_owned), until: None, not_before: None }
    }

    fn desk() -> Desk {
        let desk = Desk::new("shop/elected".into(), order(None), Duration::from_secs(10));
        assert!(desk.register("one".into(), false, false));
        desk
    }

    /// The client repeats a request on a second connection.
    #[test]
    fn a_request_that_is_repeated_waits_for_the_same_acquisition() {
        let desk = desk();
        assert_eq!(desk.orders("shop/a", Some("one"), order(Some("r"))), Ok(true));
        assert_eq!(desk.orders("shop/a", Some("one"), order(Some("r"))), Ok(false));
        assert_eq!(desk.orders("shop/a", Some("one"), order(Some("other"))), Err(Refused::Taken));
        desk.waits_no_more("shop/a", false);
        assert!(desk.is_wanted("shop/a"), "the second one waits still");
        desk.waits_no_more("shop/a", false);
        assert!(!desk.is_wanted("shop/a"));
        // One of them got the lock: the end of the other one takes nothing away.
        assert_eq!(desk.orders("shop/a", Some("one"), order(Some("r"))), Ok(false));
        assert_eq!(desk.orders("shop/a", Some("one"), order(Some("r"))), Ok(false));
        desk.waits_no_more("shop/a", true);
        desk.waits_no_more("shop/a", false);
        assert!(desk.is_wanted("shop/a"));
    }

    #[test]
    fn an_instance_that_comes_behind_another_one_ends_nothing() {
        let desk = desk();
        assert!(!desk.register("two".into(), false, true));
        assert!(desk.is_wanted("shop/elected"));
        assert_eq!(desk.unregister(Some("two")), Err(Who::Other));
        assert_eq!(desk.unregister(Some("one")), Ok(()));
        assert!(!desk.is_wanted("shop/elected"));
        assert!(desk.register("two".into(), false, true), "nobody is served");
    }
}
