//! Themes of seeds.
//!
//! Half of the seeds draw from all faults, which finds unexpected cases. The others have a theme: which workloads hold
//! locks, and which few faults occur. Therefore the long sequences behind the rules happen often enough.

use redlock_simulation::kube::cluster::{Aim, FaultKind as Breaks};
use redlock_simulation::kube::users::{DeedKind as Does, Habits};

use super::kinds::{Own, What};

mod electors;
mod locked;
mod members;
mod outer;
mod wide;

pub(super) use self::electors::ELECTORS;
pub(super) use self::locked::LOCKED;
pub(super) use self::members::MEMBERS;
pub(super) use self::outer::OUTER;
pub(super) use self::wide::WIDE;

/// The theme of a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) name: &'static str,
    /// Actions of users before the first fault.
    pub(super) founders: &'static [Does],
    pub(super) own: &'static [(usize, Own)],
    pub(super) breaks: &'static [(usize, Breaks)],
    pub(super) does: &'static [(usize, Does)],
    /// The range of the mean time between two faults, in milliseconds.
    pub(super) pace: (u64, u64),
    /// How long faults occur, in seconds.
    pub(super) trouble: u64,
    /// Maximum number of keys.
    pub(super) keys: usize,
    /// The range of the quorum's maxTTL.
    pub(super) max_ttl: (u64, u64),
    pub(super) habits: Habits,
    /// Whether there is a second quorum.
    pub(super) second: bool,
    /// Whether there is a second namespace of locks with the same keys.
    pub(super) annex: bool,
    pub(super) aim: Aim,
    /// Whether all clocks are wrong.
    pub(super) clocks: bool,
    /// Whether replicas end one after the other, as in an upgrade.
    pub(super) rolls: bool,
    /// Whether Jobs hold locks.
    pub(super) jobs: bool,
    pub(super) masters: Masters,
    /// Whether the run and the terms of locks last hours.
    pub(super) hours: bool,
}

/// External masters of the quorums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Masters {
    None,
    Some,
    /// Users replace them in the list.
    Replaced,
    /// Two quorums have the same ones.
    Shared,
}

const USUAL: Theme = Theme {
    name: "",
    founders: &[],
    own: &[],
    breaks: &[],
    does: &[],
    pace: (300, 1_500),
    trouble: 18,
    keys: 1,
    max_ttl: (5_000, 10_000),
    habits: Habits::USUAL,
    second: false,
    annex: false,
    aim: Aim::Holders,
    clocks: false,
    rolls: false,
    jobs: false,
    masters: Masters::None,
    hours: false,
};

/// Themes that need minutes with the cluster's usual delays.
pub(super) const LONG: [Theme; 1] = [TWINS];

pub(super) const SHORT: [Theme; 13] =
    [PODS, JOBS, ENDINGS, REACH, DEFAULTS, SHAPES, CLOCKS, WRITES, FENCE, REMAKES, NAMESPACES, LIMITS, LEADERS];

/// Rare themes: one in eight of the seeds without a theme has one of them instead.
pub(super) const RARE: [Theme; 2] = [FORCED, BEATS];

/// Pods that hold locks, on machines that vanish, are disconnected, or cannot locate their containers.
const PODS: Theme = Theme {
    name: "pods",
    founders: &[Does::Elect, Does::PodClaim, Does::PodClaim, Does::Elect, Does::PodClaim],
    own: &[(1, Own::Kill)],
    breaks: &[
        (4, Breaks::Cut),
        (4, Breaks::DeleteNode),
        (1, Breaks::RestartKubelet),
        (3, Breaks::Lose),
        (2, Breaks::ForceDelete),
        (1, Breaks::FailWithoutStatuses),
        (1, Breaks::Exit),
        (1, Breaks::Ready),
        (1, Breaks::Power),
    ],
    does: &[(4, Does::PodClaim), (1, Does::Elect), (1, Does::DeletePod), (1, Does::StepDown), (1, Does::Rollout)],
    habits: Habits { long: true, slots: 0, own_keys: 60, ..Habits::USUAL },
    pace: (500, 2_000),
    trouble: 22,
    ..USUAL
};

/// Claims of Jobs whose pods run through their grace period, or on disconnected machines.
const JOBS: Theme = Theme {
    name: "jobs",
    founders: &[Does::JobClaim, Does::JobClaim, Does::JobClaim, Does::JobClaim],
    own: &[(1, Own::Kill)],
    breaks: &[(3, Breaks::Cut), (4, Breaks::ForceDelete), (1, Breaks::DeleteNode)],
    does: &[
        (5, Does::JobClaim),
        (5, Does::EndJob),
        (2, Does::Suspend),
        (2, Does::Break),
        (1, Does::DeleteLock),
        (1, Does::SuspendJob),
        (1, Does::StopBeating),
    ],
    habits: Habits { long: true, slots: 0, own_keys: 60, ..Habits::USUAL },
    ..USUAL
};

