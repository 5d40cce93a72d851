//! The status of external masters, besides their records.

use super::messages::Unfit;
use crate::api::{MemberStatus, MemoryStatus};
use crate::redis_member::Observation;

/// Why the process of this external member must not vote, if there is a reason.
///
/// It could lose data while it runs. Or it is also the process of another member, and would have two votes.
pub fn unfit(members: &[MemberStatus], name: &str, observation: Option<&Observation>) -> Option<String> {
    let observation = observation?;
    let twin = || twin_of(members, name, observation.run_id.as_str());
    let twin = || twin().map(|twin| Unfit::Twin { twin: twin.to_owned() }.to_string());
    observation.unfit.as_ref().map(ToString::to_string).or_else(twin)
}

/// The member for which this process already votes.
///
/// That member has this process in its record. It is admitted, or comes before this member in the list.
fn twin_of<'a>(members: &'a [MemberStatus], name: &str, run_id: &str) -> Option<&'a str> {
    let position = members.iter().position(|member| member.name == name)?;
    let is_it = |member: &MemberStatus| member.run_id.as_deref() == Some(run_id);
    let (before, after) = members.split_at(position);
    let admitted = |member: &&MemberStatus| is_it(member) && member.admitted_at.is_some();
    if admitted(&&members[position]) {
        return None;
    }
    let twin = before.iter().find(|member| is_it(member)).or_else(|| after.iter().skip(1).find(admitted));
    twin.map(|member| member.name.as_str())
}

/// Evidence that an external master has kept its data since its admission: replication ID, record time.
pub fn memory(observation: &Observation, record_since: Option<i64>) -> MemoryStatus {
    let replication_id = Some(observation.replication_id.clone()).filter(|id| !id.is_empty());
    MemoryStatus { replication_id, record_since }
}

/// Whether the process has lost data since `recorded`.
///
/// It was a replica, or its record of operators disappeared. All other data has possibly disappeared as well.
pub fn has_lost_data(recorded: &MemoryStatus, now: &MemoryStatus) -> bool {
    let ids = recorded.replication_id.as_ref().zip(now.replication_id.as_ref());
    let times = recorded.record_since.zip(now.record_since);
    ids.is_some_and(|(recorded, now)| recorded != now)
        || times.is_some_and(|(recorded, now)| now > 0 && recorded != now)
}

/// The evidence to publish for a process that kept its data. The first value of each kind stays.
pub fn merged(recorded: Option<&MemoryStatus>, now: MemoryStatus) -> MemoryStatus {
    let Some(recorded) = recorded.cloned() else { return now };
    MemoryStatus {
        replication_id: recorded.replication_id.or(now.replication_id),
        record_since: recorded.record_since.or(now.record_since),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::redlock::ClockSample;
    use crate::time::{Boottime, UnixMicros};

    fn member(name: &str, run_id: &str, admitted: bool) -> MemberStatus {
        let at = admitted.then_some("2026-01-01T00:00:00.000Z");
        parsed(json!({"name": name, "runID": run_id, "admittedAt": at}))
    }

    #[test]
    fn a_process_votes_for_a_single_member() {
        let twin = |members: &[MemberStatus], name| twin_of(members, name, "x").map(str::to_owned);
        let both = [member("a", "x", false), member("b", "x", false), member("c", "y", true)];
        assert_eq!(twin(&both, "a"), None);
        assert_eq!(twin(&both, "b").as_deref(), Some("a"));
        let later = [member("a", "x", false), member("b", "x", true)];
        assert_eq!(twin(&later, "a").as_deref(), Some("b"));
        assert_eq!(twin(&later, "b"), None, "it has the vote");
    }

    #[test]
    fn a_master_that_was_a_replica_or_was_emptied_has_lost_data() {
        let memory = |id: &str, record_since| MemoryStatus {
            replication_id: (!id.is_empty()).then(|| id.to_owned()),
            record_since,
        };
        let recorded = memory("a", Some(100));
        for (now, forgotten) in [
            (memory("a", Some(100)), false),
            (memory("b", Some(100)), true),
            (memory("a", Some(200)), true),
            // The record had not been read yet.
            (memory("a", Some(0)), false),
            (memory("", None), false),
        ] {
            assert_eq!(has_lost_data(&recorded, &now), forgotten, "{now:?}");
            assert!(!has_lost_data(&MemoryStatus::default(), &now), "there is no earlier evidence");
        }
        // The record existed at the first observation, and is younger now.
        assert!(has_lost_data(&memory("a", Some(0)), &memory("a", Some(200))));
        assert_eq!(merged(Some(&memory("a", None)), memory("b", Some(7))), memory("a", Some(7)));
        assert_eq!(merged(None, recorded.clone()), recorded);
    }

    #[test]
    fn a_process_that_can_lose_data_while_it_runs_is_unfit() {
        let at = Boottime::new(std::time::Duration::ZERO);
        let fine = Observation {
            run_id: "x".into(),
            version: "7.2.0".into(),
            valkey_version: None,
            unfit: None,
            replication_id: "a".into(),
            open_users: vec![],
            epoch: None,
            counter: None,
            clock: ClockSample { time: UnixMicros(0), sent: at, received: at },
            is_full: false,
            keys: Default::default(),
        };
        let both = [member("a", "x", true), member("b", "x", false)];
        let text = |observation: &Observation| unfit(&both, "b", Some(observation)).unwrap();
        assert_eq!(unfit(&both, "a", Some(&fine)), None);
        assert!(text(&fine).contains("the same process as a"), "{}", text(&fine));
        let replica = Observation { unfit: Some(crate::redlock::Unfit::Replica), ..fine };
        assert_eq!(text(&replica), crate::redlock::Unfit::Replica.to_string());
    }
}
