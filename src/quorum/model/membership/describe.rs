//! A change in words.

use super::ChangeStep;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::progress::Doing;
use crate::quorum::model::rollout::listed;

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
