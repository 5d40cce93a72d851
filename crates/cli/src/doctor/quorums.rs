//! Pure: the state of each quorum, with one line for each member that does not vote.

use super::checks::{Finding, State, finding};
use crate::cluster::objects::{QuorumMember, QuorumObject};
use crate::output::format::{count, moment};
use crate::show::advice;
use crate::show::explain::{self, member_text, of_quorum};
use crate::show::quorum::{change, is_trouble};
use redlock_api::MilliTime;
use redlock_api::conditions::CommonReason;

/// The findings about each quorum, and about a missing default quorum.
pub(super) fn quorums(quorums: &[QuorumObject], now: MilliTime) -> Vec<Finding> {
    let mut found: Vec<_> = quorums.iter().flat_map(|quorum| one_quorum(quorum, now)).collect();
    if !quorums.is_empty() && !quorums.iter().any(QuorumObject::is_default) {
        let text = "No RedisQuorum that you can read is marked as the default.";
        let mend = "Locks without quorumRef need one: see defaultQuorum in the chart's values.";
        found.push(finding("quorum", State::Unknown, text, Some(mend)));
    }
    found
}

/// A quorum before its first vote, in which every member is being created or started.
fn is_starting(quorum: &QuorumObject) -> bool {
    let on_its_way = |member: &&QuorumMember| {
        matches!(member.state.as_str(), "Admitted" | "Fenced" | "Starting" | "Pending") && member.message.is_none()
    };
    quorum.status.token_floor.is_none()
        && !quorum.status.members.is_empty()
        && quorum.status.members.iter().all(|member| on_its_way(&member))
}

/// The one finding of a starting quorum, with the expected time of its first grant.
fn start(quorum: &QuorumObject, now: MilliTime) -> Finding {
    let members = quorum.status.members.len();
    let mut times: Vec<_> = quorum.status.members.iter().filter_map(|member| member.rejoin_at).collect();
    times.sort();
    let name = quorum.full_name();
    let text = match times.get(quorum.needed().saturating_sub(1)) {
        Some(at) => format!("RedisQuorum {name} is starting. It grants locks from {}.", moment(*at, now)),
        None => format!("RedisQuorum {name} is starting: {} of {} started.", times.len(), count(members, "member")),
    };
    finding("quorum", State::Warning, text, None)
}

