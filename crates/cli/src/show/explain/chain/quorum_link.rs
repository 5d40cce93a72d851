//! Pure: the link of the chain about the quorum, and about its members.

use super::{Link, State, trim};
use crate::cluster::objects::{QuorumMember, QuorumObject};
use crate::output::format::{and, count, moment};
use crate::show::advice;
use redlock_api::MilliTime;
use redlock_api::conditions::{QuorumCondition, find_condition, is_false};

/// The answer of the API server about the quorum.
#[derive(Clone, Debug)]
pub enum QuorumState {
    /// The RedisQuorum of the lock.
    Found(Box<QuorumObject>),
    /// The named RedisQuorum does not exist.
    Absent(String),
    /// This user cannot read the named RedisQuorum.
    Hidden(String),
    /// The lock names no quorum, and none or several are marked as the default.
    Defaults(Vec<String>),
    /// The lock names no quorum, and this user cannot list quorums.
    Unknown,
}

pub(super) fn quorum_link(answer: &QuorumState, now: MilliTime) -> Link {
    let unknown = |text: String| Link::new("quorum", State::Unknown, text);
    match answer {
        QuorumState::Found(quorum) => of_quorum(quorum, now),
        QuorumState::Absent(name) => Link {
            to_do: Some(format!("Create RedisQuorum {name}, or create the lock again with another quorumRef.")),
            ..Link::new("quorum", State::Stops, format!("RedisQuorum {name} does not exist."))
        },
        QuorumState::Hidden(name) => unknown(format!("You cannot read RedisQuorum {name}.")),
        QuorumState::Defaults(names) if names.is_empty() => Link {
            to_do: Some("Set defaultQuorum in the chart's values, or create the lock again with a quorumRef.".into()),
            ..Link::new("quorum", State::Stops, "The lock names no RedisQuorum, and none is marked as the default.")
        },
        QuorumState::Defaults(names) => unknown(format!(
            "The lock uses the default RedisQuorum of its operator. These are marked as a default: {}.",
            and(names)
        )),
        QuorumState::Unknown => unknown("The lock uses the default quorum, which you cannot list.".into()),
    }
}

/// Whether a majority of the quorum votes, and the reasons of the members that do not vote.
pub fn of_quorum(quorum: &QuorumObject, now: MilliTime) -> Link {
    let (name, status) = (quorum.full_name(), &quorum.status);
    let (voting, members, needed) = (quorum.voting(), status.voters.len(), quorum.needed());
    let ready = find_condition(&status.conditions, QuorumCondition::Ready);
    if members == 0 {
        let message =
            ready.map_or("the operator has not reconciled it".into(), |ready| trim(&ready.message).to_owned());
        let state = if ready.is_some() { State::Waits } else { State::Stops };
        let to_do = ready.map_or_else(
            || Some("Check that the operator runs: redlock doctor".into()),
            |ready| advice::of_quorum(ready).to_do,
        );
        let line = format!("RedisQuorum {name} has no members yet: {message}.");
        return Link { to_do, ..Link::new("quorum", state, line) };
    }
    let votes = if voting == 1 { "votes" } else { "vote" };
    let mut lines =
        vec![format!("RedisQuorum {name}: {voting} of {} {votes}, and {needed} are needed.", count(members, "member"))];
    lines.extend(status.members.iter().filter(|member| !member.votes()).map(|member| member_text(member, now)));
    if !status.former_voters.is_empty() {
        lines.push("The member list is changing: a majority of the former list is needed, too.".into());
    }
    let (state, to_do) = match ready {
        _ if voting >= needed && !is_false(&status.conditions, QuorumCondition::QuorumAvailable) => (State::Fine, None),
        Some(ready) if ready.status != "True" => {
            let advice = advice::of_quorum(ready);
            let state = if advice.automatic.is_some() { State::Waits } else { State::Stops };
            lines.push(format!("The operator reports: {}.", trim(&ready.message)));
            (state, advice.to_do)
        }
        _ => (State::Waits, None),
    };
    Link { about: "quorum", state, lines, to_do }
}

/// A sentence about a member that does not vote: the reason, or the time of its next vote.
pub fn member_text(member: &QuorumMember, now: MilliTime) -> String {
    let reason = member.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    // The member does not vote before the cause in its message ends, so the sentence then has no time.
    let why = match (&member.message, member.rejoin_at) {
        (Some(message), _) => format!(": {}", trim(message)),
        (None, Some(at)) => format!(" and votes from {}", moment(at, now)),
        (None, None) => String::new(),
    };
    format!("Member {} is {}{reason}{why}.", member.name, member.state)
}
