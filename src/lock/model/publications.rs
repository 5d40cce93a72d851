//! Pure: which renewals are published now, when the API server takes fewer writes than all locks need.
//!
//! So many publications are under way at once. The namespaces of those that wait take turns, so that a namespace with few locks never
//! waits for one with many, however late those are. In its turn a namespace publishes first what has less than a quarter of its ttl
//! left to its readers. Nothing waits here with a slot or a turn in hand: a lock is told when it may, and is looked at again. Grants,
//! ends and everything else that a status says are never kept waiting by this.

use std::collections::{HashMap, HashSet, VecDeque};

use kube::runtime::reflector::ObjectRef;

use crate::api::DistributedLock;

/// More at once only wait for each other in the API server, and transitions with them.
const AT_ONCE: usize = 8;

type LockRef = ObjectRef<DistributedLock>;

/// How soon what is published runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Less than a quarter of the ttl is left.
    Urgent,
    /// More than that.
    Calm,
}

/// The locks that publish a renewal, and those that wait for it, by UID.
#[derive(Debug, Default)]
pub struct Publications {
    under_way: HashSet<String>,
    wishes: HashMap<String, Wish>,
    queue: Queue,
}

#[derive(Debug)]
struct Wish {
    lock: LockRef,
    urgency: Urgency,
}

/// What waits, by namespace, and whose turn is next.
#[derive(Debug, Default)]
struct Queue {
    turns: VecDeque<String>,
    by_namespace: HashMap<String, Waiting>,
}

/// UIDs of one namespace. Some of them may have been served or withdrawn meanwhile.
#[derive(Debug, Default)]
struct Waiting {
    urgent: VecDeque<String>,
    calm: VecDeque<String>,
}

impl Publications {
    /// Whether this lock may publish its renewal now. If not, it is told later.
    pub fn may(&mut self, uid: &str, lock: &LockRef, urgency: Urgency) -> bool {
        if self.under_way.contains(uid) {
            return true;
        }
        if self.under_way.len() < AT_ONCE && self.wishes.is_empty() {
            self.under_way.insert(uid.to_owned());
            return true;
        }
        let known = self.wishes.insert(uid.to_owned(), Wish { lock: lock.clone(), urgency });
        if known.is_none_or(|known| known.urgency != urgency) {
            let namespace = lock.namespace.clone().unwrap_or_default();
            self.queue.push(namespace, uid.to_owned(), urgency);
        }
        false
    }

    /// The lock was looked at, and has published or needs not: its wish is over. The locks that may publish now are to be looked at.
    pub fn done(&mut self, uid: &str) -> Vec<LockRef> {
        self.under_way.remove(uid);
        self.next()
    }

    /// The lock is gone.
    pub fn forget(&mut self, uid: &str) -> Vec<LockRef> {
        self.wishes.remove(uid);
        self.done(uid)
    }

    fn next(&mut self) -> Vec<LockRef> {
        let mut told = Vec::new();
        while self.under_way.len() < AT_ONCE {
            let Some((uid, urgency)) = self.queue.pop() else { break };
            match self.wishes.get(&uid) {
                Some(wish) if wish.urgency == urgency => {}
                _ => continue,
            }
            if let Some(wish) = self.wishes.remove(&uid) {
                self.under_way.insert(uid);
                told.push(wish.lock);
            }
        }
        told
    }
}

impl Queue {
    fn push(&mut self, namespace: String, uid: String, urgency: Urgency) {
        let waiting = self.by_namespace.entry(namespace.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(namespace);
        }
        match urgency {
            Urgency::Urgent => waiting.urgent.push_back(uid),
            Urgency::Calm => waiting.calm.push_back(uid),
        }
    }

    fn pop(&mut self) -> Option<(String, Urgency)> {
        let namespace = self.turns.pop_front()?;
        let waiting = self.by_namespace.get_mut(&namespace)?;
        let next = waiting.pop();
        if waiting.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        next
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.calm.is_empty()
    }

    fn pop(&mut self) -> Option<(String, Urgency)> {
        let urgent = self.urgent.pop_front().map(|uid| (uid, Urgency::Urgent));
        urgent.or_else(|| self.calm.pop_front().map(|uid| (uid, Urgency::Calm)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(namespace: &str, name: &str) -> LockRef {
        LockRef::new(name).within(namespace)
    }

    /// With the budget used up by locks of another namespace.
    fn busy() -> Publications {
        let mut publications = Publications::default();
        for number in 0..AT_ONCE {
            assert!(publications.may(&format!("busy-{number}"), &lock("busy", "lock"), Urgency::Calm));
        }
        publications
    }

    fn names(told: &[LockRef]) -> Vec<&str> {
        told.iter().map(|lock| lock.name.as_str()).collect()
    }

    #[test]
    fn nobody_waits_while_the_budget_lasts() {
        let mut publications = busy();
        assert!(!publications.may("a", &lock("ns", "a"), Urgency::Calm));
        assert_eq!(names(&publications.done("busy-0")), ["a"]);
        assert!(publications.may("a", &lock("ns", "a"), Urgency::Calm), "it was told");
        assert!(publications.done("a").is_empty());
    }

    #[test]
    fn namespaces_take_turns_and_in_each_what_runs_out_goes_first() {
        let mut publications = busy();
        for number in 0..3 {
            let name = format!("many-{number}");
            assert!(!publications.may(&name, &lock("many", &name), Urgency::Calm));
        }
        assert!(!publications.may("one", &lock("one", "one"), Urgency::Calm));
        assert!(!publications.may("late", &lock("many", "late"), Urgency::Urgent));
        let told: Vec<_> = (0..5).flat_map(|n| publications.done(&format!("busy-{n}"))).collect();
        assert_eq!(names(&told), ["late", "one", "many-0", "many-1", "many-2"]);
    }

    #[test]
    fn a_namespace_whose_locks_are_always_late_keeps_no_other_waiting() {
        let mut publications = busy();
        for number in 0..100 {
            let name = format!("late-{number}");
            assert!(!publications.may(&name, &lock("many", &name), Urgency::Urgent));
        }
        assert!(!publications.may("calm", &lock("few", "calm"), Urgency::Calm));
        let told: Vec<_> = (0..2).flat_map(|n| publications.done(&format!("busy-{n}"))).collect();
        assert_eq!(names(&told), ["late-0", "calm"]);
    }

    #[test]
    fn a_lock_that_becomes_urgent_while_it_waits_moves_up_and_is_served_once() {
        let mut publications = busy();
        publications.may("a", &lock("ns", "a"), Urgency::Calm);
        publications.may("b", &lock("ns", "b"), Urgency::Calm);
        publications.may("b", &lock("ns", "b"), Urgency::Urgent);
        publications.may("b", &lock("ns", "b"), Urgency::Urgent);
        assert_eq!(names(&publications.done("busy-0")), ["b"]);
        assert_eq!(names(&publications.done("busy-1")), ["a"]);
        assert!(publications.done("busy-2").is_empty());
    }

    #[test]
    fn a_lock_that_is_gone_keeps_nobody_waiting() {
        let mut publications = busy();
        publications.may("a", &lock("ns", "a"), Urgency::Calm);
        publications.may("b", &lock("ns", "b"), Urgency::Calm);
        assert!(publications.forget("a").is_empty());
        assert_eq!(names(&publications.forget("busy-3")), ["b"]);
        assert!(publications.wishes.is_empty());
        (0..AT_ONCE).for_each(|number| drop(publications.done(&format!("busy-{number}"))));
        publications.done("b");
        assert!(publications.may("c", &lock("ns", "c"), Urgency::Calm));
    }
}
