//! The leader's term, as long as it makes sense: when this replica cannot reach a quorum, another replica perhaps can, and then it
//! had better lead.

use std::collections::HashMap;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;

use crate::api::RedisQuorum;
use crate::runtime::leader::{Term, quorum_name};
use crate::time::Boottime;

/// A quorum that had no majority for one attempt may have one for the next.
const SILENCE: Duration = Duration::from_secs(3);

/// A term of leadership.
pub(super) struct Reachability {
    term: Term,
    began: Boottime,
    /// Since when attempts to acquire have met silence.
    silent: Mutex<HashMap<ObjectRef<RedisQuorum>, Boottime>>,
}

impl Reachability {
    /// `term`, which begins now.
    pub(super) fn new(term: Term, now: Boottime) -> Self {
        Self { term, began: now, silent: Mutex::default() }
    }

    /// When this replica came to lead.
    pub(super) const fn began(&self) -> Boottime {
        self.began
    }

    /// A majority of this quorum has answered.
    pub(super) fn reached(&self, quorum: &ObjectRef<RedisQuorum>) {
        if self.silent.lock().remove(quorum).is_some() {
            self.term.reaches(&quorum_name(quorum));
        }
    }

    /// No majority has answered an attempt to acquire. Whether that has gone on for too long.
    pub(super) fn is_silenced(&self, quorum: &ObjectRef<RedisQuorum>, now: Boottime) -> bool {
        now.since(*self.silent.lock().entry(quorum.clone()).or_insert(now)) >= SILENCE
    }

    /// Lets another replica lead, which perhaps reaches this quorum.
    pub(super) fn hand_over(&self, quorum: &ObjectRef<RedisQuorum>, why: &str, now: Boottime) {
        // Every lock of the quorum asks, and one line says it for all.
        if self.term.wish_to_hand_over(&quorum_name(quorum), now) {
            tracing::warn!(%quorum, why, "this replica cannot reach the quorum: another one is to lead");
        }
    }

    /// Whether this replica can still let the Lease go for the sake of this quorum. If not, what it cannot renew is lost.
    pub(super) fn may_hand_over(&self, quorum: &ObjectRef<RedisQuorum>, now: Boottime) -> bool {
        self.term.may_hand_over(&quorum_name(quorum), now)
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
        let (reachability, quorum) = (Reachability::new(Term::new(1), at(0)), ObjectRef::new("main").within("ns"));
        assert_eq!([100, 102, 103].map(|now| reachability.is_silenced(&quorum, at(now))), [false, false, true]);
        reachability.hand_over(&quorum, "silence", at(103));
        assert!(reachability.may_hand_over(&quorum, at(104)) && !reachability.may_hand_over(&quorum, at(110)));
        reachability.reached(&quorum);
        assert!(!reachability.is_silenced(&quorum, at(111)) && reachability.may_hand_over(&quorum, at(111)));
    }
}
