//! What the leader remembers of the locks for one term: failed attempts, and what the members said about ends. By UID.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::conditions::HeldReason;
use crate::lock::model::decide::{Pause, Sealing};
use crate::lock::model::said::Said;
use crate::redlock::Nonce;
use crate::time::Boottime;

/// For so long after its pause a lock that could not be acquired does not count as ahead of others.
/// Its next attempt is under way then.
const LINGER: Duration = Duration::from_secs(1);

/// While the members cannot be asked, or no candidate answers.
pub(super) const NOT_YET_PAUSE: Duration = Duration::from_millis(500);

/// Why a lock is not acquired now, and for how long it is left alone. The next decision says so in the status.
#[derive(Debug)]
pub(super) struct Postponed {
    pub(super) said: Said,
    pub(super) pause: Duration,
}

/// Both tables.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pauses: Mutex<HashMap<String, Pause>>,
    sealed: Mutex<HashMap<String, (Option<Nonce>, Sealing)>>,
}

impl Memory {
    /// Postpones the next attempt. Whether the lock has come to block no other one by that.
    pub(super) fn postpone(&self, uid: &str, postponed: Postponed, now: Boottime) -> bool {
        let Postponed { said, pause } = postponed;
        let was_able = !self.is_unable(uid, now);
        let unanswered = if said.reason() == HeldReason::NoQuorum { self.unanswered(uid).saturating_add(1) } else { 0 };
        self.pause(uid, Pause { unanswered, ..Pause::new(now + pause, &said) });
        was_able && self.is_unable(uid, now)
    }

    /// Postpones the next attempt.
    pub(super) fn pause(&self, uid: &str, pause: Pause) {
        self.pauses.lock().insert(uid.to_owned(), pause);
    }

    /// The next attempt may be made at once.
    pub(super) fn resume(&self, uid: &str) {
        self.pauses.lock().remove(uid);
    }

    /// Why the last attempt failed.
    pub(super) fn last_pause(&self, uid: &str) -> Option<Pause> {
        self.pauses.lock().get(uid).cloned()
    }

    /// How many attempts in a row no majority has answered.
    pub(super) fn unanswered(&self, uid: &str) -> u32 {
        self.last_pause(uid).map_or(0, |pause| pause.unanswered)
    }

    /// Whether the lock itself is what keeps it from being acquired, so that it blocks no other one.
    pub(super) fn is_unable(&self, uid: &str, now: Boottime) -> bool {
        self.last_pause(uid).is_some_and(|pause| is_unable(&pause, now))
    }

    /// Remembers what a majority said about the end of this hold.
    ///
    /// Without a nonce: about the end of every attempt.
    pub(super) fn mark_sealed(&self, uid: &str, nonce: Option<Nonce>, sealing: Sealing) {
        self.sealed.lock().insert(uid.to_owned(), (nonce, sealing));
    }

    /// What a majority said about the end of this hold.
    pub(super) fn sealing_of(&self, uid: &str, nonce: Option<Nonce>) -> Sealing {
        match self.sealed.lock().get(uid) {
            Some((of, sealing)) if *of == nonce => *sealing,
            _ => Sealing::Unconfirmed,
        }
    }

    /// Drops what is remembered of an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.resume(uid);
        self.sealed.lock().remove(uid);
    }
}

/// Whether a lock that was paused like this could not hold the key now.
///
/// Then no candidate answers, or its status cannot be written. Answers of the quorum or of another client do not count
/// here: they concern every lock on the key.
fn is_unable(pause: &Pause, now: Boottime) -> bool {
    matches!(pause.reason, HeldReason::NoCandidate | HeldReason::Pending) && now < pause.until + LINGER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_pod_or_status_is_the_trouble_is_passed_over_until_its_next_attempt() {
        let at = |millis| Boottime::new(Duration::from_millis(millis));
        let pause = |reason| Pause { until: at(500), reason, message: String::new(), unanswered: 0 };
        for reason in [HeldReason::NoCandidate, HeldReason::Pending] {
            assert!(is_unable(&pause(reason), at(0)) && is_unable(&pause(reason), at(1_499)));
            assert!(!is_unable(&pause(reason), at(1_500)), "it was not tried again, so nothing is known");
        }
        assert!(!is_unable(&pause(HeldReason::HeldByOther), at(0)) && !is_unable(&pause(HeldReason::NoQuorum), at(0)));
    }
}
