//! Pure: whether a member can be restarted now, and the progress of its restart.

use kube::ResourceExt as _;

use crate::cluster::objects::{QuorumMember, QuorumObject};
use crate::cluster::{ClusterArgs, Problem};
use crate::output::OutputArgs;
use crate::output::format::{and, span};
use crate::show::explain::member_text;
use crate::show::quorum::fence;
use redlock_api::conditions::{CommonReason, QuorumCondition, find_condition};
use redlock_api::{GoDuration, MilliTime};

/// Which member.
#[derive(Debug, clap::Args)]
pub struct RestartArgs {
    /// The member, as `<name>` or `<namespace>/<name>`, for example main-0. See: redlock quorum status.
    pub(super) member: String,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// How long to wait until the member votes again. Default: the quorum's maxTTL and five minutes.
    #[arg(long, value_name = "DURATION")]
    pub(super) timeout: Option<GoDuration>,
}

/// The pod and the process that are restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The pod.
    pub pod: String,
    /// UID of the pod. A later pod with the same name must not be evicted.
    pub pod_uid: String,
    /// The process that ends.
    pub run_id: Option<String>,
}

/// Checks whether a member of a quorum can be restarted now.
///
/// All other members must vote. If one does not, a restart costs the majority, or the last reserve.
pub(super) fn plan(quorum: &QuorumObject, name: &str, now: MilliTime) -> Result<Plan, Problem> {
    let (full_name, status) = (quorum.full_name(), &quorum.status);
    let refuse = |what: String, next: &str| Err(Problem::new(what, next));
    let Some(member) = status.members.iter().find(|member| member.name == name) else {
        let what = format!("RedisQuorum {full_name} has no member {name}");
        return refuse(what, "See its members: redlock quorum status");
    };
    if member.external.is_some() {
        return refuse(format!("the operator does not run member {name}"), "Ask who runs this Redis to restart it.");
    }
    if status.voters.len() < 2 {
        let what = format!("{name} is the only member: all locks would be lost for maxTTL");
        return refuse(what, "Set spec.members: 3, and restart it then.");
    }
    let is_changing = !status.former_voters.is_empty() || !status.voters.iter().any(|voter| voter == name);
    if is_changing || status.observed_generation < quorum.metadata.generation {
        return refuse(format!("the members of {full_name} are changing"), "Wait until the change has ended.");
    }
    let is_out = |other: &&QuorumMember| other.name != name && quorum.counts(&other.name) && !other.votes();
    let out: Vec<_> = status.members.iter().filter(is_out).collect();
    if !out.is_empty() {
        let states: Vec<_> = out.iter().map(|member| member_text(member, now)).collect();
        let names: Vec<_> = out.iter().map(|member| member.name.clone()).collect();
        let what = format!("{} of {full_name} does not vote: {}", and(&names), states.join(" "));
        return refuse(what, "Wait until all other members vote.");
    }
    let ready = find_condition(&status.conditions, QuorumCondition::Ready);
    if ready.is_some_and(|ready| ready.reason == CommonReason::Updating.as_str()) {
        let what = format!("the operator replaces members of {full_name}, one by one");
        return refuse(what, "Wait until it has ended.");
    }
    if let Some(left) = fence(member, now) {
        let what = format!("{name} is fenced and votes again in {}: a restart would begin its wait again", span(left));
        return refuse(what, "Wait.");
    }
    match (&member.pod_name, &member.pod_uid) {
        (Some(pod), Some(uid)) => Ok(Plan { pod: pod.clone(), pod_uid: uid.clone(), run_id: member.run_id.clone() }),
        _ => {
            let next = format!("See why: redlock quorum status {}", quorum.name_any());
            refuse(format!("{name} has no pod"), &next)
        }
    }
}

/// The progress of a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The process from before the restart still runs.
    Stopping,
    /// The next process does not answer yet.
    Starting,
    /// The member is fenced for this number of milliseconds, if the time is known.
    Fenced(Option<i64>),
    /// The member votes again.
    Votes,
}

