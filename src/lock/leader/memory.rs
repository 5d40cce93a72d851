//! The leader's memory of locks for one term: pauses after failed attempts, results of seals, and refused writes. By UID.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::conditions::HeldReason;
use crate::lock::model::decide::WaitReason;
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::refusal::Refusal;
use crate::redlock::Nonce;
use crate::time::Boottime;

/// How long after its pause a failed lock still yields its place in the queue.
///
/// This covers the time until its next attempt.
const YIELDS_UNTIL_RETRY: Duration = Duration::from_secs(1);

/// The message of the last failed attempt, and the time of the next one.
#[derive(Debug)]
struct Pause {
    message: HeldMessage,
    until: Boottime,
    /// Number of attempts in a row that no majority answered.
    unanswered: u32,
}

/// Pauses after failed attempts, results of seals, and refused writes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pauses: Mutex<HashMap<String, Pause>>,
    sealed: Mutex<HashMap<String, (Option<Nonce>, Boottime)>>,
    refused: Mutex<HashMap<String, Refusal>>,
}

impl Memory {
    /// Postpones the next attempt. Returns whether the lock has ceased to block other locks.
    pub(super) fn postpone(&self, uid: &str, reason: WaitReason, now: Boottime) -> bool {
        let WaitReason { message, retry_after } = reason;
        let was_able = !self.is_unable(uid, now);
        let is_unanswered = message.reason() == HeldReason::NoQuorum;
        let unanswered = if is_unanswered { self.unanswered(uid).saturating_add(1) } else { 0 };
        let pause = Pause { message, until: now + retry_after.unwrap_or_default(), unanswered };
        self.pauses.lock().insert(uid.to_owned(), pause);
        was_able && self.is_unable(uid, now)
    }

    /// Ends the pause of a lock.
    pub(super) fn resume(&self, uid: &str) {
        self.pauses.lock().remove(uid);
    }

    /// The reason for the pause of a lock, if it lasts.
    pub(super) fn pause(&self, uid: &str, now: Boottime) -> Option<WaitReason> {
        let pauses = self.pauses.lock();
        let Pause { message, until, .. } = pauses.get(uid).filter(|pause| pause.until > now)?;
        Some(WaitReason { message: message.clone(), retry_after: Some(until.since(now)) })
    }

    /// Number of attempts in a row that no majority answered.
    pub(super) fn unanswered(&self, uid: &str) -> u32 {
        self.pauses.lock().get(uid).map_or(0, |pause| pause.unanswered)
    }

    /// Whether the lock itself is the cause of its pause, so that it blocks no other lock.
    ///
    /// Its candidate does not answer, or its status cannot be written. An answer of the quorum or of another client concerns every lock on the
    /// key, so it makes no single lock unable.
    pub(super) fn is_unable(&self, uid: &str, now: Boottime) -> bool {
        self.pauses.lock().get(uid).is_some_and(|Pause { message, until, .. }| {
            let is_at_fault = matches!(message.reason(), HeldReason::NoCandidate | HeldReason::Pending);
            is_at_fault && now < *until + YIELDS_UNTIL_RETRY
        })
    }

    /// Records that a majority confirmed the seal of this hold, and when the last key expires.
    pub(super) fn mark_sealed(&self, uid: &str, nonce: Option<Nonce>, until: Boottime) {
        self.sealed.lock().insert(uid.to_owned(), (nonce, until));
    }

    /// When the last key of this hold expires, once a majority has confirmed its seal.
    pub(super) fn sealed_until(&self, uid: &str, nonce: Option<Nonce>) -> Option<Boottime> {
        self.sealed.lock().get(uid).filter(|(of, _)| *of == nonce).map(|(_, until)| *until)
    }

    /// Records which write for the lock the API server refused. Returns whether the reason changed.
    pub(super) fn record_refusal(&self, uid: &str, refusal: Option<Refusal>) -> bool {
        let mut refused = self.refused.lock();
        let reason = refusal.as_ref().map(Refusal::reason);
        let before = match refusal {
            Some(refusal) => refused.insert(uid.to_owned(), refusal),
            None => refused.remove(uid),
        };
        before.map(|before| before.reason()) != reason
    }

    /// The last refused write for the lock, if no later one succeeded.
    pub(super) fn refusal(&self, uid: &str) -> Option<Refusal> {
        self.refused.lock().get(uid).cloned()
    }

    /// Drops the memory of a deleted object.
    pub(super) fn forget(&self, uid: &str) {
        self.resume(uid);
        self.refused.lock().remove(uid);
        self.sealed.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unanswered_attempts_are_counted_and_a_pause_ends_at_its_time() {
        let (memory, at) = (Memory::default(), |millis| Boottime::new(Duration::from_millis(millis)));
        let reason =
            |millis| WaitReason { message: HeldMessage::NoClock, retry_after: Some(Duration::from_millis(millis)) };
        memory.postpone("u", reason(200), at(0));
        memory.postpone("u", reason(200), at(300));
        assert_eq!((memory.pause("u", at(400)), memory.unanswered("u")), (Some(reason(100)), 2));
        assert_eq!(memory.pause("u", at(500)), None);
        memory.postpone("u", HeldMessage::Fault.into(), at(500));
        assert_eq!(memory.unanswered("u"), 0);
    }

    #[test]
    fn a_refusal_is_new_until_its_reason_changes() {
        let label = |cause: &str| {
            let (label, pod, cause) = ("l".into(), "ns/a-0".into(), cause.into());
            Some(Refusal::LabelNotSet { label, pod, cause })
        };
        let memory = Memory::default();
        assert!(memory.record_refusal("u", label("request 1")));
        assert!(!memory.record_refusal("u", label("request 2")), "the next status has the newer text");
        assert_eq!(memory.refusal("u"), label("request 2"));
        assert!(memory.record_refusal("u", None) && !memory.record_refusal("u", None));
    }

    #[test]
    fn a_lock_at_fault_is_passed_over_until_its_next_attempt() {
        let at = |millis| Boottime::new(Duration::from_millis(millis));
        let is_unable = |message: &HeldMessage, millis| {
            let (memory, retry_after) = (Memory::default(), Some(Duration::from_millis(500)));
            memory.postpone("u", WaitReason { message: message.clone(), retry_after }, at(0));
            memory.is_unable("u", at(millis))
        };
        for message in [HeldMessage::NoCandidate { why: String::new() }, HeldMessage::Fault] {
            assert!(is_unable(&message, 0) && is_unable(&message, 1_499));
            assert!(!is_unable(&message, 1_500), "without a new attempt, the lock is eligible again");
        }
        assert!(
            !is_unable(&HeldMessage::SealRunsOut { left: String::new() }, 0) && !is_unable(&HeldMessage::NoClock, 0)
        );
    }
}
