//! The published record of a member, and the record after each step.

use super::{FenceStep, Process, Reason, Verdict};
pub use crate::api::MemberState as State;

/// The `run_id` of a Redis process: 40 hex digits, new at every start.
pub type RunId = crate::redlock::RunId;

/// The published record of one member. It survives every operator replica, so all that a new leader must know is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The state.
    pub state: State,
    /// Why, when fenced.
    pub reason: Option<Reason>,
    /// The process that the record speaks of.
    pub run_id: Option<RunId>,
    /// The admission of `run_id` stands (`Admitted`, or `Unreachable` since).
    pub admitted: bool,
    /// Where `run_id` runs: known at the latest when it is admitted.
    pub process: Option<Process>,
    /// A process that was admitted or found open, and is not known to be dead.
    /// It is a process before this one, or this one until it is admitted again. At most one exists: the next admission
    /// of another process needs its death.
    pub predecessor: Option<Process>,
}

impl Record {
    /// Whether the votes of this process count (rule 5).
    #[must_use]
    pub fn admits(&self, run_id: &RunId) -> bool {
        self.admitted && self.run_id.as_ref() == Some(run_id)
    }

    /// The process whose death must be known before another one is admitted.
    ///
    /// It is the process that the record admits, or else the one before.
    #[must_use]
    pub fn may_be_open(&self) -> Option<&Process> {
        if self.admitted { self.process.as_ref() } else { self.predecessor.as_ref() }
    }

    /// The process whose death `current` has to wait for. It does not wait for its own.
    #[must_use]
    pub fn threat_to(&self, current: Option<&RunId>) -> Option<&Process> {
        self.may_be_open().filter(|process| Some(&process.run_id) != current)
    }

    /// The record after a step has been written, for the answering process, if there is one. `verdict` judges
    /// [`Record::threat_to`] that process.
    #[must_use]
    pub fn after(&self, step: FenceStep, current: Option<&Process>, verdict: &Verdict) -> Self {
        let mut next = self.clone();
        match step {
            FenceStep::Nothing | FenceStep::Wait { .. } | FenceStep::RaiseEpoch | FenceStep::RestartProcess => {
                return next;
            }
            FenceStep::WritePending => next.leave(State::Pending, verdict),
            FenceStep::WriteStarting => next.leave(State::Starting, verdict),
            FenceStep::WriteUnreachable => (next.state, next.reason) = (State::Unreachable, None),
            FenceStep::WriteAdmittedAgain => {
                (next.state, next.reason) = (State::Admitted, None);
                next.set_process(current.filter(|current| self.run_id.as_ref() == Some(&current.run_id)));
            }
            FenceStep::WritePredecessorDead => next.predecessor = None,
            FenceStep::WriteFenced { reason, close, .. } => {
                next.leave(State::Fenced, verdict);
                // A process that is to be closed can be open until that is confirmed, and it can be out of reach by
                // then.
                if close && next.predecessor.is_none() {
                    next.predecessor = current.cloned();
                }
                next.reason = Some(reason);
                next.set_process(current);
            }
            FenceStep::Admit => {
                next.predecessor = None;
                (next.state, next.reason, next.admitted) = (State::Admitted, None, true);
                next.set_process(current);
            }
        }
        next
    }

    /// Whether only time keeps this process from voting.
    ///
    /// That holds if the process is recorded, and no other process can be open.
    fn is_a_matter_of_time(&self, run_id: &RunId) -> bool {
        !self.admitted && self.run_id.as_ref() == Some(run_id) && self.threat_to(Some(run_id)).is_none()
    }

    /// Whether the count of this process starts again when a replica learns this record after `before`.
    ///
    /// It does when only time keeps the process from voting from now on, and before that was not so. The record shows
    /// that a predecessor died, and not when. Until now the predecessor can have made promises that its successor never
    /// received, however long the successor has answered. The rule compares two records only, so it also holds for a
    /// watch that skips the records between them.
    #[must_use]
    pub fn restarts_count(&self, before: &Self, run_id: &RunId) -> bool {
        self.is_a_matter_of_time(run_id) && !before.is_a_matter_of_time(run_id)
    }

    /// The recorded process is not the one that matters any more. If it could vote it becomes the predecessor.
    fn leave(&mut self, state: State, verdict: &Verdict) {
        if self.admitted {
            self.predecessor = self.process.take();
        }
        if matches!(verdict, Verdict::Dead(_)) {
            self.predecessor = None;
        }
        (self.state, self.reason, self.admitted) = (state, None, false);
    }

    fn set_process(&mut self, current: Option<&Process>) {
        if let Some(current) = current {
            self.run_id = Some(current.run_id.clone());
            self.process = Some(current.clone());
        }
    }
}
