//! Reports the states of members to the observer.

use super::super::event::{Event, MemberState};
use super::{Member, Members, Process};
use crate::redlock::MemberError;
use crate::voting::Link;
use std::time::Duration;

/// The state of a member, as [`MemberState`] borrows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Voting,
    Waiting,
    Down(MemberError),
}

impl Members {
    /// Tells the observer which members have another state than before.
    pub(super) fn notify_states(&self) {
        let changed: Vec<_> = {
            let mut state = self.current();
            let now = self.clock.monotonic();
            let standing = |(member, process): (&Member, &Option<Process>)| match &*member.link.borrow() {
                Link::Down(error) => Standing::Down(error.clone()),
                Link::Fenced => Standing::Down(MemberError::Fenced),
                Link::Open(run_id) => {
                    let votes = |it: &Process| it.run_id == *run_id && it.counter.is_some() && self.opens(it) <= now;
                    if process.as_ref().is_some_and(votes) { Standing::Voting } else { Standing::Waiting }
                }
            };
            let now: Vec<_> = self.members.iter().zip(&state.processes).map(standing).collect();
            let notified = std::mem::replace(&mut state.notified, now.iter().cloned().map(Some).collect());
            now.into_iter().enumerate().filter(|(index, now)| notified[*index].as_ref() != Some(now)).collect()
        };
        // Without the lock: the observer can call the client.
        for (index, standing) in &changed {
            let state = match standing {
                Standing::Voting => MemberState::Voting,
                Standing::Waiting => MemberState::Waiting,
                Standing::Down(error) => MemberState::Down(error),
            };
            let member = self.members[*index].member.name();
            self.observer.notify(|| Event::Member { member, state });
        }
    }

    /// When the next process may vote.
    pub(super) fn due(&self) -> Option<Duration> {
        Some(self.state().due?.since(self.clock.monotonic()) + Duration::from_millis(1))
    }
}
