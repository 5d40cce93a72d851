//! When a session that panicked is begun again. Until then its quorum counts as unreachable here.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::time::Monotonic;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this time without a panic, earlier panics have no effect.
const CALM: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    until: Monotonic,
}

/// The sessions that panicked, by quorum.
#[derive(Clone, Debug)]
pub(super) struct Restarts<K>(HashMap<K, Failures>);

impl<K> Default for Restarts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Restarts<K> {
    /// Records that a session panicked, and returns its pause.
    pub(super) fn failed(&mut self, quorum: K, now: Monotonic) -> Duration {
        self.0.retain(|_, rest| now.since(rest.until) < CALM);
        let count = self.0.get(&quorum).map_or(0, |rest| rest.count);
        let pause = FIRST_PAUSE.saturating_mul(1 << count.min(10)).min(LONGEST_PAUSE);
        self.0.insert(quorum, Failures { count: count.saturating_add(1), until: now + pause });
        pause
    }

    /// Whether the session pauses.
    pub(super) fn rests(&self, quorum: &K, now: Monotonic) -> bool {
        self.0.get(quorum).is_some_and(|rest| now < rest.until)
    }

    /// Forgets a quorum that was deleted.
    pub(super) fn forget(&mut self, quorum: &K) {
        self.0.remove(quorum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_panicking_session_rests_longer_until_a_calm_time() {
        let mut restarts = Restarts::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = restarts.failed("q", at(now)).as_secs();
            assert!(restarts.rests(&"q", at(now)));
            now += pause;
            assert!(!restarts.rests(&"q", at(now)));
            pauses.push(pause);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(restarts.failed("q", at(now + 600)).as_secs(), 1);
    }
}
