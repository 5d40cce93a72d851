//! The themes of the seeds whose quorums change their members.

use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::super::kinds::Own;
use super::{Theme, USUAL};

/// Themes of the seeds from [`MEMBERS`](crate::plan::MEMBERS) on.
pub(in crate::plan) const MEMBERS: [Theme; 2] = [SIZES, EPOCHS];

/// Quorums that grow and shrink while leaders change and members are unreachable.
const SIZES: Theme = Theme {
    name: "sizes",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[
        (2, Own::Kill),
        (1, Own::Terminate),
        (2, Own::Cut),
        (1, Own::CutAll),
        (1, Own::CutApi),
        (1, Own::Stop),
        (1, Own::Crash),
    ],
    does: &[(6, Does::Resize), (1, Does::Rotate), (1, Does::Roll), (2, Does::Claim), (1, Does::Break)],
    habits: Habits { long: true, slots: 0, ..Habits::USUAL },
    pace: (1_000, 4_000),
    trouble: 40,
    ..USUAL
};

/// Users who edit the membership epoch in the status, also while the members change.
const EPOCHS: Theme = Theme {
    name: "epochs",
    own: &[(2, Own::Kill), (1, Own::Cut), (1, Own::CutAll), (1, Own::CutApi), (1, Own::Crash)],
    does: &[(3, Does::Resize), (5, Does::EditEpoch), (2, Does::Claim), (1, Does::Break)],
    ..SIZES
};
