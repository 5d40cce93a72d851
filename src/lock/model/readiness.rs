//! Pure: the condition Ready of a lock, from its other conditions, for tools without support for locks.
//!
//! A lock is ready when the operator serves it. Then it has a holder, or it waits for its turn, for a candidate, or for a user.
//!
//! It is not ready if the operator cannot serve its specification, or if its quorum does not answer. After three ttl without a candidate,
//! or behind a key that never expires, it is not ready. Nor is it ready while one holder after the other fails its check.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::candidate::unhealthy_row;
use super::held_message::HeldMessage;
use crate::api::conditions::{
    AcceptedReason, HeldReason, KEY_NEVER_EXPIRES, LockCondition, Status, find_condition, set_condition,
    transition_time,
};
use crate::api::{DistributedLock, DistributedLockStatus, MilliTime, PastHold};
use crate::time::UnixMillis;

/// How long a lock without a candidate is ready, in ttl. Its pods can be about to start.
const PATIENCE_IN_TTLS: u32 = 3;

/// The text by which the condition Held shows a key that never expires. See [`HeldMessage::ForeignLasting`].
pub(super) const NEVER_EXPIRES: &str = ", which never expires: ";

/// Sets the condition Ready according to the other conditions.
///
/// `ttl` is `None` for an unreadable lock. `at` is the generation of its specification, and the time.
pub(super) fn set_ready(
    status: &mut DistributedLockStatus,
    ttl: Option<Duration>,
    at @ (_generation, now): (Option<i64>, Timestamp),
) {
    let millis = UnixMillis(now.as_millisecond());
    let is_overdue = ttl.is_some_and(|ttl| left(&status.conditions, ttl, millis).is_zero());
    let failing = ttl.and_then(|ttl| failing(status, ttl, millis));
    let (is_ready, reason, message) = ready(&status.conditions, is_overdue, failing.as_ref());
    set_condition(&mut status.conditions, LockCondition::Ready, is_ready, reason, message, at);
}

/// The ttl of a lock. `None` for an unreadable one.
pub(in crate::lock) fn ttl(lock: &DistributedLock) -> Option<Duration> {
    lock.spec.unreadable.is_none().then(|| lock.spec.ttl.get())
}

/// The reason why no holder stays healthy.
///
/// A pod failed its check in two of the last holds in a row, and the present hold is not a ttl longer than each of them.
fn failing(status: &DistributedLockStatus, ttl: Duration, now: UnixMillis) -> Option<HeldMessage> {
    let row: Vec<_> = unhealthy_row(&status.history).collect();
    let is_again = |past: &&&PastHold| row.iter().filter(|other| other.identity == past.identity).count() > 1;
    row.iter().find(is_again)?;
    let length = |from: Option<MilliTime>, to: UnixMillis| from.map(|from| to.since(UnixMillis::from(from)));
    let longest = row.iter().filter_map(|past| length(past.from, past.to.into())).max().unwrap_or_default();
    let present = status.holder.as_ref().and_then(|_| length(status.acquired_at, now)).unwrap_or_default();
    let why = row.first()?.message.clone().unwrap_or_default();
    (present <= longest + ttl).then_some(HeldMessage::Unhealthy { holds: row.len(), why })
}

/// Time until a lock without a candidate is no longer ready, if that is in the future.
pub(in crate::lock) fn until_unready(lock: &DistributedLock, now: UnixMillis) -> Option<Duration> {
    Some(left(lock.conditions(), ttl(lock)?, now)).filter(|left| !left.is_zero())
}

/// How long a lock without a candidate is still ready.
///
/// The time begins when the condition Held becomes false.
fn left(conditions: &[Condition], ttl: Duration, now: UnixMillis) -> Duration {
    let since = find_condition(conditions, LockCondition::Held).filter(|held| held.status == Status::False.as_str());
    let waited = since.map_or(Duration::ZERO, |held| now.since(transition_time(held)));
    ttl.saturating_mul(PATIENCE_IN_TTLS).saturating_sub(waited)
}

