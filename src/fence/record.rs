//! The published record of a member, and the record after each step.

use super::{FenceStep, Process, Reason, Verdict};
pub use crate::api::MemberState as State;

/// The `run_id` of a Redis process: 40 hex digits, new at every start.
pub type RunId = crate::redlock::RunId;

/// The published record of one member.
///
/// It outlives every replica of the operator, so it contains everything that a new leader must know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The state.
    pub state: State,
    /// The reason for the state, if fenced.
    pub reason: Option<Reason>,
    /// The process of this record.
    pub run_id: Option<RunId>,
    /// `run_id` is admitted (`Admitted`, or `Unreachable` since).
    pub admitted: bool,
    /// The place where `run_id` runs. It is known when the process is admitted, or earlier.
    pub process: Option<Process>,
    /// A process that was admitted or found open, and is not known to be dead.
    /// It is an earlier process, or this one until it is admitted again. At most one exists, because the admission of another
    /// process needs its death.
    pub predecessor: Option<Process>,
}

impl Record {
    /// Whether the votes of this process count (rule 5).
    pub fn admits(&self, run_id: &RunId) -> bool {
        self.admitted && self.run_id.as_ref() == Some(run_id)
    }

    /// The process whose death must be known before another one is admitted.
    ///
    /// It is the process that the record admits, or otherwise the previous one.
    pub fn can_be_open(&self) -> Option<&Process> {
        if self.admitted { self.process.as_ref() } else { self.predecessor.as_ref() }
    }

    /// The process whose death `current` must await. It never awaits its own.
    pub fn threat_to(&self, current: Option<&RunId>) -> Option<&Process> {
        self.can_be_open().filter(|process| Some(&process.run_id) != current)
    }

    /// The record after a step for the answering process, if there is one.
    ///
    /// `verdict` judges [`Record::threat_to`] that process.
    pub fn after(&self, step: FenceStep, current: Option<&Process>, verdict: &Verdict) -> Self {
        let mut next = self.clone();
        match step {
            FenceStep::Nothing | FenceStep::Wait { .. } | FenceStep::RaiseEpoch | FenceStep::RestartProcess => {}
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
                // A process under closing can be open until the closing is confirmed. It can be unreachable before that.
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

    /// Whether this process can vote after enough time, without another event.
    ///
    /// That holds if the process is recorded, and no other process can be open.
    fn is_a_matter_of_time(&self, run_id: &RunId) -> bool {
        !self.admitted && self.run_id.as_ref() == Some(run_id) && self.threat_to(Some(run_id)).is_none()
    }

    /// Whether the wait of this process starts again when a replica receives this record after `before`.
    ///
    /// It does when only time keeps the process from voting now, but not before. The record shows that a predecessor died, but
    /// not when. Until now the predecessor can have made promises that its successor never received, even if the successor has
    /// answered for a long time. The rule compares two records only, so it also holds for a watch that skips the records between them.
    pub fn restarts_count(&self, before: &Self, run_id: &RunId) -> bool {
        self.is_a_matter_of_time(run_id) && !before.is_a_matter_of_time(run_id)
    }

    /// Drops the recorded process. It becomes the predecessor if it was able to vote.
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
