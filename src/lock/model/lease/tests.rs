use serde_json::{Value, json};

use super::*;
use crate::api::test_util::{self, condition, merged, parsed};

const WALL: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

fn at(seconds: u64) -> Boottime {
    Boottime::new(Duration::from_secs(seconds))
}

fn lock(status: Value) -> DistributedLock {
    let election = json!({"selector": {"matchLabels": {"app": "a"}}, "lease": {"name": "ctl"}});
    test_util::lock(json!({"ttl": "30s", "election": election}), status)
}

fn held(token: i64) -> DistributedLock {
    let holder = json!({"identity": "a-0", "podName": "a-0", "podUID": "u-0"});
    lock(json!({"transitions": 1, "fencingToken": token, "holder": holder}))
}

fn free() -> DistributedLock {
    lock(json!({"transitions": 1}))
}

/// A lock after the hold with token 6, which ended at this time.
fn with_history(mut lock: DistributedLock, to: &str) -> DistributedLock {
    let past = json!({"identity": "a-1", "fencingToken": 6, "to": to, "reason": "HolderGone"});
    lock.status.as_mut().unwrap().history = vec![parsed(past)];
    lock
}

/// The end of the hold with token 6.
const ENDED: &str = "2026-01-01T00:01:00Z";

fn waiting(reason: &str) -> DistributedLock {
    let held = merged(condition("Held", "False", reason), json!({"message": "a client in west holds the key"}));
    lock(json!({"transitions": 1, "conditions": [held]}))
}

fn lease(holder: &str, annotations: Value) -> Lease {
    parsed(json!({
        "metadata": {"name": "ctl", "namespace": "ns", "resourceVersion": "5", "annotations": annotations,
            "labels": {LEASE_LABEL: "true"}},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "renewTime": "2026-01-01T00:00:59.000000Z", "acquireTime": "2026-01-01T00:00:09.000000Z"}}))
}

/// A Lease that the operator wrote in the hold with this token.
fn ours(holder: &str, token: Option<i64>) -> Lease {
    lease(holder, token.map_or(json!({}), |token| json!({LEASE_TOKEN_ANNOTATION: token.to_string()})))
}

/// The heartbeat of a Lease that was read for the first time after 100 seconds.
fn first_read(lease: &Lease) -> Heartbeat {
    let mut heartbeat = Heartbeat::new(at(100));
    heartbeat.observe(lease.resource_version(), at(100));
    heartbeat
}

/// The decision on a Lease that has not changed for this number of seconds.
fn after(lock: &DistributedLock, lease: &Lease, seconds: u64) -> Change {
    decide(lock, Some((lease, &first_read(lease))), (at(100 + seconds), WALL))
}

/// Holder, duration, transitions and token of a written Lease.
fn written(change: Change) -> (String, i32, i32, Option<String>) {
    let Change::Write(lease) = change else { panic!("not written: {change:?}") };
    let spec = lease.spec.clone().unwrap();
    let token = lease.annotations().get(LEASE_TOKEN_ANNOTATION).cloned();
    assert_eq!(lease.labels().get(LEASE_LABEL).map(String::as_str), Some("true"));
    (spec.holder_identity.unwrap(), spec.lease_duration_seconds.unwrap(), spec.lease_transitions.unwrap(), token)
}

#[test]
fn a_lease_of_no_hold_or_of_an_earlier_one_is_emptied_at_once() {
    let made = decide(&held(7), None, (at(100), WALL));
    assert_eq!(written(made), (String::new(), 1, 0, Some("7".into())), "it did not exist");
    let earlier = ours("old", Some(6));
    let change = after(&with_history(held(7), ENDED), &earlier, 0);
    let Change::Write(lease) = &change else { panic!("{change:?}") };
    assert_eq!(lease.metadata.resource_version.as_deref(), Some("5"), "a candidate's write in between is a conflict");
    assert_eq!(written(change), (String::new(), 1, 3, Some("7".into())));
    let free = with_history(free(), ENDED);
    assert_eq!(written(after(&free, &earlier, 0)), (String::new(), 1, 3, None));
    assert_eq!(after(&free, &ours("", None), 0), Change::Leave);
}

#[test]
fn a_holder_of_the_present_hold_is_left_alone() {
    assert_eq!(after(&held(7), &ours("a-0_1", Some(7)), 1_000), Change::Leave);
    assert_eq!(after(&held(7), &ours("", Some(7)), 1_000), Change::Leave, "the pod has not written yet");
    let tampered = lock(json!({"transitions": 1, "holder": {"identity": "a-0"}}));
    assert_eq!(after(&tampered, &ours("a-0_1", Some(6)), 0), Change::Leave, "a hold without a token changes nothing");
}