/// Holds that expire, while writes fail and leaders change.
const ENDINGS: Theme = Theme {
    name: "endings",
    founders: &[Does::Claim, Does::JobClaim, Does::ForeignClaim, Does::Claim],
    own: &[(1, Own::Kill), (8, Own::Refuse), (1, Own::Lossy), (1, Own::Lag), (1, Own::Terminate)],
    does: &[
        (6, Does::Suspend),
        (6, Does::Break),
        (1, Does::StepDown),
        (2, Does::DeleteLock),
        (5, Does::Claim),
        (2, Does::ForeignClaim),
        (2, Does::EndOwner),
        (1, Does::JobClaim),
        (2, Does::EndJob),
        (2, Does::Release),
        (1, Does::StopBeating),
        (1, Does::EditLock),
    ],
    habits: Habits { slots: 0, transitions: 90, minimum: 0, own_keys: 70, ..Habits::USUAL },
    pace: (600, 2_000),
    ..USUAL
};

/// Replicas that reach no members while holds end.
const REACH: Theme = Theme {
    name: "reach",
    founders: &[Does::Elect, Does::PodClaim, Does::Claim, Does::ForeignClaim],
    own: &[(5, Own::Part), (1, Own::CutAll), (1, Own::Kill)],
    breaks: &[(1, Breaks::Ready)],
    does: &[
        (4, Does::Break),
        (1, Does::Suspend),
        (4, Does::StepDown),
        (1, Does::DeleteLock),
        (2, Does::Claim),
        (1, Does::Elect),
        (1, Does::DeletePod),
        (1, Does::EditLock),
    ],
    habits: Habits { slots: 0, own_keys: 40, ..Habits::USUAL },
    pace: (600, 2_000),
    trouble: 26,
    max_ttl: (3_000, 3_000),
    ..USUAL
};

/// The default quorum moves, and replicas restart that had the earlier default in memory.
const DEFAULTS: Theme = Theme {
    name: "defaults",
    founders: &[Does::Claim, Does::Claim, Does::Elect, Does::Claim],
    own: &[(3, Own::Kill), (1, Own::Terminate), (1, Own::CutAll)],
    does: &[
        (4, Does::MoveDefault),
        (3, Does::Claim),
        (1, Does::Break),
        (1, Does::Suspend),
        (2, Does::DeleteLock),
        (1, Does::LowerMaxTtl),
    ],
    habits: Habits { long: true, slots: 0, named: 15, ..Habits::USUAL },
    second: true,
    ..USUAL
};

/// Claims that use a key with other numbers of slots.
const SHAPES: Theme = Theme {
    name: "shapes",
    founders: &[Does::Claim, Does::Claim, Does::Claim],
    own: &[(1, Own::Kill)],
    does: &[(6, Does::Claim), (4, Does::DeleteLock), (1, Does::Break), (1, Does::RecreateLock), (1, Does::Suspend)],
    habits: Habits { slots: 50, named: 100, priority: 60, ..Habits::USUAL },
    ..USUAL
};

/// Wrong wall clocks that step, while leaders change and holds expire.
const CLOCKS: Theme = Theme {
    name: "clocks",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[
        (4, Own::StepClock),
        (3, Own::Kill),
        (2, Own::CutApi),
        (1, Own::CutAll),
        (1, Own::Suspend),
        (2, Own::Crash),
        (1, Own::Terminate),
    ],
    does: &[(2, Does::Break), (2, Does::Suspend), (2, Does::Claim), (1, Does::DeletePod), (1, Does::EditLockStatus)],
    habits: Habits { long: true, slots: 0, ..Habits::USUAL },
    clocks: true,
    ..USUAL
};

/// Writes that are refused, lost, or late, while leaders change.
const WRITES: Theme = Theme {
    name: "writes",
    founders: &[Does::Claim, Does::Elect],
    own: &[
        (3, Own::Refuse),
        (3, Own::Lossy),
        (3, Own::SlowApi),
        (3, Own::CutApi),
        (1, Own::Stop),
        (2, Own::Kill),
        (1, Own::Lag),
        (1, Own::Cut),
    ],
    does: &[(2, Does::Claim), (1, Does::EditLock), (2, Does::DeleteLock), (1, Does::Break), (1, Does::EditLockStatus)],
    habits: Habits { slots: 0, ..Habits::USUAL },
    pace: (200, 900),
    ..USUAL
};

/// Members that restart, hang and forget.
const FENCE: Theme = Theme {
    name: "fence",
    founders: &[Does::Claim, Does::Elect],
    own: &[
        (5, Own::Crash),
        (2, Own::DeleteMember),
        (1, Own::Freeze),
        (1, Own::Cut),
        (1, Own::Kill),
        (1, Own::Blackout),
        (1, Own::CutApi),
    ],
    breaks: &[(1, Breaks::Exit)],
    does: &[(1, Does::Claim), (1, Does::Break), (1, Does::Roll)],
    habits: Habits { long: true, slots: 0, ..Habits::USUAL },
    pace: (1_000, 4_000),
    trouble: 24,
    ..USUAL
};

