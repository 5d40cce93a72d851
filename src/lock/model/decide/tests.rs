mod free;
mod held;
mod publication;

use kube::runtime::reflector::ObjectRef;
use serde_json::json;

use super::*;
use crate::api::conditions::{HeldReason, LockCondition, find_condition, is_true};
use crate::api::{Election, ElectionLease, HeldQuorum, LOCK_FINALIZER};
use crate::lock::model::end::{Doubt, End};
use crate::lock::model::hold::Terms;
use crate::quorum::model::lookup::LookupError;
use crate::redlock::{Extend, LockKey, Nonce, Votes};
use crate::time::UnixMicros;

fn too_long() -> Refusal {
    let duration = |seconds| Duration::from_secs(seconds).into();
    Refusal::Ttl { ttl: duration(60), max_ttl: duration(30), quorum: "redlock-system/main".into() }
}

const WALL: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z
const NOW: Boottime = Boottime::new(Duration::from_secs(1_000));

/// The API server's clock, without uncertainty.
fn clock() -> ClockOffset {
    ClockOffset::of_reading(UnixMicros(WALL.0 * 1_000), Duration::ZERO, NOW, NOW)
}

fn lock(extra: serde_json::Value) -> DistributedLock {
    let mut lock = json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": 2, "finalizers": [LOCK_FINALIZER],
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"key": "k", "claim": {"identity": "a"}}
    });
    merge(&mut lock, &extra);
    serde_json::from_value(lock).unwrap()
}

fn merge(base: &mut serde_json::Value, extra: &serde_json::Value) {
    match extra.as_object() {
        Some(fields) => fields.iter().for_each(|(name, value)| merge(&mut base[name], value)),
        None => *base = extra.clone(),
    }
}

/// A lock held since 00:00:50, renewed at 00:00:58, and valid until 00:01:07.
fn held_lock(extra: serde_json::Value) -> DistributedLock {
    let mut lock = lock(json!({"status": {
        "transitions": 1, "holder": {"identity": "a", "nonce": "0101"}, "fencingToken": 7, "votes": "3/3",
        "acquiredAt": "2026-01-01T00:00:50.000Z", "renewedAt": "2026-01-01T00:00:58.000Z",
        "validUntil": "2026-01-01T00:01:07.000Z", "conditions": []
    }}));
    let mut value = serde_json::to_value(&lock).unwrap();
    merge(&mut value, &extra);
    lock = serde_json::from_value(value).unwrap();
    lock
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
        contender: Ok(Contender::Identity("a".into())),
        trouble: None,
        place: Place::First,
        pause: None,
        may_hand_over: true,
        now: NOW,
        api_now: WALL,
    }
}

/// A hold that this replica has observed for ten seconds, and its end for one.
fn held(verdict: Verdict, hold: Option<Hold>) -> HoldInput {
    let ago = |seconds| NOW.saturating_sub(Duration::from_secs(seconds));
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
    let mut ending = json!({"status": {"ending":
        {"since": "2026-01-01T00:00:59.000Z", "reason": "Suspended", "until": "2026-01-01T00:01:07.000Z"}}});
    merge(&mut ending, &extra);
    held_lock(ending)
}

fn runs_out() -> Verdict {
    Verdict::LetExpire(End::Suspended)
}

/// The place behind the holder "b (x)".
fn behind(position: usize) -> Place {
    Place::Queued { position, message: HeldMessage::Behind { holder: "b (x)".into(), position } }
}

fn held_reason(step: &Step) -> String {
    let (Step::Rest(rest) | Step::Keep(rest)) = step else { panic!("not a rest: {step:?}") };
    rest.status.conditions.iter().find(|c| c.type_ == "Held").unwrap().reason.clone()
}