/// The progress of the restart of a member.
pub(super) fn progress(quorum: &QuorumObject, name: &str, plan: &Plan, now: MilliTime) -> Progress {
    let Some(member) = quorum.status.members.iter().find(|member| member.name == name) else {
        return Progress::Starting;
    };
    let is_of_before = member.pod_uid.as_ref() == Some(&plan.pod_uid) && member.run_id == plan.run_id;
    match member.state.as_str() {
        _ if is_of_before => Progress::Stopping,
        "Admitted" => Progress::Votes,
        "Fenced" => Progress::Fenced(fence(member, now)),
        _ => Progress::Starting,
    }
}

impl Progress {
    /// The progress in words. The text has no countdown, so that it changes only with the state.
    #[must_use]
    pub(super) const fn text(&self) -> &'static str {
        match self {
            Self::Stopping => "its process ends",
            Self::Starting => "its next process starts",
            Self::Fenced(_) => "it is fenced until every lock that it can have forgotten has expired",
            Self::Votes => "it votes again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{now, quorum};

    fn refused(quorum: &QuorumObject, name: &str) -> String {
        plan(quorum, name, now()).unwrap_err().to_string()
    }

    #[test]
    fn a_member_is_restarted_only_while_all_others_vote() {
        let all = quorum(["Admitted"; 3]);
        let planned = plan(&all, "main-0", now()).unwrap();
        assert_eq!((planned.pod.as_str(), planned.pod_uid.as_str()), ("main-0-0", "pod-0"));
        let one_out = quorum(["Admitted", "Admitted", "Fenced"]);
        assert!(refused(&one_out, "main-0").contains("main-2 of redlock-system/main does not vote"));
        assert!(refused(&one_out, "main-2").contains("votes again in 12s"));
        // An unreachable member can be restarted, because it has no vote to lose.
        assert!(plan(&quorum(["Admitted", "Admitted", "Unreachable"]), "main-2", now()).is_ok());
    }

    #[test]
    fn a_member_whose_restart_would_cost_more_is_left_alone() {
        type Change = fn(&mut QuorumObject);
        let cases: [(Change, &str); 5] = [
            (|quorum| quorum.status.former_voters = vec!["main-0".into()], "are changing"),
            (|quorum| quorum.metadata.generation = Some(2), "are changing"),
            (|quorum| quorum.status.voters = vec!["main-0".into()], "the only member"),
            (|quorum| quorum.status.conditions[0].reason = "Updating".into(), "one by one"),
            (|quorum| quorum.status.members[0].external = Some(serde::de::IgnoredAny), "does not run member main-0"),
        ];
        for (change, expected) in cases {
            let mut quorum = quorum(["Admitted"; 3]);
            change(&mut quorum);
            let text = refused(&quorum, "main-0");
            assert!(text.contains(expected), "{text}, not {expected}");
        }
        assert!(refused(&quorum(["Admitted"; 3]), "main-7").contains("has no member main-7"));
    }

    #[test]
    fn a_restart_has_ended_when_another_process_votes() {
        let before = quorum(["Admitted"; 3]);
        let plan = plan(&before, "main-2", now()).unwrap();
        let of = |quorum: &QuorumObject| progress(quorum, "main-2", &plan, now());
        assert_eq!(of(&before), Progress::Stopping);
        let mut next = quorum(["Admitted", "Admitted", "Fenced"]);
        assert_eq!(of(&next), Progress::Stopping, "closed before its pod goes");
        next.status.members[2].pod_uid = Some("another".into());
        assert_eq!(of(&next), Progress::Fenced(Some(12_000)));
        next.status.members[2].state = "Starting".into();
        assert_eq!(of(&next), Progress::Starting);
        next.status.members[2].state = "Admitted".into();
        assert_eq!(of(&next), Progress::Votes);
    }
}
