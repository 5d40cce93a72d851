//! Pure: the condition Ready of a lock, from its other conditions, for tools without support for locks.
//!
//! A lock is ready when the operator serves it. Then it has a holder, or it waits for its turn, for a candidate, or for a user.
//!
//! It is not ready if the operator cannot serve its specification, if its quorum does not answer, or after three ttl without a candidate.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::DistributedLock;
use crate::api::conditions::{
    AcceptedReason, HeldReason, LockCondition, Status, find_condition, set_condition, transition_time,
};
use crate::time::UnixMillis;

/// A lock without a candidate is ready for this many ttl, since its pods can be about to start.
const PATIENCE_IN_TTLS: u32 = 3;

/// Sets the condition Ready according to the other conditions.
///
/// A lock without a candidate is ready for `patience`. It is `None` for an unreadable lock.
pub(in crate::lock) fn set_ready(
    conditions: &mut Vec<Condition>,
    patience: Option<Duration>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let is_overdue = patience.is_some_and(|patience| left(conditions, patience, now).is_zero());
    let (status, reason, message) = ready(conditions, is_overdue);
    set_condition(conditions, LockCondition::Ready, status, reason, message, (generation, now));
}

/// How long a lock without a candidate is ready. `None` for an unreadable lock.
pub(in crate::lock) fn patience(lock: &DistributedLock) -> Option<Duration> {
    lock.spec.unreadable.is_none().then(|| lock.spec.ttl.get().saturating_mul(PATIENCE_IN_TTLS))
}

/// Time until a lock without a candidate is no longer ready, if that is in the future.
pub(in crate::lock) fn until_unready(lock: &DistributedLock, now: UnixMillis) -> Option<Duration> {
    let left = left(lock.conditions(), patience(lock)?, Timestamp::from_millisecond(now.0).ok()?);
    (!left.is_zero()).then_some(left)
}

/// The rest of the patience with a lock, which begins when it has no holder.
fn left(conditions: &[Condition], patience: Duration, now: Timestamp) -> Duration {
    let since = find_condition(conditions, LockCondition::Held).filter(|held| held.status == Status::False.as_str());
    let now = UnixMillis(now.as_millisecond());
    patience.saturating_sub(since.map_or(Duration::ZERO, |held| now.since(transition_time(held))))
}

/// The condition Ready of a lock that has had no candidate for its patience.
pub(in crate::lock) fn without_candidate(conditions: &[Condition]) -> Option<&Condition> {
    let ready = find_condition(conditions, LockCondition::Ready)?;
    (ready.status == Status::False.as_str() && ready.reason == HeldReason::NoCandidate.as_str()).then_some(ready)
}

fn ready(conditions: &[Condition], is_overdue: bool) -> (Status, &'static str, String) {
    let of = |type_: LockCondition| find_condition(conditions, type_);
    if let Some(accepted) = of(LockCondition::Accepted).filter(|it| it.status != Status::True.as_str()) {
        let reason = AcceptedReason::named(&accepted.reason);
        return (Status::False, reason.map_or("NotAccepted", |reason| reason.as_str()), accepted.message.clone());
    }
    let held = of(LockCondition::Held);
    let message = |held: Option<&Condition>| held.map(|held| held.message.clone()).unwrap_or_default();
    match held.and_then(|held| HeldReason::named(&held.reason)) {
        None | Some(HeldReason::Pending) => (Status::Unknown, HeldReason::Pending.as_str(), message(held)),
        Some(reason @ HeldReason::NoQuorum) => (Status::False, reason.as_str(), message(held)),
        Some(reason @ HeldReason::NoCandidate) if is_overdue => (Status::False, reason.as_str(), message(held)),
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
        let (status, reason, _) = ready(&conditions, false);
        (status.as_str(), reason)
    }

    #[test]
    fn ready_is_true_when_served_and_has_a_reason_when_not() {
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

    #[test]
    fn a_lock_without_a_candidate_is_ready_for_three_ttl_only() {
        let begins = Timestamp::UNIX_EPOCH;
        let mut conditions = Vec::new();
        let held = (Status::False, HeldReason::NoCandidate, "no pod matches");
        set_condition(&mut conditions, LockCondition::Held, held.0, held.1, held.2, (None, begins));
        let mut after = |seconds: i64, patience: Option<u64>| {
            let now = Timestamp::from_second(seconds).unwrap();
            set_ready(&mut conditions, patience.map(Duration::from_secs), None, now);
            let ready = find_condition(&conditions, LockCondition::Ready).unwrap();
            (ready.status.clone(), ready.reason.clone(), ready.message.clone())
        };
        assert_eq!(after(44, Some(45)), ("True".into(), "NoCandidate".into(), String::new()));
        assert_eq!(after(45, Some(45)), ("False".into(), "NoCandidate".into(), "no pod matches".into()));
        assert_eq!(after(45, None).0, "True", "it is unreadable, so its ttl is not known");
        let of_claim: DistributedLock = serde_json::from_value(serde_json::json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "a"},
            "spec": {"key": "k", "ttl": "15s", "claim": {"podName": "gone"}}}))
        .unwrap();
        assert_eq!(patience(&of_claim), Some(Duration::from_secs(45)));
    }

    #[test]
    fn a_refused_write_is_the_message_of_ready() {
        let (mut conditions, now) = (Vec::new(), Timestamp::UNIX_EPOCH);
        let refused = (Status::False, HeldReason::Pending, "the API server did not accept the write");
        set_condition(&mut conditions, LockCondition::Held, refused.0, refused.1, refused.2, (None, now));
        let (status, reason, message) = ready(&conditions, false);
        assert_eq!((status.as_str(), reason, message.as_str()), ("Unknown", "Pending", refused.2));
    }
}
