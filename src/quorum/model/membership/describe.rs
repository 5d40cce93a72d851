//! A change in words.

use super::{Busy, ChangeStep, Obstacle};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::progress::{Doing, Until};
use crate::quorum::model::rollout::listed;

/// Progress of a change, for users; `None` when nothing changes. `failures`: why members could not be closed.
pub fn describe(lists: &Lists, step: &ChangeStep, failures: &[String]) -> Option<String> {
    if *step == ChangeStep::Nothing {
        return None;
    }
    let (from, to) = match &lists.former {
        Some(former) => (former, &lists.voters),
        None => (&lists.voters, &lists.wanted),
    };
    let doing = match step {
        ChangeStep::Nothing => return None,
        ChangeStep::Wait(Obstacle::Members(names)) if lists.is_joint() => {
            Doing::EndsWhen { until: Until::MembersVote { members: listed(names) } }
        }
        ChangeStep::Wait(Obstacle::Unclosed(names)) => Doing::Unclosed { members: listed(names) },
        ChangeStep::Wait(obstacle) => waits(obstacle),
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

fn waits(obstacle: &Obstacle) -> Doing {
    let until = match obstacle {
        Obstacle::Members(names) | Obstacle::Unclosed(names) => Until::NewMembersVote { members: listed(names) },
        Obstacle::Busy(Busy::Update) => Until::UpdateEnds,
        Obstacle::Busy(Busy::Passwords) => Until::RotationEnds,
        Obstacle::Locks(locks) => Until::LocksComplete { locks: listed(locks) },
        Obstacle::LeftBehind(quorums) => Until::MastersKept { quorums: listed(quorums) },
    };
    Doing::BeginsWhen { until }
}