/// Quorums that are deleted and created again with other limits, while earlier holds are valid.
const REMAKES: Theme = Theme {
    name: "remakes",
    founders: &[Does::Elect, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[(1, Own::Kill)],
    does: &[(3, Does::RecreateQuorum), (1, Does::DeletePod), (1, Does::Claim)],
    habits: Habits { long: true, slots: 0, named: 100, own_keys: 30, ..Habits::USUAL },
    pace: (1_500, 4_000),
    trouble: 20,
    max_ttl: (10_000, 10_000),
    ..USUAL
};

/// Quorums whose finalizers users remove.
const FORCED: Theme = Theme {
    name: "forced",
    founders: &[Does::Claim, Does::Elect, Does::PodClaim, Does::Claim],
    own: &[(1, Own::Kill), (1, Own::CutApi)],
    does: &[(2, Does::ForceQuorum), (1, Does::DeletePod), (1, Does::Break), (5, Does::Claim)],
    habits: Habits { long: true, slots: 0, named: 100, ..Habits::USUAL },
    trouble: 20,
    max_ttl: (10_000, 10_000),
    ..USUAL
};

/// Claims with minHold, whose holders stop their heartbeat or release the lock.
const BEATS: Theme = Theme {
    name: "beats",
    founders: &[Does::Claim, Does::Claim, Does::Claim, Does::StopBeating],
    own: &[(1, Own::Kill), (1, Own::Terminate), (1, Own::CutApi)],
    does: &[(4, Does::Claim), (4, Does::StopBeating), (2, Does::Release), (1, Does::DeleteLock)],
    habits: Habits { slots: 0, heartbeats: 90, minimum: 90, own_keys: 80, ..Habits::USUAL },
    ..USUAL
};

/// A namespace is deleted with its claims and pods, while other namespaces use the same keys.
const NAMESPACES: Theme = Theme {
    name: "namespaces",
    founders: &[Does::Claim, Does::Claim, Does::PodClaim, Does::Claim, Does::ForeignClaim],
    own: &[(1, Own::Lag), (1, Own::Kill)],
    does: &[
        (2, Does::DeleteNamespace),
        (4, Does::Claim),
        (2, Does::ForeignClaim),
        (1, Does::EndOwner),
        (1, Does::JobClaim),
        (1, Does::DeleteLock),
    ],
    habits: Habits { long: true, slots: 0, named: 100, own_keys: 50, ..Habits::USUAL },
    annex: true,
    ..USUAL
};

/// Limits that are lowered below the lengths of current holds, before operators restart.
const LIMITS: Theme = Theme {
    name: "limits",
    founders: &[Does::Claim, Does::Claim, Does::Elect],
    own: &[(4, Own::Terminate), (1, Own::EndWatches)],
    does: &[
        (4, Does::LowerMaxTtl),
        (3, Does::EditQuorum),
        (2, Does::Claim),
        (2, Does::EditLock),
        (1, Does::DeleteLock),
        (3, Does::EditLockStatus),
    ],
    habits: Habits { long: true, slots: 0, ..Habits::USUAL },
    rolls: true,
    trouble: 24,
    ..USUAL
};

/// Leaders that are stopped or disconnected from the API server or the members, and return.
const LEADERS: Theme = Theme {
    name: "leaders",
    founders: &[Does::Elect, Does::Elect, Does::Claim],
    own: &[
        (3, Own::Stop),
        (2, Own::Suspend),
        (2, Own::CutApi),
        (2, Own::CutAll),
        (2, Own::Kill),
        (1, Own::Terminate),
        (1, Own::Deaf),
        (1, Own::Outage),
    ],
    breaks: &[(2, Breaks::Ready), (1, Breaks::Exit)],
    does: &[(2, Does::StepDown), (1, Does::DeletePod), (1, Does::MoveLabel), (2, Does::Claim), (1, Does::Release)],
    habits: Habits { long: true, slots: 0, transitions: 60, own_keys: 40, ..Habits::USUAL },
    ..USUAL
};

/// Members on machines that other machines replace, some of them with the same IDs.
const TWINS: Theme = Theme {
    name: "twins",
    founders: &[Does::Claim],
    own: &[(1, Own::Kill)],
    breaks: &[(1, Breaks::Cut), (6, Breaks::ReplaceNode), (2, Breaks::ForceDelete)],
    habits: Habits { long: true, slots: 0, ..Habits::USUAL },
    // A node has to be Ready for two minutes before it is evidence of its earlier containers.
    pace: (15_000, 40_000),
    trouble: 170,
    aim: Aim::Members,
    ..USUAL
};

impl Theme {
    /// All kinds of the theme.
    ///
    /// Kinds that occur more often are more likely.
    pub(super) fn kinds(&self) -> Vec<What> {
        let own = self.own.iter().flat_map(|(times, own)| vec![What::Own(*own); *times]);
        let breaks = self.breaks.iter().flat_map(|(times, breaks)| vec![What::Breaks(*breaks); *times]);
        let does = self.does.iter().flat_map(|(times, does)| vec![What::Does(*does); *times]);
        own.chain(breaks).chain(does).collect()
    }
}
