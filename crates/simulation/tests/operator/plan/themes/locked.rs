//! The themes of the seeds whose Jobs hold locks.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Theme, USUAL};

/// Themes of the seeds from [`LOCKED_JOBS`](crate::plan::LOCKED_JOBS) on.
pub(in crate::plan) const LOCKED: [Theme; 3] = [LOCKED_JOBS, LOCKED_MACHINES, LOCKED_WRITES];

/// Jobs that hold locks, and actions of users on them and their claims.
const LOCKED_JOBS: Theme = Theme {
    name: "locked jobs",
    founders: &[Does::LockedJob, Does::LockedJob, Does::NamedJob, Does::LockedJob],
    own: &[(1, Own::Kill), (1, Own::Terminate), (1, Own::Lag)],
    breaks: &[(1, Breaks::Exit), (1, Breaks::ForceDelete)],
    does: &[
        (6, Does::LockedJob),
        (2, Does::NamedJob),
        (3, Does::SuspendJob),
        (2, Does::EndJob),
        (3, Does::DeleteLock),
        (3, Does::Break),
        (2, Does::Suspend),
        (1, Does::Release),
        (1, Does::DeletePod),
        (1, Does::EditLock),
        (1, Does::Claim),
    ],
    habits: Habits { slots: 0, own_keys: 40, ..Habits::USUAL },
    pace: (400, 1_800),
    trouble: 30,
    jobs: true,
    ..USUAL
};

/// Jobs that hold locks, with pods on machines with faults, while operators restart.
const LOCKED_MACHINES: Theme = Theme {
    name: "locked jobs, machines",
    founders: &[Does::LockedJob, Does::LockedJob, Does::NamedJob, Does::LockedJob],
    own: &[(2, Own::Kill), (1, Own::Blackout)],
    breaks: &[
        (4, Breaks::Cut),
        (3, Breaks::ForceDelete),
        (2, Breaks::DeleteNode),
        (2, Breaks::Lose),
        (1, Breaks::FailWithoutStatuses),
        (1, Breaks::Power),
        (1, Breaks::Exit),
    ],
    does: &[(5, Does::LockedJob), (1, Does::NamedJob), (1, Does::EndJob), (1, Does::DeletePod), (1, Does::SuspendJob)],
    habits: Habits { long: true, slots: 0, own_keys: 40, ..Habits::USUAL },
    trouble: 34,
    ..LOCKED_JOBS
};

/// Jobs that hold locks, while writes fail, leaders are frozen, and members are unreachable.
const LOCKED_WRITES: Theme = Theme {
    name: "locked jobs, writes",
    own: &[
        (2, Own::Kill),
        (2, Own::Stop),
        (1, Own::Suspend),
        (2, Own::CutAll),
        (1, Own::CutApi),
        (1, Own::SlowApi),
        (2, Own::Refuse),
        (2, Own::Lossy),
        (1, Own::Lag),
        (1, Own::Deaf),
        (1, Own::Crash),
    ],
    breaks: &[],
    does: &[
        (6, Does::LockedJob),
        (1, Does::NamedJob),
        (1, Does::EndJob),
        (1, Does::Break),
        (1, Does::DeleteLock),
        (1, Does::SuspendJob),
    ],
    habits: Habits { long: true, slots: 0, own_keys: 40, ..Habits::USUAL },
    ..LOCKED_JOBS
};
