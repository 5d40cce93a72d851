//! Changes of the member list (`docs/dev/algorithm.md`, "Changing the members"): which lists are in force, and what is the one next
//! step of a change? Pure.
//!
//! A change has three phases. New members **learn**: they are fenced and admitted like any other, and get the keys of
//! all held locks, but their votes do not count. Then one write of the status makes the change **joint**. From then on a grant needs
//! a majority of the old list and of the new one, with users of a new epoch. The operator closes the users of the previous epoch
//! on the old members. When all promises of the old list alone have expired, one more write **ends** the change.
//!
//! The operator cannot close users on an external master. There the record of its operators contains the epoch, and the master refuses
//! votes under an earlier one. A quorum with such a master grants and renews nothing during a joint change. This is a pause.

use std::time::Duration;

use kube::ResourceExt;

use super::lists::{Lists, majority, meets_every_majority};
use super::member::{MemberSummary, names};
use super::progress::{Doing, Until, listed};
use super::record::record_named;
use crate::api::{PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use crate::fence::predecessor::declares;
use crate::time::Monotonic;

/// The first epoch whose users are not known to be closed on the member.
///
/// Users of earlier epochs are closed on every process of the member that can run.
pub fn users_since(quorum: &RedisQuorum, name: &str, lists: &Lists) -> i64 {
    // A member without a recorded epoch has no users of lists before the former one.
    let earliest = if lists.is_joint() { lists.epoch - 1 } else { lists.epoch };
    quorum.member(name).and_then(|member| member.epoch).unwrap_or(earliest)
}

/// Whether no vote is possible under the previous epoch with this member.
///
/// Its users are closed on the process that can be open, or no process can be open. It stays so, because every later
/// admission opens users of the current epoch only.
///
/// On an external master the record on the process refuses those users. A new process has lost the record. But a replica that still
/// has the previous epoch has not admitted that process. A master that joins has no such votes.
pub fn is_closed(quorum: &RedisQuorum, name: &str, lists: &Lists) -> bool {
    let is_external = quorum.member(name).is_some_and(|member| member.external.is_some());
    users_since(quorum, name, lists) >= lists.epoch
        || record_named(quorum, name).can_be_open().is_none()
        || is_declared_dead(quorum, name)
        || (is_external && !lists.token_list().iter().any(|member| member == name))
}

/// Whether an administrator declared the process of this external member dead, by its `run_id`.
///
/// Without a pod or node there is no other proof.
pub fn is_declared_dead(quorum: &RedisQuorum, name: &str) -> bool {
    let Some(declared) = quorum.annotations().get(PREDECESSOR_DEAD_ANNOTATION) else { return false };
    let recorded = quorum.member(name).filter(|member| member.external.is_some());
    recorded.and_then(|member| member.run_id.as_deref()).is_some_and(|run_id| declares(declared, run_id))
}

/// Whether no promise of the old list is possible in a joint change, from now on.
pub fn former_is_closed(quorum: &RedisQuorum) -> bool {
    let lists = Lists::of(quorum);
    let closed = |name: &String| is_closed(quorum, name, &lists);
    lists.former.as_ref().is_some_and(|former| former.iter().all(closed))
}

/// The input of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Now.
    pub now: Monotonic,
    /// The lists.
    pub lists: &'a Lists,
    /// The summaries of [`Lists::members`].
    pub members: &'a [MemberSummary],
    /// Held locks that one of these members lacks, as `namespace/name`.
    pub incomplete_locks: &'a [String],
    /// Another activity that changes the members, and must end first.
    ///
    /// It is an update of the pods that is not paused, or a rotation of passwords.
    pub busy: Option<&'a Until>,
    /// Other operators that use the former masters, as `namespace/name`.
    ///
    /// It is empty if [`Lists::meet_both_lists`] is true of the masters that stay.
    pub left_behind: &'a [String],
    /// Since when this replica has known that the old list alone can make no promise.
    pub former_closed_since: Option<Monotonic>,
    /// How long a promise lives.
    pub rejoin_delay: Duration,
}

