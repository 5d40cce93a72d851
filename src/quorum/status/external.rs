//! What the status says of masters that others run, beside their records.

use crate::api::{MemberStatus, RedisQuorumStatus};
use crate::redis_member::Observation;

/// Why the process that is seen behind this external member must not vote, if so: it could forget while it runs, or it is another
/// member's process, too, and would have two votes.
#[must_use]
pub fn unfit(status: Option<&RedisQuorumStatus>, name: &str, observation: Option<&Observation>) -> Option<String> {
    let observation = observation?;
    unfit_process(observation).map(str::to_owned).or_else(|| {
        let members = status.map(|status| status.members.as_slice()).unwrap_or_default();
        let twin = twin_of(members, name, observation.run_id.as_str())?;
        Some(format!(
            "it is the same process as {twin}, which has its vote already: write the address of another master"
        ))
    })
}

fn unfit_process(observation: &Observation) -> Option<&'static str> {
    if !observation.is_master {
        return Some("it is a replica: write the address of a master");
    }
    if observation.mode == "cluster" || observation.mode == "sentinel" {
        return Some("it is part of a Redis Cluster, or a sentinel: write the address of a master that stands alone");
    }
    let policy = observation.maxmemory_policy.as_str();
    (!policy.is_empty() && policy != "noeviction")
        .then_some("it may evict keys: set its maxmemory-policy to noeviction")
}

/// The member that this process votes for already: one that is recorded with it and admitted, or comes before this one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::ClockSample;
    use crate::time::{Boottime, UnixMicros};

    fn member(name: &str, run_id: &str, admitted: bool) -> MemberStatus {
        let at = crate::api::MilliTime::from_millis(1_767_225_600_000);
        MemberStatus {
            name: name.into(),
            run_id: Some(run_id.into()),
            admitted_at: at.filter(|_| admitted),
            ..MemberStatus::default()
        }
    }

    #[test]
    fn one_process_votes_for_one_member() {
        let twin = |members: &[MemberStatus], name| twin_of(members, name, "x").map(str::to_owned);
        let both = [member("a", "x", false), member("b", "x", false), member("c", "y", true)];
        assert_eq!(twin(&both, "a"), None);
        assert_eq!(twin(&both, "b").as_deref(), Some("a"));
        let later = [member("a", "x", false), member("b", "x", true)];
        assert_eq!(twin(&later, "a").as_deref(), Some("b"));
        assert_eq!(twin(&later, "b"), None, "it has the vote");
    }

    #[test]
    fn a_process_that_may_forget_while_it_runs_is_unfit() {
        let at = Boottime::new(std::time::Duration::ZERO);
        let fine = Observation {
            run_id: "x".into(),
            version: "7.2.0".into(),
            is_master: true,
            append_only: true,
            mode: "standalone".into(),
            maxmemory_policy: "noeviction".into(),
            open_users: vec![],
            epoch: None,
            counter: None,
            clock: ClockSample { time: UnixMicros(0), sent: at, received: at },
        };
        assert_eq!(unfit_process(&fine), None, "a file that it writes is no proof of memory, and none is asked for");
        for unfit in [
            Observation { is_master: false, ..fine.clone() },
            Observation { mode: "cluster".into(), ..fine.clone() },
            Observation { maxmemory_policy: "allkeys-lru".into(), ..fine },
        ] {
            assert!(unfit_process(&unfit).is_some(), "{unfit:?}");
        }
    }
}
