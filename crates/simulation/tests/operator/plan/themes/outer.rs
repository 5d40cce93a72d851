//! The themes of the seeds in which the API server's clock is set.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Theme, USUAL};

/// Themes of the seeds from [`OUTER`](crate::plan::OUTER) on.
pub(in crate::plan) const OUTER: [Theme; 2] = [SET_CLOCK, SET_CLOCK_LATE];

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
