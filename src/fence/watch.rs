//! Turns probes into observed processes: since when a process answers, and since when its users are closed.

use super::{Reach, RunId};
use crate::time::Monotonic;

/// Whether the voting users are open on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Users {
    /// All of them are closed.
    Closed,
    /// At least one of them is open.
    Open,
}

/// The process that answers, as this replica observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedProcess {
    /// The process.
    pub run_id: RunId,
    /// When this replica first observed it. A process that returns after another one counts as new.
    pub first_observed: Monotonic,
    /// Its users, at the last probe.
    pub users: Users,
    /// The first observation of closed users after the last one of open users. `None` while users are open.
    pub closed_since: Option<Monotonic>,
}

/// The observations of one member by one replica.
#[derive(Clone, Debug, Default)]
pub struct ProcessWatch {
    last: Option<ObservedProcess>,
    silent_since: Option<Monotonic>,
}

impl ProcessWatch {
    /// Takes a reply to a probe, which arrived at `now`.
    ///
    /// `now` is the moment of the reply, so a time that starts there ends late, and never early.
    pub fn observe(&mut self, run_id: &RunId, users: Users, now: Monotonic) {
        let known = self.last.take().filter(|last| last.run_id == *run_id);
        let first_observed = known.as_ref().map_or(now, |known| known.first_observed);
        let closed_since = known.and_then(|known| known.closed_since).unwrap_or(now);
        let closed_since = (users == Users::Closed).then_some(closed_since);
        self.last = Some(ObservedProcess { run_id: run_id.clone(), first_observed, users, closed_since });
        self.silent_since = None;
    }

    /// Records that no process answers.
    pub fn lost(&mut self, now: Monotonic) {
        self.silent_since.get_or_insert(now);
    }

    /// Forgets the process because the member's pod was replaced.
    pub fn moved(&mut self, now: Monotonic) {
        *self = Self { last: None, silent_since: Some(now) };
    }

    /// Whether the last observed process still answers.
    pub fn answers(&self) -> bool {
        self.last.is_some() && self.silent_since.is_none()
    }

    /// The last observed process, whether or not it still answers.
    pub fn last(&self) -> Option<&ObservedProcess> {
        self.last.as_ref()
    }

    /// The connection state of the member at `now`, given whether its container runs.
    pub fn reach(&self, container_runs: bool, now: Monotonic) -> Reach {
        match (&self.last, self.silent_since) {
            (Some(last), None) => Reach::Answering(last.clone()),
            _ if !container_runs => Reach::NotRunning,
            (Some(_), Some(since)) => Reach::Lost { since },
            (None, since) => Reach::Connecting { since: since.unwrap_or(now) },
        }
    }
}