/// The condition Ready of a lock that has waited for its whole patience.
pub(in crate::lock) fn overdue(conditions: &[Condition]) -> Option<&Condition> {
    let ready = find_condition(conditions, LockCondition::Ready)?;
    let lasts = [HeldReason::NoCandidate.as_str(), KEY_NEVER_EXPIRES];
    (ready.status == Status::False.as_str() && lasts.contains(&&*ready.reason)).then_some(ready)
}

fn ready(conditions: &[Condition], is_overdue: bool, failing: Option<&HeldMessage>) -> (Status, &'static str, String) {
    let of = |type_: LockCondition| find_condition(conditions, type_);
    if let Some(accepted) = of(LockCondition::Accepted).filter(|it| it.status != Status::True.as_str()) {
        let reason = AcceptedReason::named(&accepted.reason);
        return (Status::False, reason.map_or("NotAccepted", |reason| reason.as_str()), accepted.message.clone());
    }
    let held = of(LockCondition::Held);
    let reason = held.and_then(|held| HeldReason::named(&held.reason)).unwrap_or(HeldReason::Pending);
    let message = || held.map(|held| held.message.clone()).unwrap_or_default();
    let (status, reason, message) = match (reason, failing) {
        (HeldReason::Pending, _) => (Status::Unknown, reason, message()),
        (HeldReason::NoQuorum, _) => (Status::False, reason, message()),
        (HeldReason::NoCandidate, None) if is_overdue => (Status::False, reason, message()),
        (HeldReason::HeldByOther, None) if is_overdue && message().contains(NEVER_EXPIRES) => {
            return (Status::False, KEY_NEVER_EXPIRES, message());
        }
        (HeldReason::Suspended, _) | (_, None) => (Status::True, reason, String::new()),
        // Without a holder, the message of Held has the cause for each pod.
        (HeldReason::NoCandidate, Some(_)) => (Status::False, HeldReason::HolderUnhealthy, message()),
        (_, Some(failing)) => (Status::False, HeldReason::HolderUnhealthy, failing.to_string()),
    };
    (status, reason.as_str(), message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;

    #[test]
    fn ready_is_true_when_served_and_has_a_reason_when_not() {
        let (good, refused) = (AcceptedReason::Accepted, AcceptedReason::TTLTooLong);
        for (accepted, held, expected) in [
            (good, Some(HeldReason::Held), ("True", "Held")),
            (good, Some(HeldReason::Queued), ("True", "Queued")),
            (good, Some(HeldReason::NoCandidate), ("True", "NoCandidate")),
            (good, Some(HeldReason::NoQuorum), ("False", "NoQuorum")),
            (good, Some(HeldReason::Pending), ("Unknown", "Pending")),
            (good, None, ("Unknown", "Pending")),
            (refused, Some(HeldReason::NotAccepted), ("False", "TTLTooLong")),
            // The hold continues.
            (refused, Some(HeldReason::Held), ("False", "TTLTooLong")),
        ] {
            let (mut conditions, now) = (Vec::new(), Timestamp::UNIX_EPOCH);
            set_condition(&mut conditions, LockCondition::Accepted, accepted == good, accepted, "why", (None, now));
            if let Some(held) = held {
                set_condition(&mut conditions, LockCondition::Held, held == HeldReason::Held, held, "", (None, now));
            }
            let (status, reason, _) = ready(&conditions, false, None);
            assert_eq!((status.as_str(), reason), expected, "{held:?}");
        }
    }

    #[test]
    fn a_lock_without_a_candidate_is_ready_for_three_ttl_only() {
        let begins = Timestamp::UNIX_EPOCH;
        let lasting = format!("key k{NEVER_EXPIRES}q-0");
        for (reason, why, unready) in [
            (HeldReason::NoCandidate, "no pod matches", "NoCandidate"),
            (HeldReason::HeldByOther, lasting.as_str(), KEY_NEVER_EXPIRES),
        ] {
            let mut status = DistributedLockStatus::default();
            set_condition(&mut status.conditions, LockCondition::Held, Status::False, reason, why, (None, begins));
            let mut after = |seconds: i64, ttl: Option<u64>| {
                let now = Timestamp::from_second(seconds).unwrap();
                set_ready(&mut status, ttl.map(Duration::from_secs), (None, now));
                let ready = find_condition(&status.conditions, LockCondition::Ready).unwrap();
                (ready.status.clone(), ready.reason.clone(), ready.message.clone())
            };
            assert_eq!(after(44, Some(15)), ("True".into(), reason.to_string(), String::new()));
            assert_eq!(after(45, Some(15)), ("False".into(), unready.into(), why.into()));
            assert_eq!(after(45, None).0, "True", "an unreadable lock has no known ttl");
        }
        let of_claim = lock(json!({"key": "k", "ttl": "15s", "claim": {"podName": "gone"}}), json!(null));
        assert_eq!(until_unready(&of_claim, UnixMillis(0)), Some(Duration::from_secs(45)));
    }

    #[test]
    fn an_election_is_not_ready_while_each_leader_fails_its_check() {
        let at = |seconds: i64| UnixMillis(seconds * 1_000);
        let time = |seconds: i64| MilliTime::from_millis(at(seconds).0).unwrap();
        let past = |pod: &str, from: i64, to: i64| PastHold {
            identity: pod.into(),
            fencing_token: None,
            from: Some(time(from)),
            to: time(to),
            reason: HeldReason::HolderUnhealthy.to_string(),
            message: Some("no answer".into()),
        };
        let failed = |history| DistributedLockStatus { history, ..DistributedLockStatus::default() };
        let once = failed(vec![past("b", 20, 40), past("a", 0, 20)]);
        let again = failed(vec![past("a", 40, 60), past("b", 20, 40), past("a", 0, 20)]);
        let held = DistributedLockStatus {
            holder: Some(crate::api::LockHolder::default()),
            acquired_at: Some(time(70)),
            ..again.clone()
        };
        let ready = |status: &DistributedLockStatus, reason: HeldReason, seconds: i64| {
            let mut status = status.clone();
            let now = Timestamp::from_second(seconds).unwrap();
            let is_held = reason == HeldReason::Held || reason == HeldReason::Ending;
            set_condition(&mut status.conditions, LockCondition::Held, is_held, reason, "a waits", (None, now));
            set_ready(&mut status, Some(Duration::from_secs(15)), (None, now));
            let ready = find_condition(&status.conditions, LockCondition::Ready).unwrap();
            (ready.status == "True", ready.reason.clone(), ready.message.clone())
        };
        assert!(ready(&once, HeldReason::Held, 41).0, "another pod can be healthy");
        for (status, reason) in [
            (&again, HeldReason::HolderUnhealthy),
            (&held, HeldReason::Held),
            (&held, HeldReason::Ending),
            (&again, HeldReason::Queued),
        ] {
            let (is_ready, because, why) = ready(status, reason, 105);
            assert!(!is_ready && because == "HolderUnhealthy" && why.contains("last 3 holds"), "{reason}: {why}");
            assert!(why.contains("no answer"), "{why}");
        }
        assert_eq!(ready(&again, HeldReason::NoCandidate, 105), (false, "HolderUnhealthy".into(), "a waits".into()));
        assert!(ready(&held, HeldReason::Held, 106).0, "this hold is a ttl longer than the failed ones");
        assert!(ready(&again, HeldReason::Suspended, 105).0);
    }

    #[test]
    fn a_refused_write_is_the_message_of_ready() {
        let (mut conditions, now) = (Vec::new(), Timestamp::UNIX_EPOCH);
        let refused = (Status::False, HeldReason::Pending, "the API server did not accept the write");
        set_condition(&mut conditions, LockCondition::Held, refused.0, refused.1, refused.2, (None, now));
        let (status, reason, message) = ready(&conditions, false, None);
        assert_eq!((status.as_str(), reason, message.as_str()), ("Unknown", "Pending", refused.2));
    }
}