#[test]
fn a_name_that_the_policy_did_not_admit_keeps_the_lease() {
    let waits = |lock: &DistributedLock, token: Option<i64>| {
        let change = after(lock, &ours("b_1", token), 0);
        assert_eq!(change, Change::Wait(Duration::from_secs(15)), "{token:?}");
        assert_eq!(written(after(lock, &ours("b_1", token), 15)).0, "");
    };
    // It was written before the lock had the label, so the operator had not opened the Lease.
    waits(&held(7), None);
    waits(&free(), None);
    // The lock was deleted and created again.
    waits(&free(), Some(6));
    waits(&held(7), Some(6));
    // The gate was off. The name was renewed after the end of the hold for which the operator had opened the Lease.
    waits(&with_history(free(), "2026-01-01T00:00:58Z"), Some(6));
}

#[test]
fn the_policy_concerns_a_lease_before_anything_else() {
    let mut earlier = lease("old", json!({}));
    earlier.metadata.labels = None;
    let Change::Label(labelled) = after(&held(7), &earlier, 15) else { panic!("not labelled") };
    assert_eq!(labelled.labels().get(LEASE_LABEL).map(String::as_str), Some("true"));
    assert_eq!(labelled.spec, earlier.spec, "its holder can lead for its duration");
    let mut opened = ours("", Some(7));
    opened.metadata.labels = None;
    assert_eq!(written(after(&held(7), &opened, 0)).3, Some("7".into()));
}

/// The change that closes a Lease that has not changed for this number of seconds.
///
/// The container ended this number of seconds after the present time.
fn closed(lease: &Lease, ended: i64, seconds: u64) -> Change {
    let since = UnixMillis(WALL.0 + ended * 1_000);
    close(&held(7), Some((lease, &first_read(lease))), since, (at(100 + seconds), WALL))
}

#[test]
fn a_lease_is_closed_before_its_lock_is_freed() {
    let (renewed, acquired) = (-1, -51);
    let pod_name = ours("a-0", Some(7));
    let ended_later = written(closed(&pod_name, renewed + 1, 0));
    assert_eq!(ended_later, (String::new(), 1, 3, None), "the container ended after its last renewal");
    assert_eq!(closed(&pod_name, renewed, 0), Change::Wait(Duration::from_secs(15)), "the next container has its name");
    assert_eq!(written(closed(&pod_name, renewed, 15)).0, "", "no process leads for longer");
    let unique = ours("a-0_7f3a0b1c-5d4e-4f60-8a7b-9c0d1e2f3a4b", Some(7));
    assert_eq!(written(closed(&unique, renewed, 0)).0, "", "no other process has this name");
    assert!(matches!(closed(&unique, acquired, 0), Change::Wait(_)), "a process that began after the end");
    assert!(matches!(closed(&lease("a-0", json!({})), 0, 0), Change::Wait(_)), "the policy did not admit it");
    assert_eq!(closed(&ours("", None), 0, 0), Change::Leave);
    assert_eq!(written(closed(&ours("", Some(7)), 0, 0)), (String::new(), 1, 3, None), "its pod could write its name");
    assert_eq!(written(closed(&ours("elsewhere: x", None), acquired, 0)).0, "");
    let missing = close(&held(7), None, WALL, (at(100), WALL));
    assert_eq!(written(missing), (String::new(), 1, 0, None));
}

#[test]
fn the_uid_of_the_pod_is_no_name_of_one_process() {
    let mut lock = held(7);
    let uid = "7f3a0b1c-5d4e-4f60-8a7b-9c0d1e2f3a4b";
    let name = ours(&format!("a-0_{uid}"), Some(7));
    assert!(!is_of_successor(&lock, &name, UnixMillis(WALL.0 - 1_000)));
    lock.status.as_mut().unwrap().holder.as_mut().unwrap().pod_uid = Some(uid.into());
    assert!(is_of_successor(&lock, &name, UnixMillis(WALL.0 - 1_000)));
}

#[test]
fn a_holder_without_admission_keeps_the_lease_for_its_duration() {
    let stranger = lease("old", json!({}));
    assert_eq!(after(&held(7), &stranger, 0), Change::Wait(Duration::from_secs(15)));
    assert_eq!(after(&held(7), &stranger, 14), Change::Wait(Duration::from_secs(1)));
    assert_eq!(written(after(&held(7), &stranger, 15)).0, "");
    let mut renewed = Heartbeat::new(at(0));
    renewed.observe(Some("4".into()), at(0));
    renewed.observe(stranger.resource_version(), at(100));
    let change = decide(&held(7), Some((&stranger, &renewed)), (at(101), WALL));
    assert_eq!(change, Change::Wait(Duration::from_secs(14)), "a renewal restarts the wait");
}

