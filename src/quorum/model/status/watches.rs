//! The conditions ClockHealthy (rule 9) and TTLWithinBound (rule 10).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::messages::{MemberWaits, QuorumMessage};
use crate::api::{FenceReason, GoDuration, MemberStatus, RedisQuorumStatus};
use crate::fence::clock::Step;
use crate::redis_member::Keys;

/// The state of the members' clocks at this replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockReport {
    /// The number of members whose clock is read.
    pub read: usize,
    /// Members whose clock was stepped, until another process replaces them.
    pub stepped: Vec<(String, Step)>,
    /// All members showed the same step less than a window ago. Most likely it was this replica's clock.
    pub together: Option<Step>,
}

/// The input of the conditions of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The clocks.
    pub clocks: ClockReport,
    /// The most keys of a member. `None` until a member of the operator answers.
    pub keys: Option<Keys>,
    /// The bound: the largest maxTTL in force.
    pub bound: Duration,
    /// Whether all members are external, so that their keys do not matter.
    pub all_external: bool,
}

/// Sets both conditions.
pub fn watch_conditions(status: &mut RedisQuorumStatus, watched: &Watched, at: (Option<i64>, Timestamp)) {
    for message in [clock_healthy(status, &watched.clocks), within_bound(watched)] {
        message.condition().set(status, at);
    }
}

fn clock_healthy(status: &RedisQuorumStatus, clocks: &ClockReport) -> QuorumMessage {
    let size = |name: &str| clocks.stepped.iter().find(|(stepped, _)| stepped == name).map(|(_, step)| step);
    // The members that an earlier leader fenced are known from the status only.
    let is_out = |member: &&MemberStatus| member.reason == Some(FenceReason::ClockJump) || size(&member.name).is_some();
    let named = status.members.iter().filter(is_out);
    let texts: Vec<String> = named
        .map(|MemberStatus { name: member, pod_name, .. }| {
            let by = size(member).map_or_else(String::new, |step| format!(" by {step}"));
            let member = member.clone();
            // The operator runs no pod for it, and cannot end it.
            let waits = match pod_name {
                Some(_) => MemberWaits::ClockStepped { member, by },
                None => MemberWaits::ExternalClockStepped { member, by },
            };
            waits.to_string()
        })
        .collect();
    match clocks.together {
        _ if !texts.is_empty() => QuorumMessage::ClockJump { clocks: texts.join("; ") },
        Some(step) => QuorumMessage::ClocksTogether { step },
        None if clocks.read == 0 => QuorumMessage::NoClock,
        None => QuorumMessage::ClocksHealthy,
    }
}

fn within_bound(watched: &Watched) -> QuorumMessage {
    let bound = GoDuration::from(watched.bound);
    match watched.keys {
        None if watched.all_external => QuorumMessage::NotOurKeys,
        None => QuorumMessage::KeysUnknown,
        Some(Keys { endless, .. }) if endless > 0 => QuorumMessage::EndlessKeys { bound },
        Some(Keys { average_ttl, .. }) if average_ttl > watched.bound => QuorumMessage::KeysBeyondBound { bound },
        Some(_) => QuorumMessage::KeysWithinBound { bound },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conditions::{QuorumCondition, find_condition};
    use crate::api::{MemberState, MemberStatus};

    fn condition(watched: &Watched, type_: QuorumCondition, reason: Option<FenceReason>) -> (String, String, String) {
        let member = MemberStatus {
            name: "main-1".into(),
            state: if reason.is_some() { MemberState::Fenced } else { MemberState::Admitted },
            reason,
            ..MemberStatus::default()
        };
        let mut status = RedisQuorumStatus { members: vec![member], ..RedisQuorumStatus::default() };
        watch_conditions(&mut status, watched, (Some(1), Timestamp::UNIX_EPOCH));
        let found = find_condition(&status.conditions, type_).unwrap().clone();
        (found.status, found.reason, found.message)
    }

    fn step(micros: i64) -> Step {
        use crate::fence::clock::judge;
        use crate::redlock::{ClockSample, Drift};
        use crate::time::{Boottime, UnixMicros};
        let at = |second, ahead| {
            let sent = Boottime::new(Duration::from_secs(second));
            let time = UnixMicros(i64::try_from(second).unwrap() * 1_000_000 + ahead);
            ClockSample { time, sent, received: sent }
        };
        judge(&at(1, 0), &at(2, micros), Drift::default()).unwrap()
    }

    #[test]
    fn a_stepped_clock_is_named_with_its_step() {
        let clocks = |clocks, reason| {
            condition(&Watched { clocks, ..Watched::default() }, QuorumCondition::ClockHealthy, reason)
        };
        let calm = ClockReport { read: 3, ..ClockReport::default() };
        assert_eq!(clocks(calm.clone(), None).0, "True");
        assert_eq!(clocks(ClockReport::default(), None).0, "Unknown");
        let stepped = ClockReport { stepped: vec![("main-1".into(), step(-61_500_000))], ..calm.clone() };
        let (status, reason, message) = clocks(stepped, None);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "ClockJump"));
        assert!(message.contains("main-1") && message.contains("-61.500 s"), "{message}");
        // A later leader reads the step from the status.
        let (status, _, message) = clocks(calm.clone(), Some(FenceReason::ClockJump));
        assert!(status == "False" && message.contains("main-1"), "{message}");
        let (status, _, message) = clocks(ClockReport { together: Some(step(5_000_000)), ..calm }, None);
        assert!(status == "Unknown" && message.contains("+5.000 s"), "{message}");
    }

    #[test]
    fn keys_without_an_end_and_a_long_average_are_reported() {
        let with = |keys| {
            let watched = Watched { keys, bound: Duration::from_secs(30), ..Watched::default() };
            condition(&watched, QuorumCondition::TTLWithinBound, None)
        };
        assert_eq!(with(None).0, "Unknown");
        let others = Watched { all_external: true, ..Watched::default() };
        assert!(condition(&others, QuorumCondition::TTLWithinBound, None).2.contains("All members are external"));
        let average = |millis| Keys { endless: 0, average_ttl: Duration::from_millis(millis) };
        assert_eq!(with(Some(average(30_000))).0, "True");
        let (status, reason, message) = with(Some(average(30_001)));
        assert_eq!((status.as_str(), reason.as_str()), ("False", "KeysBeyondMaxTTL"));
        assert!(message.contains("on average") && message.contains("30s"), "{message}");
        // Another member has a key without a time to live.
        let (status, reason, message) = with(Some(average(1).most(Keys { endless: 1, ..Keys::default() })));
        assert_eq!((status.as_str(), reason.as_str()), ("False", "KeysBeyondMaxTTL"));
        assert!(message.contains("no time to live"), "{message}");
    }
}