/// The one next step.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeStep {
    /// The list is that of the specification.
    Nothing,
    /// Only an observation can change the decision.
    Wait(Until),
    /// On a process of these members users of the previous epoch are possibly open, and cannot be closed.
    Unclosed(Vec<String>),
    /// Open the operator's user of the next epoch on these members.
    OpenNext(Vec<String>),
    /// Write the next epoch, with both lists: [`Lists::switch`].
    Switch,
    /// Close the users of the previous epoch on these members, and record it.
    Close(Vec<String>),
    /// Wait until this time for the promises of the old list to expire.
    WaitUntil(Monotonic),
    /// Raise the counters of the new list, and end the joint part.
    Finish,
}

/// Decides the next step of a change.
pub fn decide(input: &Input<'_>) -> ChangeStep {
    let lists = input.lists;
    match &lists.former {
        Some(former) => joint(input, former),
        None if lists.is_settled() => ChangeStep::Nothing,
        None => learning(input),
    }
}

/// The next step before the switch.
///
/// Before it, every member, old and new, must have everything that a majority of the new list needs.
fn learning(input: &Input<'_>) -> ChangeStep {
    let away = names(input.members, |member| !member.votes && !member.dead);
    let until = Until::of(&away, |members| Until::NewMembersVote { members })
        .or_else(|| input.busy.cloned())
        .or_else(|| Until::of(input.incomplete_locks, |locks| Until::LocksComplete { locks }))
        .or_else(|| Until::of(input.left_behind, |quorums| Until::MastersKept { quorums }));
    let unready = names(input.members, |member| !member.ready_for_next && !member.dead);
    match until {
        Some(until) => ChangeStep::Wait(until),
        None if unready.is_empty() => ChangeStep::Switch,
        None => ChangeStep::OpenNext(unready),
    }
}

fn joint(input: &Input<'_>, former: &[String]) -> ChangeStep {
    // Members that only join have not voted under the previous epoch, so no step waits for them.
    let closable = names(input.members, |member| !member.closed && member.votes);
    let unclosed = names(input.members, |member| !member.closed && former.contains(&member.name));
    // Without a start time, no promise is known to have expired.
    let until = input.former_closed_since.unwrap_or(input.now) + input.rejoin_delay;
    let votes = |name: &&String| input.members.iter().any(|member| member.name == **name && member.votes);
    let few = |list: &[String], need: usize| list.iter().filter(votes).count() < need;
    let voters = &input.lists.voters;
    if !closable.is_empty() {
        return ChangeStep::Close(closable);
    }
    if !unclosed.is_empty() {
        return ChangeStep::Unclosed(unclosed);
    }
    if input.former_closed_since.is_none() || input.now < until {
        return ChangeStep::WaitUntil(until);
    }
    if few(former, meets_every_majority(former)) || few(voters, majority(voters)) {
        let members = listed(&names(input.members, |member| !member.votes));
        return ChangeStep::Wait(Until::MembersVote { members });
    }
    ChangeStep::Finish
}

/// The progress of a change for users. `None` without a change.
///
/// `failures` are the reasons why members could not be closed.
pub fn describe(lists: &Lists, step: &ChangeStep, failures: &[String]) -> Option<String> {
    let (from, to) = match &lists.former {
        Some(former) => (former, &lists.voters),
        None => (&lists.voters, &lists.wanted),
    };
    let doing = match step {
        ChangeStep::Nothing => return None,
        ChangeStep::Wait(until) if lists.is_joint() => Doing::EndsWhen { until: until.clone() },
        ChangeStep::Wait(until) => Doing::BeginsWhen { until: until.clone() },
        ChangeStep::Unclosed(names) => Doing::Unclosed { members: listed(names) },
        ChangeStep::OpenNext(_) | ChangeStep::Switch => Doing::Begins,
        ChangeStep::Close(names) => Doing::Closing { members: listed(names) },
        ChangeStep::WaitUntil(_) => Doing::Expiring,
        ChangeStep::Finish => Doing::Ends,
    };
    let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
    let step = format!("{doing}{failures}");
    let change = match from.len() == to.len() {
        true => Doing::Exchanging { members: listed(to), step },
        false => Doing::Resizing { from: from.len(), to: to.len(), step },
    };
    Some(change.to_string())
}

#[cfg(test)]
mod tests;