fn one_quorum(quorum: &QuorumObject, now: MilliTime) -> Vec<Finding> {
    let link = of_quorum(quorum, now);
    if link.state != explain::State::Fine && is_starting(quorum) {
        return vec![start(quorum, now)];
    }
    let trouble: Vec<_> = quorum.status.conditions.iter().filter(|condition| is_trouble(condition)).collect();
    let state = match link.state {
        explain::State::Fine if trouble.is_empty() => State::Fine,
        explain::State::Fine => State::Warning,
        _ => State::Broken,
    };
    let members: Vec<_> = quorum.status.members.iter().filter(|member| !member.votes()).collect();
    let names_a_member = |text: &str| members.iter().any(|member| text.contains(&member.name));
    let mut text = link.lines.into_iter().filter(|line| !names_a_member(line)).collect::<Vec<_>>().join(" ");
    for condition in &trouble {
        let message = condition.message.trim_end_matches('.');
        // A condition that only lists the members repeats the lines below. A condition about the members' objects does not.
        let lists_members = names_a_member(message) && condition.reason != CommonReason::InvalidSpec.as_str();
        if !text.contains(message) && !lists_members {
            text += &format!(" {} ({}): {message}.", condition.type_, condition.reason);
        }
    }
    let advice = trouble.iter().find_map(|condition| advice::of_quorum(condition).to_do);
    let mend = link.to_do.or(advice).filter(|_| state != State::Fine);
    let mut found = vec![Finding { about: "quorum".into(), state, text, mend }];
    let state = if state == State::Broken { State::Broken } else { State::Warning };
    found.extend(change(quorum).map(|change| {
        let text =
            format!("RedisQuorum {} is being changed ({}): {}.", quorum.full_name(), change.reason, change.message);
        finding("change", State::Warning, text, advice::of_quorum(change).to_do.as_deref())
    }));
    found.extend(members.iter().map(|member| finding("member", state, member_text(member, now), None)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{condition, now, quorum};

    #[test]
    fn a_quorum_without_grants_is_broken_and_without_reserve_warns() {
        assert_eq!(quorums(&[quorum(["Admitted"; 3])], now())[0].state, State::Fine);
        let reserve = quorums(&[quorum(["Admitted", "Admitted", "Fenced"])], now());
        assert_eq!((reserve[0].state, reserve.len()), (State::Warning, 2));
        let mut unmarked = quorum(["Admitted"; 3]);
        unmarked.metadata.annotations = None;
        assert!(quorums(&[unmarked], now())[1].text.contains("marked as the default"));
    }

    #[test]
    fn an_object_that_is_refused_is_named_with_its_cause() {
        let mut refused = quorum(["Pending"; 3]);
        let message = "StatefulSet main-0 was refused by the API server: no StatefulSets here";
        refused.status.conditions = vec![condition("Ready", "False", "InvalidSpec", message)];
        refused.status.token_floor = Some(1);
        let found = quorums(&[refused], now());
        assert!(found[0].text.contains("no StatefulSets here"), "{}", found[0].text);
    }

    #[test]
    fn an_update_that_cannot_continue_warns_with_its_cause() {
        let mut updating = quorum(["Admitted"; 3]);
        let message = "the pod of main-1 is not replaced, because the API server refuses its deletion: no";
        updating.status.conditions.push(condition("Progressing", "True", "Updating", message));
        let found = quorums(&[updating], now());
        assert_eq!((found[0].state, found[1].state), (State::Fine, State::Warning));
        assert_eq!(found[1].text, format!("RedisQuorum redlock-system/main is being changed (Updating): {message}."));
    }

    #[test]
    fn each_member_that_does_not_vote_has_one_line() {
        let mut faulty = quorum(["Admitted", "Unreachable", "Fenced"]);
        faulty.status.token_floor = Some(1);
        let found = quorums(&[faulty], now());
        assert_eq!(
            found.iter().map(|one| (one.about.as_str(), one.state)).collect::<Vec<_>>(),
            [("quorum", State::Broken), ("member", State::Broken), ("member", State::Broken)]
        );
        assert!(!found[0].text.contains("main-1") && !found[0].text.contains("is Fenced"), "{}", found[0].text);
        assert_eq!(found[1].text, "Member main-1 is Unreachable: does not answer.");
        assert_eq!(found[2].text, "Member main-2 is Fenced (Restarted) and votes from 12:00:12 UTC (in 12s).");
    }

    #[test]
    fn a_start_is_one_warning_and_a_fault_during_it_is_none() {
        let found = quorums(&[quorum(["Fenced"; 3])], now());
        let text = "RedisQuorum redlock-system/main is starting. It grants locks from 12:00:12 UTC (in 12s).";
        assert_eq!((found.len(), found[0].state, found[0].text.as_str()), (1, State::Warning, text));
        // No time helps against the second fault.
        for (state, described, fault) in [
            ("Pending", "Pending", "container redis is waiting (ErrImagePull)"),
            ("Fenced", "Fenced (Restarted)", "it can evict keys: set its maxmemory-policy to noeviction"),
        ] {
            let mut faulty = quorum(["Fenced", "Fenced", state]);
            faulty.status.members[2].message = Some(fault.into());
            let found = quorums(&[faulty], now());
            assert_eq!(found[0].state, State::Broken, "{fault}");
            let cause = format!("Member main-2 is {described}: {fault}.");
            assert!(found.iter().any(|one| one.text == cause), "{found:#?}");
        }
        let mut restarted = quorum(["Fenced"; 3]);
        restarted.status.token_floor = Some(1);
        assert_eq!(quorums(&[restarted], now())[0].state, State::Broken, "it granted locks before");
    }
}
