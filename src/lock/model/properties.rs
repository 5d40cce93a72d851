//! Any readable DistributedLock is judged without a panic, and no message has a value of another client.

use std::time::Duration;

use proptest::prelude::*;

use super::decide::{HoldInput, LockInput, Step, WaitReason, decide};
use super::end::{Doubt, Phase};
use super::held_message::HeldMessage;
use super::hold::{HeldFor, ObservedSince};
use super::hold_record::HoldRecord;
use super::instance::Instance;
use super::job::{JobEvidence, JobPods, JobState};
use super::status::Draft;
use super::verdict::{self, Evidence, Liveness, Verdict};
use super::{foreign, queue};
use crate::api::conditions::find_condition;
use crate::api::{DistributedLock, DistributedLockStatus, LockHolder};
use crate::redlock::{KeyState, LockKey, Occupant, StoredValue};
use crate::runtime::cache::Guarded;
use crate::time::{Boottime, ClockOffset, UnixMicros, UnixMillis};
use redlock_api::test_util::{accepted, config, object};

fn liveness() -> impl Strategy<Value = Liveness> {
    prop_oneof![
        Just(Liveness::Unbound),
        Just(Liveness::Owned(Instance::Running)),
        Just(Liveness::Owned(Instance::Terminated)),
        Just(Liveness::Bound(Instance::Terminated)),
        Just(Liveness::Bound(Instance::Doubt(Doubt::NodeSilent))),
        (any::<bool>(), any::<bool>(), 0_u64..u64::MAX).prop_map(|(complete, running, grace)| {
            let state = if running { JobState::Stopped } else { JobState::Finished { complete } };
            let doubt = complete.then_some(Doubt::NodeSilent);
            let pods = JobPods { running, doubt, ..JobPods::default() };
            Liveness::Job(JobEvidence { state, is_at_rest: complete, pods, grace: Duration::from_secs(grace) })
        }),
    ]
}

fn key_state() -> impl Strategy<Value = KeyState> {
    let remaining = || prop::option::of(any::<u64>().prop_map(Duration::from_millis));
    prop_oneof![
        Just(KeyState::Missing),
        ("secret-[a-z]{0,9}|[0-9]{10}(\\.[0-9]{0,3})?|[ -~]{0,20}", remaining())
            .prop_map(|(value, remaining)| KeyState::String { value: StoredValue::new(value), remaining }),
        ("[a-z]{1,9}", remaining()).prop_map(|(name, remaining)| KeyState::OtherType { name, remaining }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_lock_is_judged(
        value in prop_oneof![object("DistributedLock"), accepted("DistributedLock", 0.5)],
        other in object("DistributedLock"),
        liveness in liveness(),
        wall in prop_oneof![1_767_225_600_000_i64..1_767_225_700_000, any::<i64>()],
        paused: bool,
        clock: bool,
    ) {
        let Ok(lock) = serde_json::from_value::<DistributedLock>(value) else { return Ok(()) };
        let others: Vec<DistributedLock> = serde_json::from_value(other).into_iter().collect();
        let peers: Vec<_> = others.iter().chain([&lock]).collect();
        let _both = (queue::free_slots(&lock, &peers), queue::shape_conflict(&lock, &peers, others.first()));
        let place = queue::place(&lock, &peers, others.len());
        let (now, wall) = (Boottime::new(Duration::from_secs(9)), UnixMillis(wall));
        let reading = UnixMicros(wall.0.saturating_mul(1_000));
        let clock = clock.then(|| ClockOffset::of_reading(reading, Duration::from_secs(1), now, now));
        let held_for = HeldFor::of(&lock, clock, now);
        let evidence = Evidence { liveness, namespace_ends: paused, cordoned_node: None, api_now: wall, held_for };
        let verdict = verdict::judge(&lock, &evidence);
        let is_held = lock.holder().is_some();
        let held = is_held.then(|| HoldInput {
            verdict: verdict.clone(),
            hold: None,
            record: HoldRecord::of(&lock),
            quorum_exists: true,
            rejoin_delay: None,
            clock,
            observed: ObservedSince { held: now, ending: Some(now) },
            can_delete: true,
            sealed_until: None,
        });
        let pause = WaitReason { message: HeldMessage::NoClock, retry_after: Some(Duration::from_secs(1)) };
        let input = LockInput {
            lock: &lock,
            held,
            refusal: None,
            contender: Ok(LockHolder { identity: "a".into(), ..LockHolder::default() }),
            trouble: None,
            place,
            pause: paused.then_some(pause),
            can_hand_over: true,
            now,
            api_now: wall,
        };
        let step = decide(&input);
        // A held lock is never acquired again, and a hold without a validity is never kept.
        if is_held {
            prop_assert!(!matches!(step, Step::Acquire(_) | Step::Keep(_) | Step::Prepare), "{:?}", step);
        }
        if matches!(verdict, Verdict::LetExpire(_)) && is_held {
            prop_assert!(!matches!(step, Step::Advance(Phase::Freed(_))), "{:?}", step);
        }
    }

    #[test]
    fn the_status_of_an_unreadable_lock_can_be_read(value in object("DistributedLock"), wall: i64) {
        let Ok(unread) = serde_json::from_value::<Guarded<DistributedLock>>(value) else { return Ok(()) };
        let (was_read, lock) = (matches!(unread, Guarded::Read(_)), unread.object().unwrap());
        if was_read {
            return Ok(());
        }
        let status = serde_json::to_value(Draft::of(&lock, UnixMillis(wall)).finish()).unwrap();
        let status: DistributedLockStatus = serde_json::from_value(status).unwrap();
        let accepted = find_condition(&status.conditions, "Accepted").unwrap();
        prop_assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "Unreadable"));
    }

    #[test]
    fn any_foreign_key_is_described_without_its_value(state in key_state(), max: Option<u32>) {
        let max = max.map(|millis| Duration::from_millis(millis.into()));
        let occupant = Occupant { member: "q-0".into(), holder: state.clone() };
        let longest = occupant.holder.remaining();
        let text = foreign::message(&LockKey::new("ns/k"), &[occupant], longest, max).to_string();
        prop_assert!(text.contains("q-0: "));
        if let KeyState::String { value, .. } = state && value.expose().starts_with("secret-") {
            prop_assert!(!text.contains(value.expose()));
        }
    }
}
