//! A change of the member list: the lists of the status, and the leader's decision.

use redlock_operator::quorum::model::{
    lists::{self, Lists},
    member::MemberSummary,
    membership::{ChangeStep, Input, decide},
};

use super::core::{NOW, ago, ticks};

/// The progress of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Stage {
    #[default]
    Old,
    /// The status has both lists.
    Joint,
    New,
}

pub(crate) fn name(member: usize) -> String {
    format!("main-{member}")
}

fn names(list: &[usize]) -> Vec<String> {
    list.iter().map(|member| name(*member)).collect()
}

/// The number of members of both lists together.
pub(crate) fn size(old: &[usize], new: &[usize]) -> usize {
    old.iter().chain(new).max().unwrap() + 1
}

pub(crate) fn majority(list: &[usize]) -> usize {
    lists::majority(&names(list))
}

pub(crate) fn meets_every_majority(list: &[usize]) -> usize {
    lists::meets_every_majority(&names(list))
}

pub(crate) fn lists(old: &[usize], new: &[usize], stage: Stage) -> Lists {
    let (old, new) = (names(old), names(new));
    match stage {
        Stage::Old => Lists { epoch: 1, voters: old, former: None, wanted: new },
        Stage::Joint => Lists { epoch: 2, voters: new.clone(), former: Some(old), wanted: new },
        Stage::New => Lists { epoch: 2, voters: new.clone(), former: None, wanted: new },
    }
}

/// The leader's next step.
///
/// `closed_for` is 0 while the old list has promises, and from then on the number of ticks plus one.
pub(crate) fn next_step(lists: &Lists, members: &[MemberSummary], closed_for: u8, wait: u8) -> ChangeStep {
    decide(&Input {
        now: NOW,
        lists,
        members,
        incomplete_locks: &[],
        busy: None,
        left_behind: &[],
        former_closed_since: closed_for.checked_sub(1).map(ago),
        rejoin_delay: ticks(wait),
    })
}
