//! Pure: the status writes of a grant, their possible outcomes, and the next step.

use kube::ResourceExt;

use super::decide::requests;
use super::orphans::holder_nonce;
use super::verdict::is_deleting;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus};
use crate::redlock::Nonce;

/// Maximum number of unconfirmed writes in a row to a reachable API server.
///
/// After these writes the leader gives up when the validity that they publish has ended.
const UNCONFIRMED: usize = 3;

/// The writes of one grant, and their possible outcomes.
pub struct Writes {
    nonce: Nonce,
    /// The status that the grant was decided on.
    ///
    /// Metadata and spec can change after the decision, but the status must not. Another leader that wrote the status can have released the key
    /// as an orphan.
    decided_on: Option<DistributedLockStatus>,
    /// The version in the last write. Every earlier write had an older one.
    version: Option<String>,
    /// A write with this version can still land.
    open: bool,
    unconfirmed: usize,
}

/// The next step after a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The status names the grant.
    Named,
    /// No write of the grant can land.
    Impossible,
    /// Write the grant again.
    Write,
    /// Write another status, so that no earlier write can land.
    Withdraw,
    /// Give up, because the API server accepts no write, or the status has a holder of another kind.
    GiveUp,
}

impl Writes {
    /// The state before the first write.
    pub fn new(lock: &DistributedLock, nonce: Nonce) -> Self {
        Self { nonce, decided_on: lock.status.clone(), version: lock.resource_version(), open: false, unconfirmed: 0 }
    }

    /// Records a failed write with the version of `lock`. Returns whether no write of the grant can land.
    pub fn failed(&mut self, lock: &DistributedLock, error: &RequestError) -> bool {
        self.version = lock.resource_version();
        match error {
            RequestError::Gone => return true,
            // A refusal does not prove that an earlier write with an unknown outcome failed.
            RequestError::Refused(_) if !self.open => return true,
            RequestError::Conflict => {}
            RequestError::Refused(_) => self.unconfirmed += 1,
            RequestError::Unknown(_) => (self.open, self.unconfirmed) = (true, self.unconfirmed + 1),
        }
        false
    }

