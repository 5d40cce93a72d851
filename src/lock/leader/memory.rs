//! What the leader remembers of the locks for one term: failed attempts, and what the members said about ends. By UID.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::conditions::HeldReason;
use crate::lock::model::decide::{Sealing, WaitReason};
use crate::lock::model::said::Said;
use crate::redlock::Nonce;
use crate::time::Boottime;

/// For so long after its pause a lock that could not be acquired does not count as ahead of others.
/// Its next attempt is under way then.
const LINGER: Duration = Duration::from_secs(1);

/// Why the last attempt of a lock failed, and when the next one is due.
#[derive(Debug)]
struct Pause {
    message: Said,
    until: Boottime,
    /// How many attempts in a row no majority has answered.
    unanswered: u32,
}

/// Both tables.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pauses: Mutex<HashMap<String, Pause>>,
    sealed: Mutex<HashMap<String, (Option<Nonce>, Sealing)>>,
}

impl Memory {
    /// Postpones the next attempt. Whether the lock has come to block no other one by that.
    pub(super) fn postpone(&self, uid: &str, reason: WaitReason, now: Boottime) -> bool {
        let WaitReason { message, retry_after } = reason;
        let was_able = !self.is_unable(uid, now);
        let is_unanswered = message.reason() == HeldReason::NoQuorum;
        let unanswered = if is_unanswered { self.unanswered(uid).saturating_add(1) } else { 0 };
        let pause = Pause { message, until: now + retry_after.unwrap_or_default(), unanswered };
        self.pauses.lock().insert(uid.to_owned(), pause);
        was_able && self.is_unable(uid, now)
    }

    /// The next attempt may be made at once.
    pub(super) fn resume(&self, uid: &str) {
        self.pauses.lock().remove(uid);
    }

    /// Why no attempt is made now, after one that failed.
    pub(super) fn pause(&self, uid: &str, now: Boottime) -> Option<WaitReason> {
        let pauses = self.pauses.lock();
        let Pause { message, until, .. } = pauses.get(uid).filter(|pause| pause.until > now)?;
        Some(WaitReason { message: message.clone(), retry_after: Some(until.since(now)) })
    }

    /// How many attempts in a row no majority has answered.
    pub(super) fn unanswered(&self, uid: &str) -> u32 {
        self.pauses.lock().get(uid).map_or(0, |pause| pause.unanswered)
    }

    /// Whether the lock itself is what keeps it from being acquired, so that it blocks no other one.
    pub(super) fn is_unable(&self, uid: &str, now: Boottime) -> bool {
        self.pauses.lock().get(uid).is_some_and(|pause| is_unable(pause, now))
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
    matches!(pause.message.reason(), HeldReason::NoCandidate | HeldReason::Pending) && now < pause.until + LINGER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_at_its_time_and_attempts_without_an_answer_are_counted() {
        let (memory, at) = (Memory::default(), |millis| Boottime::new(Duration::from_millis(millis)));
        let reason = |millis| WaitReason { message: Said::NoClock, retry_after: Some(Duration::from_millis(millis)) };
        memory.postpone("u", reason(200), at(0));
        memory.postpone("u", reason(200), at(300));
        assert_eq!((memory.pause("u", at(400)), memory.unanswered("u")), (Some(reason(100)), 2));
        assert_eq!(memory.pause("u", at(500)), None);
        memory.postpone("u", Said::Fault.into(), at(500));
        assert_eq!(memory.unanswered("u"), 0);
    }

    #[test]
    fn a_lock_whose_pod_or_status_is_the_trouble_is_passed_over_until_its_next_attempt() {
        let at = |millis| Boottime::new(Duration::from_millis(millis));
        let is_unable = |message: &Said, millis| {
            is_unable(&Pause { message: message.clone(), until: at(500), unanswered: 0 }, at(millis))
        };
        for message in [Said::NoCandidate { why: String::new() }, Said::Fault] {
            assert!(is_unable(&message, 0) && is_unable(&message, 1_499));
            assert!(!is_unable(&message, 1_500), "it was not tried again, so nothing is known");
        }
        assert!(!is_unable(&Said::SealRunsOut { left: String::new() }, 0) && !is_unable(&Said::NoClock, 0));
    }
}