#[test]
fn a_holder_elsewhere_is_named_again_before_its_lease_ends() {
    let elsewhere = waiting("HeldByOther");
    let (name, duration, transitions, token) = written(after(&elsewhere, &ours("", Some(6)), 0));
    assert_eq!(
        (name.as_str(), duration, transitions, token),
        ("elsewhere: a client in west holds the key", 60, 4, None)
    );
    let mut named = ours(&name, None);
    assert_eq!(after(&elsewhere, &named, 0), Change::Leave);
    named.spec.as_mut().unwrap().renew_time = Some(MicroTime(Timestamp::from_second(1_767_223_800).unwrap()));
    assert_eq!(written(after(&elsewhere, &named, 0)).2, 3, "the same holder is no transition");
    assert_eq!(written(after(&held(7), &named, 0)), (String::new(), 1, 3, Some("7".into())));
    assert_eq!(written(after(&waiting("Queued"), &ours("", None), 0)).1, 60);
    assert_eq!(after(&waiting("NoCandidate"), &ours("", None), 0), Change::Leave);
}

#[test]
fn a_leader_that_does_not_renew_the_lease_loses_the_lock() {
    let idle = |lease: &Lease, seconds: u64| super::idle(&held(7), lease, &first_read(lease), at(100 + seconds));
    assert_eq!(idle(&ours("a-0_1", Some(7)), 14), None);
    let (token, end) = idle(&ours("a-0_1", Some(7)), 15).unwrap();
    let message = end.to_string();
    assert_eq!(token, 7, "only the hold with this token ends");
    assert!(message.contains("did not renew Lease ctl for 15s"), "{message}");
    assert_eq!(idle(&ours("", Some(7)), 29), None, "it has one ttl to write its name");
    assert!(idle(&ours("", Some(7)), 30).is_some());
    assert_eq!(idle(&ours("old", Some(6)), 1_000).unwrap().0, 6, "the Lease is not open for the present hold");
    assert_eq!(idle(&ours("old", None), 1_000), None);
}

#[test]
fn a_lease_longer_than_half_the_ttl_is_reported() {
    let mut long = ours("a-0_1", Some(7));
    assert_eq!(misfit(&held(7), &long), None, "15 of 30 seconds");
    long.spec.as_mut().unwrap().lease_duration_seconds = Some(20);
    let message = misfit(&held(7), &long).unwrap().to_string();
    assert!(message.contains("at most 15s") && message.contains("at least 40s"), "{message}");
    assert_eq!(misfit(&held(7), &ours("", Some(7))), None);
}

/// A leader with client-go's loop, in milliseconds. Requests take up to half of its deadline each.
struct Leader {
    deadline: u64,
    retry: u64,
    duration: u64,
    /// How far its wall clock is behind.
    behind: u64,
}

impl Leader {
    /// When it stops leading, if it begins at `start` and the lock is valid until `valid_until`.
    ///
    /// `slow` returns the duration of each request.
    fn believes_until(&self, start: u64, valid_until: u64, bound: bool, slow: &mut impl FnMut() -> u64) -> Option<u64> {
        let admitted = |began: u64, arrives: u64| match bound {
            true => began.saturating_sub(self.behind) + self.duration + 1_000 <= valid_until,
            // Without the bound the policy admits the holder until the operator clears the status after the validity.
            false => arrives < valid_until,
        };
        // As a candidate it reads and writes without a deadline.
        let mut now = start + slow();
        let arrives = now;
        now += slow();
        if !admitted(start, arrives) {
            return None;
        }
        loop {
            // A renewal makes its first attempt immediately, and another one after each `retry`, until the deadline.
            let ends = now + self.deadline;
            let mut next = now;
            let renewed = loop {
                if next >= ends {
                    break None;
                }
                let (began, arrives) = (next, next);
                let answered = next + slow();
                if answered <= ends && admitted(began, arrives) {
                    break Some(answered);
                }
                next = answered.max(next + self.retry);
            };
            match renewed {
                Some(answered) => now = answered + self.retry,
                None => return Some(ends),
            }
        }
    }
}

#[test]
fn a_leader_outlives_its_validity_only_without_the_policy() {
    const VALID_UNTIL: u64 = 60_000;
    let mut beyond = [0; 2];
    for seed in 0..4_000_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let leader = Leader { deadline: 6_000, retry: 2_000, duration: 15_000, behind: random(1_001) };
        let start = random(50_000);
        let is_slow = random(3) == 0;
        let mut slow = || random(if is_slow { 3_001 } else { 101 });
        for bound in [true, false] {
            let until = leader.believes_until(start, VALID_UNTIL, bound, &mut slow);
            beyond[usize::from(bound)] += i32::from(until.is_some_and(|until| until > VALID_UNTIL));
        }
    }
    assert_eq!(beyond[1], 0, "no leader outlives its validity with the bound");
    assert!(beyond[0] > 1_000, "without the bound, {} of 4,000 leaders outlive their validity", beyond[0]);
}
