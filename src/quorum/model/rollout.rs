//! Rolling updates: the next member to replace, and the cause of a wait. Pure.
//!
//! A replaced member forgets its locks. Members are therefore replaced one at a time, while every other one can vote
//! and every held lock is on all of them. So at every moment at most one member lacks a lock.

use std::collections::BTreeMap;

use super::member::{MemberSummary, Standing, names};
use super::progress::{Doing, Until};

/// The input of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The members, in the order in which they are replaced.
    pub members: &'a [MemberSummary],
    /// Whether a user paused the rollout.
    pub paused: bool,
    /// Whether the member list is changing. The change must end first.
    pub changing: bool,
    /// Held locks that some member lacks, as `namespace/name`.
    pub incomplete_locks: &'a [String],
}

/// The one next step.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutStep {
    /// Every member runs the newest template, as far as is known.
    Nothing,
    /// A user paused it, and these members have an old template.
    Paused(Vec<String>),
    /// The first of the members with an old template cannot be replaced yet.
    Wait(Vec<String>, Until),
    /// Close this member, then delete its pod.
    CloseAndReplace(String),
    /// Delete the pod of this member, which cannot vote.
    Replace(String),
}

/// Decides the next step of an update.
pub fn decide(input: &Input<'_>) -> RolloutStep {
    let is_outdated = |member: &MemberSummary| member.outdated == Some(true);
    let outdated = names(input.members, is_outdated);
    if outdated.is_empty() {
        return RolloutStep::Nothing;
    }
    // This precedes the pause. Otherwise the member would stay closed with its old pod, and be admitted again without an update.
    let first = |standing| input.members.iter().find(|member| is_outdated(member) && member.standing == standing);
    if let Some(member) = first(Standing::ClosedForUpdate) {
        return RolloutStep::Replace(member.name.clone());
    }
    if input.paused {
        return RolloutStep::Paused(outdated);
    }
    // A member without a vote has no lock to lose. A bad image stops the update at the first member. So a return to the old image
    // takes effect immediately.
    if let Some(member) = first(Standing::Out) {
        return RolloutStep::Replace(member.name.clone());
    }
    let name = outdated.first().cloned().unwrap_or_default();
    let (until, next) = match first(Standing::Lost) {
        // It is restarted as by a crash, and its successor waits like any other. No step can first repair its keys elsewhere. The operator
        // therefore waits neither for locks nor for a change of the member list. Both need its vote or its closing, which are impossible.
        Some(member) => {
            let input = Input { changing: false, incomplete_locks: &[], ..*input };
            (obstacle(&input, is_new), RolloutStep::Replace(member.name.clone()))
        }
        None => (obstacle(input, |_| true), RolloutStep::CloseAndReplace(name)),
    };
    until.map_or(next, |until| RolloutStep::Wait(outdated, until))
}

/// The obstacle to an update. All selected members must be admitted.
///
/// They include the next one to replace. The operator could not close a silent member, and new locks are not stored on it.
fn obstacle(input: &Input<'_>, is_meant: impl Fn(&MemberSummary) -> bool) -> Option<Until> {
    let away = names(input.members, |member| is_meant(member) && member.standing != Standing::Admitted);
    let unknown = names(input.members, |member| is_meant(member) && member.outdated.is_none());
    Until::of(&away, |members| Until::MembersVote { members })
        .or_else(|| input.changing.then_some(Until::ChangeEnds))
        .or_else(|| Until::of(&unknown, |members| Until::TemplatesObserved { members }))
        .or_else(|| Until::of(input.incomplete_locks, |locks| Until::LocksComplete { locks }))
}

/// Whether a member has a new process, for which the replacement of a lost member waits.
///
/// Lost members still restart one at a time.
fn is_new(member: &MemberSummary) -> bool {
    match member.standing {
        Standing::Lost => false,
        // The operator does not reach it, so its loss is not known yet. Other members must not wait for its node.
        Standing::Silent => member.outdated != Some(true),
        Standing::Admitted | Standing::ClosedForUpdate | Standing::Out => true,
    }
}

