//! Pure: reads the status of a claim for its creator.

use super::super::held_lock::End;
use redlock_api::conditions::{AcceptedReason, HeldReason, LockCondition, Status, find_condition, is_false, is_true};
use redlock_api::{DistributedLock, DistributedLockStatus};

/// The hold of a claim, as its status describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) nonce: String,
    pub(crate) token: i64,
    pub(crate) identity: String,
    /// The key in Redis.
    pub(crate) key: String,
    /// The end of the validity, in milliseconds since 1970 by the API server's clock.
    pub(crate) valid_until: i64,
}

impl Holding {
    /// The hold in a status. Without a published validity its end is 0.
    pub(crate) fn of(status: &DistributedLockStatus) -> Option<Self> {
        let holder = status.holder.clone()?;
        Some(Self {
            nonce: holder.nonce.unwrap_or_default(),
            token: status.fencing_token?,
            identity: holder.identity,
            key: holder.key.unwrap_or_default(),
            valid_until: status.valid_until.map_or(0, |until| until.as_millis()),
        })
    }
}

/// Why a claim does not hold the lock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Another holder has the lock, or comes first.
    Taken,
    /// The claim is refused, and only another claim can change that.
    Refused,
    /// Something else.
    ///
    /// No majority of the members answers, the operator is silent, or an object that the claim needs does not exist yet.
    Other,
}

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimState {
    /// It holds the lock.
    Held(Holding),
    /// It does not hold the lock yet.
    Waiting { why: String, obstacle: Obstacle },
    /// It no longer holds the lock.
    Ended { why: String, end: End },
}

/// Reads a claim. `lock` is `None` if it is gone, and `nonce` is that of the current hold.
pub(crate) fn read(lock: Option<&DistributedLock>, nonce: Option<&str>) -> ClaimState {
    let Some(lock) = lock else { return lost("its claim was deleted".to_owned()) };
    if lock.metadata.deletion_timestamp.is_some() {
        return lost("its claim is being deleted".to_owned());
    }
    let status = lock.status.clone().unwrap_or_default();
    let held = find_condition(&status.conditions, LockCondition::Held);
    let reported = held.map(|condition| (condition.reason.clone(), condition.message.clone()));
    if let Some(ending) = &status.ending {
        let message = ending.message.clone().unwrap_or_default();
        return ended(&ending.reason, &message);
    }
    let has_lost_hold = nonce.is_some() && is_false(&status.conditions, LockCondition::Held);
    if has_lost_hold || is_true(&status.conditions, LockCondition::Finished) {
        let (reason, message) = reported.unwrap_or_default();
        return ended(&reason, &message);
    }
    if let Some(holding) = Holding::of(&status)
        && status.valid_until.is_some()
        && is_true(&status.conditions, LockCondition::Held)
    {
        return match nonce {
            Some(current) if current != holding.nonce => lost("the claim has another hold now".to_owned()),
            _ => ClaimState::Held(holding),
        };
    }
    waiting(lock, reported)
}

fn lost(why: String) -> ClaimState {
    ClaimState::Ended { end: End::Lost(why.clone()), why }
}

fn ended(reason: &str, message: &str) -> ClaimState {
    let why = if message.is_empty() { reason.to_owned() } else { format!("{message} ({reason})") };
    let is_max_hold = reason == HeldReason::MaxHoldReached.as_str();
    ClaimState::Ended { end: if is_max_hold { End::MaxHold } else { End::Lost(why.clone()) }, why }
}

/// Permanent refusals: the claim has to change, or the rights of its namespace.
const FINAL: [AcceptedReason; 4] = [
    AcceptedReason::TTLTooLong,
    AcceptedReason::TTLTooShort,
    AcceptedReason::NamespaceNotAllowed,
    AcceptedReason::JobsNotServed,
];

/// Whether a reason of Held shows that another holder has the lock, or comes first.
pub(crate) fn is_taken(reason: &str) -> bool {
    [HeldReason::Queued, HeldReason::HeldByOther, HeldReason::LockDelay, HeldReason::Suspended]
        .into_iter()
        .any(|taken| taken.as_str() == reason)
}

