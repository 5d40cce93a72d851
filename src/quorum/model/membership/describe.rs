//! A change in words.

use super::{Busy, ChangeStep, Obstacle};
use crate::quorum::model::{lists::Lists, rollout::listed};

/// What a change is doing, for people; `None` when nothing changes. `failures`: why members could not be closed.
pub fn describe(lists: &Lists, step: &ChangeStep, failures: &[String]) -> Option<String> {
    if *step == ChangeStep::Nothing {
        return None;
    }
    let (from, to) = match &lists.former {
        Some(former) => (former, &lists.voters),
        None => (&lists.voters, &lists.wanted),
    };
    let change = if from.len() == to.len() {
        format!("the members change to {}", listed(to))
    } else {
        format!("from {} to {} members", from.len(), to.len())
    };
    let mut doing = match step {
        ChangeStep::Nothing => return None,
        ChangeStep::Wait(Obstacle::Members(names)) if lists.is_joint() => {
            format!("it ends when {} may vote again", listed(names))
        }
        ChangeStep::Wait(Obstacle::Members(names)) => format!("it begins when {} may vote", listed(names)),
        ChangeStep::Wait(Obstacle::Busy(Busy::Update)) => "it begins when the update of the pods has ended".to_owned(),
        ChangeStep::Wait(Obstacle::Busy(Busy::Passwords)) => {
            "it begins when every member has the passwords of the rotation that is under way".to_owned()
        }
        ChangeStep::Wait(Obstacle::Locks(locks)) => {
            format!("it begins when every member holds the keys of the held locks {}", listed(locks))
        }
        ChangeStep::Wait(Obstacle::Unclosed(names)) => format!(
            "{} may still run with users of the list before, and cannot be asked: it goes on when {} answers, or is known to be \
             dead, see status.members",
            listed(names),
            if names.len() == 1 { "it" } else { "each" },
        ),
        ChangeStep::Wait(Obstacle::Unclaimed(names)) => {
            format!("it begins when the records of {} hold the claim of this quorum, see status.members", listed(names))
        }
        ChangeStep::Wait(Obstacle::Operators(names)) => format!(
            "it ends when RedisQuorum {} has the new members too: edit {} as well",
            listed(names),
            if names.len() == 1 { "it" } else { "each" },
        ),
        ChangeStep::Wait(Obstacle::Untold(names)) => {
            format!("it ends when the records of {} tell other operators of it", listed(names))
        }
        ChangeStep::Announce(_) => "other operators are told which list counts".to_owned(),
        ChangeStep::OpenNext(_) | ChangeStep::Switch => "it begins".to_owned(),
        ChangeStep::Close(names) => format!("users of the list before are being closed on {}", listed(names)),
        ChangeStep::WaitUntil(_) => "promises of the list before run out, clients are let in when they have".to_owned(),
        ChangeStep::Finish => "it ends".to_owned(),
    };
    if !failures.is_empty() {
        doing = format!("{doing} ({})", failures.join("; "));
    }
    Some(format!("{change}: {doing}"))
}