/// The status message of an unfinished update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether a user paused it.
    pub paused: bool,
    /// The progress, and the cause of the wait.
    pub message: String,
}

/// Describes a step for users.
///
/// `all` is the number of own members. `undeleted` has the answers of an API server that does not delete pods, by member.
pub fn progress(step: &RolloutStep, all: usize, undeleted: &BTreeMap<String, String>) -> Option<Progress> {
    let doing = match step {
        RolloutStep::Nothing => return None,
        RolloutStep::Paused(outdated) => Doing::RolloutPaused { outdated: outdated.len(), all },
        RolloutStep::Wait(outdated, until) => {
            let next = outdated.first().cloned().unwrap_or_default();
            Doing::RolloutWaits { outdated: outdated.len(), all, next, until: until.clone() }
        }
        RolloutStep::CloseAndReplace(name) | RolloutStep::Replace(name) => match undeleted.get(name) {
            Some(refusal) => Doing::NotReplaced { member: name.clone(), refusal: refusal.clone() },
            None => Doing::Replacing { member: name.clone() },
        },
    };
    Some(Progress { paused: matches!(step, RolloutStep::Paused(_)), message: doing.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::model::progress::listed;

    type State = (Option<bool>, Standing);

    const OLD: State = (Some(true), Standing::Admitted);
    const NEW: State = (Some(false), Standing::Admitted);
    const LOST: State = (Some(true), Standing::Lost);
    const ORDINARY: Input<'_> = Input { members: &[], paused: false, changing: false, incomplete_locks: &[] };

    /// The step for three members in these states, with the rest of this input.
    fn step_with(states: [State; 3], input: Input<'_>) -> RolloutStep {
        let member = |(index, (outdated, standing))| MemberSummary {
            name: format!("q-{index}"),
            outdated,
            standing,
            ..MemberSummary::default()
        };
        let members: Vec<_> = states.into_iter().enumerate().map(member).collect();
        decide(&Input { members: &members, ..input })
    }

    fn step(states: [State; 3]) -> RolloutStep {
        step_with(states, ORDINARY)
    }

    #[test]
    fn without_an_old_template_nothing_is_replaced() {
        for standing in [Standing::Admitted, Standing::Silent, Standing::ClosedForUpdate, Standing::Out] {
            assert_eq!(step([NEW, (Some(false), standing), NEW]), RolloutStep::Nothing);
        }
    }

    #[test]
    fn members_are_closed_and_replaced_one_after_the_other() {
        assert_eq!(step([OLD, OLD, OLD]), RolloutStep::CloseAndReplace("q-0".into()));
        assert_eq!(step([NEW, OLD, OLD]), RolloutStep::CloseAndReplace("q-1".into()));
        assert_eq!(step([NEW, NEW, OLD]), RolloutStep::CloseAndReplace("q-2".into()));
    }

    #[test]
    fn no_member_is_replaced_while_another_new_one_cannot_vote() {
        for standing in [Standing::Out, Standing::Silent, Standing::ClosedForUpdate] {
            for old in [OLD, LOST] {
                let until = Until::MembersVote { members: "q-0".into() };
                let waits = RolloutStep::Wait(vec!["q-1".into(), "q-2".into()], until);
                assert_eq!(step([(Some(false), standing), old, old]), waits, "{standing:?}, {old:?}");
            }
        }
    }

    #[test]
    fn no_member_is_closed_while_a_held_lock_is_not_on_all() {
        let incomplete_locks = &["shop/job".to_owned()];
        let waits = step_with([NEW, OLD, OLD], Input { incomplete_locks, ..ORDINARY });
        assert!(matches!(&waits, RolloutStep::Wait(_, Until::LocksComplete { locks }) if locks == "shop/job"));
        let message = progress(&waits, 3, &BTreeMap::new()).unwrap().message;
        assert_eq!(
            message,
            "2 of 3 members run the old pod template, q-1 is next, when every member holds the keys of the held locks shop/job"
        );
    }

    #[test]
    fn no_member_is_closed_while_a_template_is_unknown() {
        let unknown = (None, Standing::Admitted);
        assert!(matches!(step([OLD, NEW, unknown]), RolloutStep::Wait(_, Until::TemplatesObserved { .. })));
        assert_eq!(step([NEW, NEW, unknown]), RolloutStep::Nothing);
    }

    #[test]
    fn a_member_without_a_vote_is_replaced_at_once() {
        // A bad image was set back. The first member has the bad one, and the other members are correct again.
        assert_eq!(step([(Some(true), Standing::Out), NEW, NEW]), RolloutStep::Replace("q-0".into()));
        // The same holds while other members are out, and while locks are incomplete.
        let input = Input { incomplete_locks: &["shop/job".to_owned()], ..ORDINARY };
        let replaced = step_with([NEW, (Some(true), Standing::Out), (Some(false), Standing::Out)], input);
        assert_eq!(replaced, RolloutStep::Replace("q-1".into()));
        // Silence does not end an admission.
        assert!(matches!(step([(Some(true), Standing::Silent), NEW, NEW]), RolloutStep::Wait(..)));
    }

    #[test]
    fn a_pause_stops_all_steps_except_a_begun_replacement() {
        let paused = |states| step_with(states, Input { paused: true, ..ORDINARY });
        assert_eq!(paused([NEW, OLD, OLD]), RolloutStep::Paused(vec!["q-1".into(), "q-2".into()]));
        assert!(matches!(paused([NEW, (Some(true), Standing::Out), OLD]), RolloutStep::Paused(_)));
        let begun = [NEW, (Some(true), Standing::ClosedForUpdate), OLD];
        assert_eq!(paused(begun), RolloutStep::Replace("q-1".into()));
        assert_eq!(paused([NEW, NEW, NEW]), RolloutStep::Nothing);
    }

    #[test]
    fn nothing_is_closed_while_the_member_list_changes() {
        let change = |states| step_with(states, Input { changing: true, ..ORDINARY });
        assert!(matches!(change([OLD, NEW, NEW]), RolloutStep::Wait(_, Until::ChangeEnds)));
        assert_eq!(change([NEW, (Some(true), Standing::Out), OLD]), RolloutStep::Replace("q-1".into()));
    }

    #[test]
    fn lost_members_are_replaced_one_at_a_time_without_being_closed() {
        assert_eq!(step([LOST, LOST, LOST]), RolloutStep::Replace("q-0".into()));
        assert_eq!(step([NEW, LOST, LOST]), RolloutStep::Replace("q-1".into()));
        assert_eq!(step([NEW, NEW, LOST]), RolloutStep::Replace("q-2".into()));
        // The process of an old member restarted in its pod, and has the new secrets. It is closed later, like any other.
        assert_eq!(step([NEW, LOST, OLD]), RolloutStep::Replace("q-1".into()));
    }

    #[test]
    fn a_lost_member_without_its_old_pod_delays_the_next_one() {
        // Its pod ends, or there is none. The member is no longer lost, but not back yet.
        let waits = step([(None, Standing::Silent), LOST, LOST]);
        assert!(matches!(waits, RolloutStep::Wait(_, Until::MembersVote { members }) if members == "q-0"));
        let waits = step([(None, Standing::Admitted), LOST, LOST]);
        assert!(matches!(waits, RolloutStep::Wait(_, Until::TemplatesObserved { .. })));
        // A member with an old pod on a disconnected node can stay away without limit.
        assert_eq!(step([(Some(true), Standing::Silent), LOST, LOST]), RolloutStep::Replace("q-1".into()));
    }

    #[test]
    fn only_a_pause_delays_the_replacement_of_lost_members() {
        let input = Input { changing: true, incomplete_locks: &["shop/job".to_owned()], ..ORDINARY };
        assert_eq!(step_with([LOST; 3], input), RolloutStep::Replace("q-0".into()));
        assert!(matches!(step_with([LOST; 3], Input { paused: true, ..input }), RolloutStep::Paused(_)));
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..7).map(|n| format!("n/l{n}")).collect();
        assert_eq!(listed(&names), "n/l0, n/l1, n/l2, n/l3, n/l4 and 2 more");
    }
}
