//! Reports the states of members to the observer.

use std::time::Duration;

use super::super::event::{Event, MemberState};
use super::super::locked;
use super::{Member, MemberSet, Process};
use crate::redlock::MemberError;
use crate::voting::Link;

/// The state of a member, as [`MemberState`] borrows it.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum ReportedState {
    Voting,
    Waiting,
    Down(MemberError),
}

impl MemberSet {
    /// Reports members whose state has changed.
    pub(super) fn notify_states(&self) {
        let changed: Vec<_> = {
            let mut state = self.current();
            let now = self.clock.monotonic();
            let state_of = |(member, process): (&Member, &Option<Process>)| match &*member.link.borrow() {
                Link::Down(error) | Link::Unidentified(error) => ReportedState::Down(error.clone()),
                Link::Open(run_id) => {
                    let votes = |it: &Process| it.run_id == *run_id && it.counter.is_some() && self.opens(it) <= now;
                    if process.as_ref().is_some_and(votes) { ReportedState::Voting } else { ReportedState::Waiting }
                }
            };
            let now: Vec<_> = self.members.iter().zip(&state.processes).map(state_of).collect();
            let notified = std::mem::replace(&mut state.notified, now.iter().cloned().map(Some).collect());
            now.into_iter().enumerate().filter(|(index, now)| notified[*index].as_ref() != Some(now)).collect()
        };
        // The lock is released, because the observer can call the client.
        for (index, state) in &changed {
            let state = match state {
                ReportedState::Voting => MemberState::Voting,
                ReportedState::Waiting => MemberState::Waiting,
                ReportedState::Down(error) => MemberState::Down(error),
            };
            let member = self.members[*index].member.name();
            self.observer.notify(|| Event::Member { member, state });
        }
    }

    /// The time until the next process can vote.
    pub(super) fn due(&self) -> Option<Duration> {
        Some(locked(&self.state).due?.since(self.clock.monotonic()).saturating_add(Duration::from_millis(1)))
    }
}
