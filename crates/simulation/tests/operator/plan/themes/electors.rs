//! The themes of the seeds whose candidates elect by a Lease.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Theme, USUAL};

/// Themes of the seeds from [`ELECTORS`](crate::plan::ELECTORS) on.
pub(in crate::plan) const ELECTORS: [Theme; 2] = [CANDIDATES, GATE];

/// Candidates on machines that are disconnected or vanish, and leaders that step down.
const CANDIDATES: Theme = Theme {
    name: "candidates",
    own: &[(1, Own::Kill), (1, Own::CutAll)],
    breaks: &[
        (4, Breaks::Cut),
        (2, Breaks::DeleteNode),
        (3, Breaks::Exit),
        (2, Breaks::Ready),
        (1, Breaks::Lose),
        (1, Breaks::ForceDelete),
    ],
    does: &[(4, Does::StepDown), (2, Does::DeletePod), (1, Does::Suspend)],
    habits: Habits { slots: 0, ..Habits::USUAL },
    pace: (1_000, 4_000),
    trouble: 40,
    max_ttl: (10_000, 10_000),
    ..USUAL
};

/// Operators that write late or not at all.
const GATE: Theme = Theme {
    name: "the gate",
    own: &[
        (2, Own::Kill),
        (2, Own::Lag),
        (2, Own::SlowApi),
        (2, Own::CutApi),
        (2, Own::Outage),
        (1, Own::Part),
        (1, Own::Stop),
        (1, Own::StepClock),
    ],
    breaks: &[(2, Breaks::Exit), (1, Breaks::Ready), (1, Breaks::Cut)],
    does: &[(3, Does::StepDown), (1, Does::DeletePod)],
    ..CANDIDATES
};
