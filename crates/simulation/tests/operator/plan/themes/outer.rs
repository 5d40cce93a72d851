//! The themes of the seeds with external masters, with an API server whose clock is set, and with terms of hours.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Masters, Theme, USUAL};

/// Themes of the seeds from [`OUTER`](crate::plan::OUTER) on.
pub(in crate::plan) const OUTER: [Theme; 6] =
    [SET_CLOCK, MASTERS, HOURS, SET_CLOCK_LATE, SHARED_MASTERS, REPLACED_MASTERS];

/// An API server whose clock is set by seconds or minutes, while limits of time run and leaders change.
const SET_CLOCK: Theme = Theme {
    name: "set clock",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[(6, Own::SetApiClock), (2, Own::Kill), (1, Own::Terminate), (1, Own::Crash)],
    breaks: &[(1, Breaks::Exit)],
    does: &[(2, Does::Break), (1, Does::Suspend), (1, Does::StepDown), (4, Does::Claim), (1, Does::DeleteLock)],
    habits: Habits { wide: true, long: true, slots: 0, own_keys: 50, minimum: 35, heartbeats: 25, ..Habits::USUAL },
    pace: (700, 2_500),
    trouble: 35,
    ..USUAL
};

/// The same, while requests are late and replicas reach neither the API server nor the members for a while.
const SET_CLOCK_LATE: Theme = Theme {
    name: "set clock, late requests",
    own: &[
        (6, Own::SetApiClock),
        (2, Own::CutApi),
        (1, Own::SlowApi),
        (1, Own::Stop),
        (1, Own::Suspend),
        (1, Own::CutAll),
        (1, Own::Kill),
    ],
    breaks: &[(1, Breaks::Cut)],
    ..SET_CLOCK
};

/// External masters that restart with and without their data, or are unreachable.
const MASTERS: Theme = Theme {
    name: "masters",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[
        (5, Own::RestartMaster),
        (1, Own::FlushMaster),
        (2, Own::Cut),
        (1, Own::Freeze),
        (1, Own::CutAll),
        (2, Own::Kill),
        (1, Own::CutApi),
    ],
    breaks: &[(1, Breaks::Exit)],
    does: &[(1, Does::Break), (1, Does::StepDown), (3, Does::Claim), (1, Does::LowerMaxTtl)],
    habits: Habits { long: true, slots: 0, named: 100, ..Habits::USUAL },
    pace: (800, 3_000),
    trouble: 40,
    masters: Masters::Some,
    ..USUAL
};

/// Two quorums with the same masters and the same keys.
const SHARED_MASTERS: Theme = Theme {
    name: "shared masters",
    does: &[(1, Does::Break), (1, Does::StepDown), (4, Does::Claim), (1, Does::DeleteLock)],
    second: true,
    masters: Masters::Shared,
    ..MASTERS
};

/// Users who list another master in place of one.
const REPLACED_MASTERS: Theme = Theme {
    name: "replaced masters",
    own: &[(2, Own::RestartMaster), (1, Own::Cut), (1, Own::CutAll), (2, Own::Kill)],
    does: &[(3, Does::ReplaceMaster), (1, Does::Break), (3, Does::Claim)],
    pace: (2_000, 5_000),
    masters: Masters::Replaced,
    ..MASTERS
};

/// Locks with terms of hours, and replicas that do not run for hours.
const HOURS: Theme = Theme {
    name: "hours",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim, Does::OwnedClaim],
    habits: Habits { wide: true, long: true, slots: 0, own_keys: 50, minimum: 30, heartbeats: 0, ..Habits::USUAL },
    max_ttl: (3_600_000, 3_600_000),
    hours: true,
    ..USUAL
};
