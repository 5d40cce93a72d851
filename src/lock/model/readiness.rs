//! Pure: the condition Ready of a lock, from its other conditions. Tools that know nothing of locks read it.
//!
//! A lock is ready when the operator serves it: it has a holder, or it waits for its turn, for a candidate, or for a person. It is not
//! ready when the operator cannot carry out its specification, or when its quorum does not answer.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::conditions::{AcceptedReason, HeldReason, LockCondition, Status, find_condition, set_condition};

/// Sets the condition Ready as the others ask for.
pub(in crate::lock) fn set_ready(conditions: &mut Vec<Condition>, generation: Option<i64>, now: Timestamp) {
    let (status, reason, message) = ready(conditions);
    set_condition(conditions, LockCondition::Ready, status, reason, message, (generation, now));
}

fn ready(conditions: &[Condition]) -> (Status, &'static str, String) {
    let of = |type_: LockCondition| find_condition(conditions, type_);
    if let Some(accepted) = of(LockCondition::Accepted).filter(|it| it.status != Status::True.as_str()) {
        let reason = AcceptedReason::ALL.iter().find(|reason| reason.as_str() == accepted.reason);
        return (Status::False, reason.map_or("NotAccepted", |reason| reason.as_str()), accepted.message.clone());
    }
    let held = of(LockCondition::Held);
    match held.and_then(|held| HeldReason::ALL.iter().find(|reason| reason.as_str() == held.reason)) {
        None | Some(HeldReason::Pending) => (Status::Unknown, HeldReason::Pending.as_str(), String::new()),
        Some(HeldReason::NoQuorum) => {
            let message = held.map(|held| held.message.clone());
            (Status::False, HeldReason::NoQuorum.as_str(), message.unwrap_or_default())
        }
        Some(served) => (Status::True, served.as_str(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_after(accepted: Option<AcceptedReason>, held: Option<HeldReason>) -> (&'static str, &'static str) {
        let (mut conditions, now) = (Vec::new(), Timestamp::UNIX_EPOCH);
        if let Some(reason) = accepted {
            let is_accepted = reason == AcceptedReason::Accepted;
            set_condition(&mut conditions, LockCondition::Accepted, is_accepted, reason, "why", (None, now));
        }
        if let Some(reason) = held {
            set_condition(&mut conditions, LockCondition::Held, reason == HeldReason::Held, reason, "", (None, now));
        }
        let (status, reason, _) = ready(&conditions);
        (status.as_str(), reason)
    }

    #[test]
    fn a_lock_is_ready_when_it_is_served_and_says_why_when_it_is_not() {
        let good = Some(AcceptedReason::Accepted);
        assert_eq!(ready_after(good, Some(HeldReason::Held)), ("True", "Held"));
        assert_eq!(ready_after(good, Some(HeldReason::Queued)), ("True", "Queued"));
        assert_eq!(ready_after(good, Some(HeldReason::NoCandidate)), ("True", "NoCandidate"));
        assert_eq!(ready_after(good, Some(HeldReason::NoQuorum)), ("False", "NoQuorum"));
        assert_eq!(ready_after(good, Some(HeldReason::Pending)), ("Unknown", "Pending"));
        assert_eq!(ready_after(good, None), ("Unknown", "Pending"));
        let refused = Some(AcceptedReason::TTLTooLong);
        assert_eq!(ready_after(refused, Some(HeldReason::NotAccepted)), ("False", "TTLTooLong"));
        assert_eq!(ready_after(refused, Some(HeldReason::Held)), ("False", "TTLTooLong"), "what is held goes on");
    }
}
