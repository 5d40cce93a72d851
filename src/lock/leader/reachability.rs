//! Records which quorums the leader reaches, and hands leadership over when another replica reaches one that it does not.

use std::collections::HashMap;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;

use crate::api::RedisQuorum;
use crate::runtime::leader::{Term, quorum_name};
use crate::time::Boottime;

/// How long no majority answers before a quorum is unreachable.
///
/// A quorum without a majority for one attempt can have one for the next.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);
/// How long after an unanswered attempt the next one counts as the first.
///
/// It is longer than the longest `retry.delay` with its jitter.
const ROW_ENDS_AFTER: Duration = Duration::from_secs(300);

/// A term of leadership, and the quorums that do not answer in it.
pub(super) struct Reachability {
    term: Term,
    /// When this replica began to lead.
    pub(super) began: Boottime,
    /// The first and the last attempt in a row that no majority answered.
    unanswered: Mutex<HashMap<ObjectRef<RedisQuorum>, (Boottime, Boottime)>>,
}

impl Reachability {
    /// A term that begins now.
    pub(super) fn new(term: Term, now: Boottime) -> Self {
        Self { term, began: now, unanswered: Mutex::default() }
    }

    /// Records that a majority of this quorum answered.
    pub(super) fn reached(&self, quorum: &ObjectRef<RedisQuorum>) {
        if self.unanswered.lock().remove(quorum).is_some() {
            self.term.reaches(&quorum_name(quorum));
        }
    }

    /// Records an attempt that no majority answered. After a while, another replica has to lead.
    pub(super) fn unanswered(&self, quorum: &ObjectRef<RedisQuorum>, why: &str, now: Boottime) {
        let mut rows = self.unanswered.lock();
        rows.retain(|_, (_, last)| now.since(*last) < ROW_ENDS_AFTER);
        let (since, last) = rows.entry(quorum.clone()).or_insert((now, now));
        *last = now;
        let since = *since;
        drop(rows);
        if now.since(since) >= UNREACHABLE_AFTER {
            self.hand_over(quorum, why, now);
        }
    }

    /// Requests that another replica leads, which possibly reaches this quorum.
    pub(super) fn hand_over(&self, quorum: &ObjectRef<RedisQuorum>, why: &str, now: Boottime) {
        // Every lock of the quorum calls this, and one line of log is enough.
        if self.term.request_hand_over(&quorum_name(quorum), now) {
            tracing::warn!(%quorum, why, "this replica does not reach the quorum, so another one has to lead");
        }
    }

    /// Whether this replica can still release the leader Lease because of this quorum.
    ///
    /// If not, it loses the holds that it cannot renew.
    pub(super) fn can_hand_over(&self, quorum: &ObjectRef<RedisQuorum>, now: Boottime) -> bool {
        self.term.can_hand_over(&quorum_name(quorum), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boottime as at;

    #[test]
    fn silence_begins_at_the_first_unanswered_attempt() {
        let (reachability, quorum) = (Reachability::new(Term::new(1), at(0)), ObjectRef::new("main").within("ns"));
        let can_hand_over = |second| reachability.can_hand_over(&quorum, at(second));
        for second in [100, 102] {
            reachability.unanswered(&quorum, "silence", at(second));
        }
        assert!(can_hand_over(110), "the silence is too short for a wish");
        reachability.unanswered(&quorum, "silence", at(103));
        assert!(can_hand_over(104) && !can_hand_over(110));
        reachability.reached(&quorum);
        reachability.unanswered(&quorum, "silence", at(111));
        assert!(can_hand_over(111) && can_hand_over(120));
    }

    #[test]
    fn an_attempt_long_after_another_one_is_the_first_in_a_row() {
        let (reachability, quorum) = (Reachability::new(Term::new(1), at(0)), ObjectRef::new("main").within("ns"));
        for second in [0, 600, 602] {
            reachability.unanswered(&quorum, "silence", at(second));
        }
        assert!(reachability.can_hand_over(&quorum, at(610)), "the silence is too short for a wish");
        reachability.unanswered(&quorum, "silence", at(603));
        assert!(!reachability.can_hand_over(&quorum, at(610)));
    }
}
