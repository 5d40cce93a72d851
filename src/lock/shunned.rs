//! Container instances that are not to lead a lock again at once: they gave it up, or did not answer when they were asked.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::time::Boottime;

/// By lock and container instance, until when.
#[derive(Debug, Default)]
pub struct Shunned(Mutex<HashMap<(String, String), Boottime>>);

impl Shunned {
    /// Adds an instance, or prolongs its time; whether it was there already.
    pub fn add(&self, lock: &str, container: &str, now: Boottime, time: Duration) -> bool {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.retain(|_, until| *until > now);
        until.insert((lock.to_owned(), container.to_owned()), now + time).is_some()
    }

    /// Whether an instance is to be passed over now.
    pub fn contains(&self, lock: &str, container: &str, now: Boottime) -> bool {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.get(&(lock.to_owned(), container.to_owned())).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_passed_over_for_its_lock_and_for_a_while_only() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let shunned = Shunned::default();
        assert!(!shunned.add("lock", "c1", at(0), Duration::from_secs(10)));
        assert!(shunned.contains("lock", "c1", at(9)));
        assert!(!shunned.contains("other", "c1", at(9)) && !shunned.contains("lock", "c2", at(9)));
        assert!(!shunned.contains("lock", "c1", at(10)));
        assert!(shunned.add("lock", "c1", at(9), Duration::from_secs(10)));
        assert!(shunned.contains("lock", "c1", at(18)));
    }
}
