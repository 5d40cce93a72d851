//! From probes to sights: since when has this replica seen a process, and since when closed?

use super::{Reach, RunId};
use crate::time::Monotonic;

/// Whether the users that can vote may do so on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Users {
    /// None of them may.
    Closed,
    /// At least one of them may.
    Open,
}

/// What this replica knows of the process that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Which process.
    pub run_id: RunId,
    /// When this replica first saw it. A process seen again after another one counts as new.
    pub first_seen: Monotonic,
    /// Its users, at the last probe.
    pub users: Users,
    /// When its users were first seen closed after the last time they were seen open; `None` while open.
    pub closed_since: Option<Monotonic>,
}

/// The memory of one replica about one member.
#[derive(Clone, Debug, Default)]
pub struct ProcessWatch {
    sight: Option<Sight>,
    silent_since: Option<Monotonic>,
}

impl ProcessWatch {
    /// A probe was answered at `now`.
    ///
    /// `now` is the moment of the answer, so what is counted from it ends late, and never early.
    pub fn saw(&mut self, run_id: &RunId, users: Users, now: Monotonic) {
        self.silent_since = None;
        match &mut self.sight {
            Some(sight) if sight.run_id == *run_id => {
                sight.closed_since = match users {
                    Users::Open => None,
                    Users::Closed => Some(sight.closed_since.unwrap_or(now)),
                };
                sight.users = users;
            }
            sight => {
                let closed_since = (users == Users::Closed).then_some(now);
                *sight = Some(Sight { run_id: run_id.clone(), first_seen: now, users, closed_since });
            }
        }
    }

    /// Nothing answers.
    pub fn lost(&mut self, now: Monotonic) {
        self.silent_since.get_or_insert(now);
    }

    /// The member is looked for somewhere else from now on: its pod was replaced.
    pub fn moved(&mut self, now: Monotonic) {
        *self = Self { sight: None, silent_since: Some(now) };
    }

    /// Whether the last sight is of a process that still answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.sight.is_some() && self.silent_since.is_none()
    }

    /// The last sight, whether or not the process still answers.
    #[must_use]
    pub fn last(&self) -> Option<&Sight> {
        self.sight.as_ref()
    }

    /// How the member is seen at `now`, given whether its container runs.
    #[must_use]
    pub fn reach(&self, container_runs: bool, now: Monotonic) -> Reach {
        match (&self.sight, self.silent_since) {
            (Some(sight), None) => Reach::Seen(sight.clone()),
            _ if !container_runs => Reach::NotRunning,
            (Some(_), Some(since)) => Reach::Lost { since },
            (None, since) => Reach::Connecting { since: since.unwrap_or(now) },
        }
    }
}