    /// Returns the next step for `lock`, which was read after a write.
    ///
    /// `valid` is true while the hold is valid. `late` is true when the validity that the grant publishes has ended.
    pub fn read(&mut self, lock: &DistributedLock, valid: bool, late: bool) -> Next {
        if holder_nonce(lock).as_ref() == Some(&self.nonce) {
            return Next::Named;
        }
        if lock.resource_version() != self.version {
            (self.open, self.unconfirmed) = (false, 0);
        }
        let is_served = !is_deleting(lock) && !lock.spec.suspend && lock.spec.unreadable.is_none();
        // A request that came after the decision is about an earlier hold, and must not end this one.
        let wanted = is_served && requests(lock).is_empty();
        let unheld = lock.holder().is_none();
        match self.open {
            // A holder without a nonce can be this grant.
            _ if !unheld && holder_nonce(lock).is_none() => Next::GiveUp,
            true if late && self.unconfirmed >= UNCONFIRMED => Next::GiveUp,
            _ if valid && wanted && unheld && lock.status == self.decided_on => Next::Write,
            true => Next::Withdraw,
            false => Next::Impossible,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::BREAK_FORCE_ANNOTATION;
    use crate::api::test_util::{self, condition};

    const NONCE: [u8; 10] = [7; 10];
    const UNKNOWN: RequestError = RequestError::Unknown(None);

    fn lock(version: &str, status: serde_json::Value) -> DistributedLock {
        let mut lock = test_util::lock(json!({"key": "k", "claim": {"identity": "a"}}), status);
        lock.metadata.resource_version = Some(version.to_owned());
        lock
    }

    fn free() -> serde_json::Value {
        json!({"transitions": 0})
    }

    fn named() -> serde_json::Value {
        json!({"transitions": 1, "holder": {"identity": "a", "nonce": Nonce::from_bytes(NONCE).to_string()}})
    }

    fn writes(lock: &DistributedLock) -> Writes {
        Writes::new(lock, Nonce::from_bytes(NONCE))
    }

    /// A lock, and the writes to it after this failure of the first one.
    fn after(failure: &RequestError) -> (DistributedLock, Writes) {
        let decided_on = lock("5", free());
        let mut writes = writes(&decided_on);
        assert!(!writes.failed(&decided_on, failure));
        (decided_on, writes)
    }

    fn refused() -> RequestError {
        RequestError::Refused(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded))
    }

    #[test]
    fn a_grant_is_written_again_only_to_the_same_free_lock() {
        let mut annotated = lock("6", free());
        annotated.metadata.annotations = Some([(BREAK_FORCE_ANNOTATION.to_owned(), "ann: dead".to_owned())].into());
        // Another leader took the key for an orphan. It has withdrawn the grant, and releases the key.
        let withdrawn = json!({"transitions": 0, "conditions": [condition("Held", "False", "Pending")]});
        for (why, changed, expected) in [
            ("a user changed the spec", lock("6", free()), Next::Write),
            ("a request is about an earlier hold", annotated, Next::Impossible),
            ("the status has changed", lock("6", withdrawn), Next::Impossible),
        ] {
            let (_, mut writes) = after(&RequestError::Conflict);
            assert_eq!(writes.read(&changed, true, false), expected, "{why}");
        }
    }

    #[test]
    fn an_unknown_write_stays_possible_until_the_object_changes() {
        let (decided_on, mut writes) = after(&UNKNOWN);
        assert_eq!(writes.read(&decided_on, false, false), Next::Withdraw, "the write can still land");
        let next = writes.read(&lock("6", free()), false, false);
        assert_eq!(next, Next::Impossible, "the unknown write carried version 5");
    }

    #[test]
    fn a_refusal_proves_nothing_while_an_earlier_write_is_open() {
        let (decided_on, mut writes) = after(&UNKNOWN);
        assert!(!writes.failed(&decided_on, &refused()));
        assert_eq!(writes.read(&decided_on, true, false), Next::Write);
        assert_eq!(writes.read(&lock("6", named()), true, false), Next::Named);
    }

    #[test]
    fn a_refusal_of_the_only_write_proves_that_it_failed() {
        let (decided_on, mut after_a_conflict) = after(&UNKNOWN);
        assert!(writes(&decided_on).failed(&decided_on, &refused()));
        let changed = lock("6", free());
        assert_eq!(after_a_conflict.read(&changed, true, false), Next::Write);
        assert!(after_a_conflict.failed(&changed, &refused()), "the unknown write carried version 5");
    }

    #[test]
    fn a_grant_is_not_written_to_an_unreadable_lock_nor_taken_back() {
        let (_, mut writes) = after(&UNKNOWN);
        let mut unreadable = lock("6", free());
        unreadable.spec.unreadable = Some("why".into());
        assert_eq!(writes.read(&unreadable, true, false), Next::Impossible, "the write carried version 5");
        let unclear = lock("7", json!({"transitions": 1, "holder": {"identity": "unknown"}}));
        assert_eq!(writes.read(&unclear, true, false), Next::GiveUp);
    }

    #[test]
    fn writes_end_with_the_validity_if_the_api_server_takes_none() {
        let decided_on = lock("5", free());
        let mut writes = writes(&decided_on);
        for _ in 0..UNCONFIRMED {
            assert_ne!(writes.read(&decided_on, true, true), Next::GiveUp);
            assert!(!writes.failed(&decided_on, &UNKNOWN));
        }
        assert_eq!(writes.read(&decided_on, true, false), Next::Write);
        assert_eq!(writes.read(&decided_on, true, true), Next::GiveUp);
        assert!(writes.open, "a write is open, so the key must expire");
    }
}
