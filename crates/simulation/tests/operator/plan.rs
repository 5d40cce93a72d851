//! The plan of a seed, drawn before the run.
//!
//! It can be printed, and shortened fault by fault.

use std::fmt;

use crate::time::At;
use redlock_simulation::kube::api::Kind;
use redlock_simulation::kube::cluster::Mishap;
use redlock_simulation::kube::users::{Deed, Habits};

mod draw;
mod hours;
mod kinds;
mod scenarios;
mod themes;

pub(crate) use self::scenarios::SCENARIOS;
use self::themes::Theme;

/// Jobs hold locks from this seed on.
///
/// Seeds below it keep their histories.
pub(crate) const LOCKED_JOBS: u64 = 100_000;
/// Locks use the whole API from this seed on.
pub(crate) const WIDE: u64 = 200_000;
/// Candidates elect by the Lease of an election from this seed on.
pub(crate) const ELECTORS: u64 = 300_000;
/// Quorums change their members from this seed on.
pub(crate) const MEMBERS: u64 = 400_000;
/// Quorums have external masters, and the API server's clock is set, from this seed on.
pub(crate) const OUTER: u64 = 500_000;

/// Number of external masters that users can list in place of others.
const SPARE_MASTERS: usize = 2;

/// The clocks of a machine: the error of the wall clock in milliseconds, and the drift in millionths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clocks {
    pub(crate) wrong: i64,
    pub(crate) drift: i64,
}

/// How processes do not run for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Stop,
    Suspend,
    Kill,
    /// Each process in another way.
    Mixed,
}

/// One fault or user action, usually for a limited time.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Kill {
        process: usize,
        away: u64,
    },
    Terminate {
        process: usize,
    },
    Stop {
        process: usize,
        length: u64,
    },
    Suspend {
        process: usize,
        length: u64,
    },
    StepClock {
        process: usize,
        by: i64,
    },
    /// The API server's clock is set.
    SetApiClock {
        by: i64,
    },
    Cut {
        process: usize,
        member: usize,
        up: bool,
        down: bool,
        length: u64,
    },
    Slow {
        process: usize,
        member: usize,
        by: u64,
        length: u64,
    },
    CutApi {
        process: usize,
        length: u64,
    },
    SlowApi {
        process: usize,
        by: u64,
        length: u64,
    },
    Deaf {
        process: usize,
        length: u64,
    },
    Lag {
        process: usize,
        by: u64,
        length: u64,
    },
    Refuse {
        process: usize,
        share: u64,
        code: u16,
        length: u64,
    },
    Lossy {
        process: usize,
        share: u64,
        length: u64,
    },
    EndWatches {
        process: usize,
        mercy: bool,
    },
    Compact,
    Outage {
        length: u64,
    },
    Crash {
        member: usize,
    },
    Freeze {
        member: usize,
        length: u64,
    },
    StepMember {
        member: usize,
        by: i64,
    },
    DeletePod {
        member: usize,
    },
    /// An external master restarts with this share of its keys, in percent.
    RestartMaster {
        number: usize,
        kept: u64,
        away: u64,
    },
    /// An external master loses all keys without a restart.
    FlushMaster {
        number: usize,
    },
    /// The member forgets its keys and continues to vote.
    ///
    /// Only runs that must find violations use it.
    Forget {
        member: usize,
    },
    /// Cuts all connections from a process to the members.
    CutAll {
        process: usize,
        length: u64,
    },
    /// A network partition of two zones.
    ///
    /// One has the API server and the leader, the other one the members and all standbys.
    Part {
        length: u64,
    },
    /// All members and all replicas restart at once.
    Blackout {
        away: u64,
    },
    /// A fault of the cluster.
    Cluster(Mishap),
    /// No process of the product runs.
    Standstill {
        how: Pause,
        length: u64,
    },
    /// One replica loses the API server.
    ///
    /// When it returns, the API server no longer has the changes that it missed.
    Relist {
        process: usize,
        length: u64,
    },
    /// The watch of one kind delivers nothing.
    DeafTo {
        process: usize,
        kind: Kind,
        length: u64,
    },
    /// The application of a pod that holds a lock does not answer.
    Sick {
        number: u64,
        length: u64,
    },
    /// An action of a user.
    Deed(Deed),
    /// The same fault at the leader, at the first standby, or at the second one.
    AtLeader(Box<Self>),
    AtStandby(usize, Box<Self>),
    /// A user creates this object.
    Create(&'static str, serde_json::Value),
    /// A user deletes this lock of the first namespace.
    DeleteLock(&'static str),
    /// A user sets or removes an annotation of a lock or a quorum of the first namespace.
    ///
    /// The object is the plural of its kind and its name.
    Annotate((&'static str, &'static str), &'static str, Option<&'static str>),
}

/// All choices that are drawn before the run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Length of the run.
    pub(crate) length: At,
    /// The time of the quorum's start, without faults.
    pub(crate) quiet: At,
    /// The time at which everything heals.
    pub(crate) calm: At,
    /// The microseconds by which a process advances at a time.
    pub(crate) tick: u64,
    pub(crate) members: usize,
    /// Number of external masters of each quorum.
    pub(crate) masters: usize,
    pub(crate) max_ttl: u64,
    pub(crate) keys: usize,
    pub(crate) claims: usize,
    pub(crate) replicas: Vec<Clocks>,
    pub(crate) contenders: Vec<Clocks>,
    pub(crate) servers: Vec<Clocks>,
    pub(crate) api_wrong: i64,
    pub(crate) faults: Vec<(At, Fault)>,
    /// Whether the cluster has its usual delays, and the end lasts minutes.
    pub(crate) long: bool,
    /// Whether a cloud provider runs the machines.
    pub(crate) provider: bool,
    /// Whether at the end only a majority of the members, one replica and the API server are healthy.
    pub(crate) core: bool,
    /// The theme of the seed, if it has one.
    pub(crate) theme: Option<Theme>,
    pub(crate) habits: Habits,
    /// Whether there is a second quorum.
    pub(crate) second: bool,
    /// Whether there is a second namespace of locks.
    pub(crate) annex: bool,
    /// Whether Jobs hold locks.
    pub(crate) jobs: bool,
    /// Whether candidates elect by the Lease of an election.
    pub(crate) electors: bool,
    /// Maximum number of locks in a namespace, if there is a limit.
    pub(crate) limit: usize,
    /// Whether a killed replica returns with another name.
    pub(crate) renames: bool,
    /// Whether the run and the terms of locks last hours.
    pub(crate) hours: bool,
}

impl Plan {
    /// Number of members of a quorum at the beginning.
    pub(crate) const fn voters(&self) -> usize {
        self.members + self.masters
    }

    /// Number of external masters, including those that no list has at the beginning.
    pub(crate) const fn pool(&self) -> usize {
        if self.masters > 0 { self.masters + SPARE_MASTERS } else { 0 }
    }

    /// Whether two quorums have the same external masters.
    pub(crate) const fn shares_masters(&self) -> bool {
        self.masters > 0 && self.second
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, members, max_ttl, keys, claims, tick, .. } = self;
        let theme = self.theme.map_or("everything", |theme| theme.name);
        writeln!(
            f,
            "seed {seed}, {theme}: {members} members, maxTTL {max_ttl} ms, {keys} keys, {claims} claims each, ticks of {tick} us"
        )?;
        writeln!(
            f,
            "replicas {:?} contenders {:?} members {:?}",
            self.replicas,
            self.contenders,
            &self.servers[..*members]
        )?;
        self.faults.iter().try_for_each(|(at, fault)| writeln!(f, "{at} {fault:?}"))
    }
}
