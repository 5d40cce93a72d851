//! Pure: the state machine of a command's guard.

use std::time::Duration;

use super::guard_protocol::GuardCommand;
use redlock_engine::time::Boottime;

/// An input of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A command of `run`.
    Command(GuardCommand),
    /// `run` ended or closed the connection.
    RunGone,
    /// The command ended. Its descendants can still run.
    CommandEnded,
    /// Time has passed.
    Tick,
}

/// An action of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Start the command.
    Start,
    /// Pass this signal on to the command.
    Forward(i32),
    /// Ask the command and its descendants to end with this signal.
    Signal(i32),
    /// Report to `run` that the deadline has passed.
    ReportEnding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The guard waits for the first deadline.
    Waiting,
    /// The command runs, and gets its signal at `ask`.
    Running { ask: Boottime, kill: Boottime },
    /// The command got the signal that requests its end. No later deadline prolongs this phase.
    ///
    /// A hold whose deadline has passed once is not used again.
    Ending { kill: Boottime },
    /// All processes get SIGKILL.
    Killing,
}

/// The guard's state.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardState {
    phase: Phase,
    signal: i32,
    grace: Duration,
}

impl GuardState {
    /// The state before the command starts. `signal` requests its end, and `grace` is its time to end.
    pub(super) const fn new(signal: i32, grace: Duration) -> Self {
        Self { phase: Phase::Waiting, signal, grace }
    }

    pub(super) fn is_killing(&self) -> bool {
        self.phase == Phase::Killing
    }

    /// The time at which the guard must handle [`Input::Tick`], if there is no other input before.
    pub(super) const fn wakes_at(&self) -> Option<Boottime> {
        match self.phase {
            Phase::Waiting | Phase::Killing => None,
            Phase::Running { ask, .. } => Some(ask),
            Phase::Ending { kill } => Some(kill),
        }
    }

    /// Handles an input. Returns the actions.
    pub(super) fn on(&mut self, event: Input, now: Boottime) -> Vec<Action> {
        match (self.phase, event) {
            (Phase::Waiting, Input::Command(GuardCommand::Until { ask, kill })) if now < ask => {
                self.phase = Phase::Running { ask, kill };
                vec![Action::Start]
            }
            (Phase::Waiting, Input::Command(GuardCommand::Until { .. })) => {
                self.phase = Phase::Killing;
                vec![Action::ReportEnding]
            }
            (Phase::Waiting, Input::Command(GuardCommand::End { .. }) | Input::RunGone) => {
                self.phase = Phase::Killing;
                Vec::new()
            }
            (Phase::Running { .. }, Input::Command(GuardCommand::Until { ask, kill })) => {
                self.phase = Phase::Running { ask, kill };
                self.passed(now)
            }
            (Phase::Running { .. } | Phase::Ending { .. }, Input::Command(GuardCommand::Forward(signal))) => {
                vec![Action::Forward(signal)]
            }
            (
                Phase::Running { kill: latest, .. } | Phase::Ending { kill: latest },
                Input::Command(GuardCommand::End { kill }),
            ) => self.end(kill.min(latest)),
            // Descendants get the same grace as the command.
            (Phase::Running { kill, .. }, Input::RunGone | Input::CommandEnded) => self.end(kill.min(now + self.grace)),
            (Phase::Running { .. } | Phase::Ending { .. }, Input::Tick) => self.passed(now),
            (Phase::Waiting | Phase::Ending { .. } | Phase::Killing, _) => Vec::new(),
        }
    }

    fn end(&mut self, kill: Boottime) -> Vec<Action> {
        self.phase = Phase::Ending { kill };
        vec![Action::Signal(self.signal)]
    }

    fn passed(&mut self, now: Boottime) -> Vec<Action> {
        match self.phase {
            Phase::Running { kill, .. } if kill <= now => {
                self.phase = Phase::Killing;
                vec![Action::ReportEnding]
            }
            Phase::Running { ask, kill } if ask <= now => {
                self.phase = Phase::Ending { kill };
                vec![Action::Signal(self.signal), Action::ReportEnding]
            }
            Phase::Ending { kill } if kill <= now => {
                self.phase = Phase::Killing;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    const TERM: i32 = 15;

    fn until(ask: u64, kill: u64) -> Input {
        Input::Command(GuardCommand::Until { ask: at(ask), kill: at(kill) })
    }

    fn running(ask: u64, kill: u64) -> GuardState {
        let mut state = GuardState::new(TERM, Duration::from_millis(100));
        assert_eq!(state.on(until(ask, kill), at(0)), [Action::Start]);
        state
    }

    #[test]
    fn the_deadline_terminates_first_and_kills_in_time() {
        let mut state = running(500, 700);
        assert_eq!(state.wakes_at(), Some(at(500)));
        assert_eq!(state.on(Input::Tick, at(499)), []);
        assert_eq!(state.on(Input::Tick, at(500)), [Action::Signal(TERM), Action::ReportEnding]);
        assert_eq!(state.wakes_at(), Some(at(700)));
        assert_eq!(state.on(Input::Tick, at(699)), []);
        assert!(!state.is_killing());
        assert_eq!(state.on(Input::Tick, at(700)), []);
        assert!(state.is_killing());
    }

    #[test]
    fn a_renewal_moves_the_deadline_until_it_has_passed_once() {
        let mut state = running(500, 700);
        assert_eq!(state.on(until(900, 1_100), at(400)), []);
        assert_eq!(state.on(Input::Tick, at(800)), []);
        assert_eq!(state.on(Input::Tick, at(900)), [Action::Signal(TERM), Action::ReportEnding]);
        assert_eq!(state.on(until(5_000, 6_000), at(901)), []);
        state.on(Input::Tick, at(1_100));
        assert!(state.is_killing());
    }

    #[test]
    fn a_guard_that_was_frozen_over_the_deadline_kills_at_once() {
        let mut state = running(500, 700);
        assert_eq!(state.on(Input::Tick, at(900)), [Action::ReportEnding]);
        assert!(state.is_killing());
    }

    #[test]
    fn nothing_starts_after_the_deadline() {
        let mut state = GuardState::new(TERM, Duration::ZERO);
        assert_eq!(state.on(until(500, 700), at(500)), [Action::ReportEnding]);
        assert!(state.is_killing());
        let mut state = GuardState::new(TERM, Duration::ZERO);
        assert_eq!(state.on(Input::RunGone, at(1)), []);
        assert!(state.is_killing());
    }

    #[test]
    fn descendants_and_the_end_of_run_get_the_grace_in_the_deadline() {
        for event in [Input::RunGone, Input::CommandEnded] {
            let mut state = running(500, 700);
            assert_eq!(state.on(event, at(100)), [Action::Signal(TERM)]);
            assert_eq!(state.wakes_at(), Some(at(200)));
            let mut late = running(500, 700);
            late.on(event, at(650));
            assert_eq!(late.wakes_at(), Some(at(700)));
        }
    }

    #[test]
    fn an_order_to_end_never_goes_beyond_the_deadline() {
        let mut state = running(500, 700);
        let end = |kill| Input::Command(GuardCommand::End { kill: at(kill) });
        assert_eq!(state.on(end(5_000), at(100)), [Action::Signal(TERM)]);
        assert_eq!(state.wakes_at(), Some(at(700)));
        assert_eq!(state.on(end(300), at(150)), [Action::Signal(TERM)]);
        assert_eq!(state.wakes_at(), Some(at(300)));
        assert_eq!(state.on(Input::Command(GuardCommand::Forward(10)), at(200)), [Action::Forward(10)]);
    }
}
