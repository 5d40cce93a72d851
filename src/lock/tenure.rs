//! The leader's term, as long as it makes sense: when this replica can no longer reach a quorum that it has reached, another
//! replica perhaps can, and then it had better lead.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::runtime::reflector::ObjectRef;

use crate::{api::RedisQuorum, operator::leader::Term, time::Boottime};

/// A quorum that had no majority for one attempt may have one for the next.
const SILENCE: Duration = Duration::from_secs(3);

/// A term of leadership.
pub struct Tenure {
    term: Term,
    began: Boottime,
    /// The quorums that were reached in this term, and since when attempts to acquire meet silence there.
    reached: Mutex<HashMap<ObjectRef<RedisQuorum>, Option<Boottime>>>,
}

impl Tenure {
    /// `term`, which begins now.
    pub fn new(term: Term, now: Boottime) -> Self {
        Self { term, began: now, reached: Mutex::default() }
    }

    /// When this replica came to lead.
    pub const fn began(&self) -> Boottime {
        self.began
    }

    /// A majority of this quorum has answered.
    pub fn reached(&self, quorum: &ObjectRef<RedisQuorum>) {
        self.table().insert(quorum.clone(), None);
    }

    /// No majority has answered. Whether that has gone on for too long. Never so of a quorum that was not reached in this term:
    /// others may be no better, and leadership must not go round in circles.
    pub fn is_silenced(&self, quorum: &ObjectRef<RedisQuorum>, now: Boottime) -> bool {
        let mut table = self.table();
        table.get_mut(quorum).is_some_and(|since| now.since(*since.get_or_insert(now)) >= SILENCE)
    }

    /// Lets another replica lead, if one reaches this quorum.
    pub fn hand_over(&self, quorum: &ObjectRef<RedisQuorum>, why: &str) {
        // Every lock of the quorum asks, and one line says it for all.
        if self.term.hand_over(quorum.to_string()) {
            tracing::warn!(%quorum, why, "this replica cannot reach the quorum, another one had better lead");
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ObjectRef<RedisQuorum>, Option<Boottime>>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn silence_counts_from_the_first_attempt_that_nobody_answered() {
        let (tenure, quorum) = (Tenure::new(Term::new(1), at(0)), ObjectRef::new("main"));
        tenure.reached(&quorum);
        assert_eq!([100, 102, 103].map(|now| tenure.is_silenced(&quorum, at(now))), [false, false, true]);
        tenure.reached(&quorum);
        assert!(!tenure.is_silenced(&quorum, at(104)));
    }

    #[test]
    fn a_quorum_that_was_not_reached_in_this_term_is_no_reason_to_hand_over() {
        let (tenure, quorum) = (Tenure::new(Term::new(1), at(0)), ObjectRef::new("main"));
        tenure.reached(&ObjectRef::new("another"));
        assert_eq!([100, 110, 200].map(|now| tenure.is_silenced(&quorum, at(now))), [false; 3]);
    }
}
