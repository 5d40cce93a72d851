//! The themes of the seeds whose locks use the whole API.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Theme, USUAL};

/// Themes of the seeds from [`WIDE`](crate::plan::WIDE) on.
pub(in crate::plan) const WIDE: [Theme; 3] = [ANSWERS, AWAY, QUEUES];

const HABITS: Habits = Habits { wide: true, ..Habits::USUAL };

/// Pods with liveness checks, on nodes that are cordoned.
const ANSWERS: Theme = Theme {
    name: "answers",
    founders: &[Does::Elect, Does::PodClaim, Does::Elect, Does::OwnedClaim],
    own: &[(4, Own::Sick), (1, Own::Kill), (1, Own::Terminate)],
    breaks: &[(2, Breaks::Cordon), (1, Breaks::Ready), (1, Breaks::Exit)],
    does: &[
        (2, Does::Elect),
        (2, Does::PodClaim),
        (2, Does::OwnedClaim),
        (1, Does::StepDown),
        (1, Does::DeletePod),
        (1, Does::DeleteLock),
        (1, Does::Rollout),
    ],
    habits: Habits { slots: 0, own_keys: 60, long: true, ..HABITS },
    pace: (700, 2_500),
    trouble: 30,
    ..USUAL
};

/// Replicas that lose the API server for longer than a ttl, list again, and get other names.
const AWAY: Theme = Theme {
    name: "away",
    founders: &[Does::Elect, Does::Claim, Does::Claim, Does::Elect],
    own: &[(5, Own::Relist), (2, Own::DeafTo), (3, Own::Kill), (1, Own::CutAll), (1, Own::Terminate)],
    does: &[(2, Does::StepDown), (2, Does::BreakForce), (2, Does::Break), (2, Does::Claim), (1, Does::Suspend)],
    habits: Habits { slots: 0, own_keys: 60, transitions: 60, long: true, ..HABITS },
    pace: (1_500, 5_000),
    trouble: 40,
    max_ttl: (5_000, 5_000),
    ..USUAL
};

/// Claims that wait for one key, with many slots, delays, limits and priorities.
const QUEUES: Theme = Theme {
    name: "queues",
    founders: &[Does::Claim, Does::Claim, Does::Claim, Does::Claim],
    own: &[(1, Own::Kill), (1, Own::Terminate)],
    does: &[
        (6, Does::Claim),
        (3, Does::Release),
        (2, Does::Break),
        (2, Does::Suspend),
        (2, Does::DeleteLock),
        (1, Does::StopBeating),
        (1, Does::EditLock),
    ],
    habits: Habits { slots: 25, priority: 50, heartbeats: 25, ..HABITS },
    pace: (500, 2_000),
    trouble: 30,
    ..USUAL
};