fn waiting(lock: &DistributedLock, held: Option<(String, String)>) -> ClaimState {
    let status = lock.status.as_ref();
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let accepted = find_condition(conditions, LockCondition::Accepted);
    if let Some(refused) = accepted.filter(|condition| condition.status == Status::False.as_str()) {
        let is_final = FINAL.iter().any(|reason| reason.as_str() == refused.reason);
        let obstacle = if is_final { Obstacle::Refused } else { Obstacle::Other };
        return ClaimState::Waiting { why: format!("{} ({})", refused.message, refused.reason), obstacle };
    }
    let Some((reason, message)) = held else {
        return ClaimState::Waiting { why: "the operator has not answered".to_owned(), obstacle: Obstacle::Other };
    };
    let obstacle = if is_taken(&reason) { Obstacle::Taken } else { Obstacle::Other };
    let place = status.and_then(|status| status.queue_position).filter(|place| *place > 0);
    let place = place.map(|place| format!("place {place} in the queue. ")).unwrap_or_default();
    ClaimState::Waiting { why: format!("{place}{message}"), obstacle }
}

#[cfg(test)]
mod tests {
    use redlock_api::test_util::lock;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::objects::fake::condition;

    /// The state of a claim with this status.
    fn state(status: &Value, nonce: Option<&str>) -> ClaimState {
        read(Some(&lock(json!({"claim": {"identity": "me"}}), status.clone())), nonce)
    }

    fn held() -> Value {
        json!({
            "holder": {"identity": "me", "nonce": "n1", "key": "shop/reindex"}, "fencingToken": 7,
            "validUntil": "2026-01-01T00:00:10.500Z", "conditions": [condition("Held", "True", "Held", "")],
        })
    }

    #[test]
    fn a_held_claim_is_read_with_its_token_and_validity() {
        let ClaimState::Held(holding) = state(&held(), None) else { panic!("held") };
        assert_eq!((holding.token, holding.key.as_str()), (7, "shop/reindex"));
        assert_eq!(holding.valid_until % 60_000, 10_500);
        assert!(matches!(state(&held(), Some("n1")), ClaimState::Held(_)));
        assert!(matches!(state(&held(), Some("n2")), ClaimState::Ended { .. }));
        assert!(matches!(read(None, Some("n1")), ClaimState::Ended { .. }));
    }

    #[test]
    fn a_claim_waits_while_its_hold_has_no_validity() {
        let mut status = held();
        status["validUntil"] = Value::Null;
        assert!(matches!(state(&status, None), ClaimState::Waiting { obstacle: Obstacle::Other, .. }));
        // A published hold does not end because its validity is not in the status yet.
        assert!(matches!(state(&status, Some("n1")), ClaimState::Waiting { .. }));
    }

    #[test]
    fn an_ending_hold_is_lost_though_it_is_still_valid() {
        let mut status = held();
        status["ending"] = json!({"since": "2026-01-01T00:00:01Z", "reason": "Broken", "message": "by alice"});
        let ClaimState::Ended { why, end } = state(&status, Some("n1")) else { panic!("ended") };
        assert_eq!((why.as_str(), end), ("by alice (Broken)", End::Lost("by alice (Broken)".into())));
        status["ending"]["reason"] = json!("MaxHoldReached");
        assert!(matches!(state(&status, Some("n1")), ClaimState::Ended { end: End::MaxHold, .. }));
    }

    #[test]
    fn a_waiting_claim_reports_its_place_and_its_condition() {
        let queued = json!({"queuePosition": 2, "conditions": [condition("Held", "False", "Queued", "bob holds it")]});
        let wanted =
            ClaimState::Waiting { why: "place 2 in the queue. bob holds it".into(), obstacle: Obstacle::Taken };
        assert_eq!(state(&queued, None), wanted);
        let refused = json!({"conditions": [condition("Accepted", "False", "QuorumNotFound", "no such quorum")]});
        let wanted = ClaimState::Waiting { why: "no such quorum (QuorumNotFound)".into(), obstacle: Obstacle::Other };
        assert_eq!(state(&refused, None), wanted);
        let too_long = json!({"conditions": [condition("Accepted", "False", "TTLTooLong", "at most 30s")]});
        let wanted = ClaimState::Waiting { why: "at most 30s (TTLTooLong)".into(), obstacle: Obstacle::Refused };
        assert_eq!(state(&too_long, None), wanted);
        assert!(matches!(state(&json!({}), None), ClaimState::Waiting { obstacle: Obstacle::Other, .. }));
    }

    #[test]
    fn a_finished_claim_has_ended() {
        let finished = json!({"conditions": [
            condition("Held", "False", "WaitTimeout", "it waited 1m"), condition("Finished", "True", "WaitTimeout", ""),
        ]});
        assert!(matches!(state(&finished, None), ClaimState::Ended { why, .. } if why == "it waited 1m (WaitTimeout)"));
    }
}
