//! Kinds of faults and actions.

use redlock_simulation::kube::cluster::FaultKind as Breaks;
use redlock_simulation::kube::users::DeedKind as Does;

/// Faults of processes, of the network, of the API server and of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Own {
    Kill,
    Terminate,
    Stop,
    Suspend,
    StepClock,
    Cut,
    HalfCut,
    Slow,
    CutApi,
    SlowApi,
    Deaf,
    Lag,
    Refuse,
    Lossy,
    EndWatches,
    Compact,
    Outage,
    Crash,
    Freeze,
    StepMember,
    DeleteMember,
    CutAll,
    Blackout,
    Part,
    /// Only seeds that use the whole API have it.
    Relist,
    DeafTo,
    Sick,
    /// Only seeds in which the API server's clock is set have it.
    SetApiClock,
    /// Only seeds with external masters have these.
    RestartMaster,
    FlushMaster,
}

impl Own {
    pub(crate) const ALL: [Self; 24] = [
        Self::Kill,
        Self::Terminate,
        Self::Stop,
        Self::Suspend,
        Self::StepClock,
        Self::Cut,
        Self::HalfCut,
        Self::Slow,
        Self::CutApi,
        Self::SlowApi,
        Self::Deaf,
        Self::Lag,
        Self::Refuse,
        Self::Lossy,
        Self::EndWatches,
        Self::Compact,
        Self::Outage,
        Self::Crash,
        Self::Freeze,
        Self::StepMember,
        Self::DeleteMember,
        Self::CutAll,
        Self::Blackout,
        Self::Part,
    ];
}

/// A kind of fault or action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Own(Own),
    Breaks(Breaks),
    Does(Does),
}

/// All kinds.
pub(super) fn everything() -> Vec<What> {
    let own = Own::ALL.into_iter().map(What::Own);
    let own = own.chain(Breaks::ALL.into_iter().map(What::Breaks));
    own.chain(Does::ALL.into_iter().map(What::Does)).collect()
}
