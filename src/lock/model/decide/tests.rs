mod free;
mod held;
mod publication;

use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::*;
use crate::api::conditions::{HeldReason, LockCondition, find_condition, is_true, transition_time};
use crate::api::test_util::{claim, merged};
use crate::api::{Election, ElectionLease, HeldQuorum, LOCK_FINALIZER};
use crate::lock::model::end::{Doubt, End};
use crate::lock::model::hold::Terms;
use crate::quorum::model::lookup::LookupError;
use crate::redlock::{Extend, LockKey, Nonce, Votes};
use crate::time::UnixMicros;

const WALL: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z
const NOW: Boottime = Boottime::new(Duration::from_secs(1_000));

/// The API server's clock, without uncertainty.
fn clock() -> ClockOffset {
    ClockOffset::of_reading(UnixMicros(WALL.0 * 1_000), Duration::ZERO, NOW, NOW)
}

fn contender() -> LockHolder {
    LockHolder { identity: "a".into(), ..LockHolder::default() }
}

fn lock(extra: serde_json::Value) -> DistributedLock {
    let metadata = json!({"metadata": {"uid": "u", "generation": 2, "finalizers": [LOCK_FINALIZER]}});
    claim("a", 0, merged(metadata, extra))
}

/// A lock held since 00:00:50, renewed at 00:00:58, and valid until 00:01:07.
fn held_lock(extra: serde_json::Value) -> DistributedLock {
    let status = json!({"status": {
        "transitions": 1, "holder": {"identity": "a", "nonce": "0101"}, "fencingToken": 7, "votes": "3/3",
        "acquiredAt": "2026-01-01T00:00:50.000Z", "renewedAt": "2026-01-01T00:00:58.000Z",
        "validUntil": "2026-01-01T00:01:07.000Z", "conditions": []
    }});
    lock(merged(status, extra))
}

/// A status without a holder for this reason, since this time of the day.
fn not_held(reason: &str, since: &str) -> serde_json::Value {
    json!({"status": {"conditions": [{"type": "Held", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": format!("2026-01-01T{since}Z")}]}})
}

fn with_lease() -> Election {
    Election { lease: Some(ElectionLease { name: "ctl".into() }), ..Election::default() }
}

fn quorum() -> HeldQuorum {
    HeldQuorum { namespace: "ns".into(), name: "main".into(), uid: "q".into() }
}

fn hold(renewed_at: i64, valid_for: u64) -> Hold {
    let terms = Terms {
        lock: ObjectRef::new("a").within("ns"),
        uid: "u".into(),
        quorum: quorum(),
        key: LockKey::new("ns/k"),
        nonce: Nonce::from_bytes([1; 10]),
        ttl: Duration::from_secs(9),
        renew_interval: Duration::from_secs(3),
    };
    let valid_until = NOW + Duration::from_millis(valid_for);
    let since_boot = i64::try_from(NOW.since_boot().as_millis()).unwrap() + renewed_at - WALL.0;
    let won = Boottime::new(Duration::from_millis(u64::try_from(since_boot).unwrap()));
    Hold::new(terms, valid_until, NOW).granted(Votes { yes: 3, of: 3 }, won)
}

fn input(lock: &DistributedLock) -> LockInput<'_> {
    LockInput {
        lock,
        held: None,
        refusal: None,
        contender: Ok(contender()),
        trouble: None,
        place: Place::First,
        pause: None,
        can_hand_over: true,
        now: NOW,
        api_now: WALL,
    }
}

fn ago(seconds: u64) -> Boottime {
    NOW.saturating_sub(Duration::from_secs(seconds))
}

/// A hold that this replica has observed for ten seconds, and its end for one.
fn held(verdict: Verdict, hold: Option<Hold>) -> HoldInput {
    HoldInput {
        verdict,
        hold,
        record: Some(HoldRecord { quorum: quorum(), key: LockKey::new("ns/k"), rejoin_delay: Duration::from_secs(31) }),
        quorum_exists: true,
        can_delete: true,
        rejoin_delay: Some(Duration::from_secs(31)),
        clock: Some(clock()),
        observed: ObservedSince { held: ago(10), ending: Some(ago(1)) },
        sealed_until: None,
    }
}

fn held_input(lock: &DistributedLock, verdict: Verdict, hold: Option<Hold>) -> LockInput<'_> {
    LockInput { held: Some(held(verdict, hold)), ..input(lock) }
}

fn ending_lock(extra: serde_json::Value) -> DistributedLock {
    let ending = json!({"status": {"ending":
        {"since": "2026-01-01T00:00:59.000Z", "reason": "Suspended", "until": "2026-01-01T00:01:07.000Z"}}});
    held_lock(merged(ending, extra))
}

fn runs_out() -> Verdict {
    Verdict::LetExpire(End::Suspended)
}

/// The place behind the holder "b (x)".
fn behind(position: usize) -> Place {
    Place::Queued { position, message: HeldMessage::Behind { holder: "b (x)".into(), position } }
}

/// The rest of a step that only publishes the status.
#[track_caller]
fn rested(input: &LockInput<'_>) -> Rest {
    let step = decide(input);
    let Step::Rest(rest) = step else { panic!("not a rest: {step:?}") };
    rest
}

/// The rest of a step that keeps the hold.
#[track_caller]
fn kept(input: &LockInput<'_>) -> Rest {
    let step = decide(input);
    let Step::Keep(rest) = step else { panic!("not kept: {step:?}") };
    rest
}

/// The rest of a step that keeps this hold of a living holder.
#[track_caller]
fn keep(lock: &DistributedLock, hold: Hold) -> Rest {
    kept(&held_input(lock, Verdict::Keep, Some(hold)))
}

/// The status, the reason and the message of a condition.
#[track_caller]
fn condition(rest: &Rest, name: LockCondition) -> [&str; 3] {
    let found = find_condition(&rest.status.conditions, name).unwrap();
    [&found.status, &found.reason, &found.message]
}

/// The time since which a status has its value of the condition Held.
fn held_since(status: &DistributedLockStatus) -> UnixMillis {
    transition_time(find_condition(&status.conditions, LockCondition::Held).unwrap())
}

/// The reason of the condition Held after a step that only publishes the status.
#[track_caller]
fn held_reason(input: &LockInput<'_>) -> String {
    condition(&rested(input), LockCondition::Held)[1].to_owned()
}
