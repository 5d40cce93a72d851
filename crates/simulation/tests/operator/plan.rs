//! What a seed will do, drawn before it begins, so that it can be printed, and shortened fault by fault.

use std::fmt;

use crate::time::At;
use redlock_simulation::kube::api::Kind;
use redlock_simulation::kube::cluster::Mishap;
use redlock_simulation::kube::people::{Deed, Habits};

mod draw;
mod kinds;
mod scenarios;
mod themes;

pub(crate) use self::scenarios::SCENARIOS;
use self::themes::Theme;

/// From this seed on Jobs hold locks: seeds below it keep their histories.
pub(crate) const LOCKED_JOBS: u64 = 100_000;
/// From this seed on locks use the whole API.
pub(crate) const WIDE: u64 = 200_000;
/// From this seed on candidates elect by the Lease of an election.
pub(crate) const ELECTORS: u64 = 300_000;

/// A machine's clocks: the wall clock is wrong by so many milliseconds, all run so many millionths faster than true time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clocks {
    pub(crate) wrong: i64,
    pub(crate) drift: i64,
}

/// One thing that goes wrong, mostly for a while.
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
    /// It forgets its keys, and votes on: only in runs that have to find violations.
    Forget {
        member: usize,
    },
    /// All ways from a process to the members.
    CutAll {
        process: usize,
        length: u64,
    },
    /// Two zones part: one has the API server and the replica that leads, the other one the members and all other replicas.
    Part {
        length: u64,
    },
    /// All members and all replicas restart at once.
    Blackout {
        away: u64,
    },
    /// Something breaks in the cluster.
    Cluster(Mishap),
    /// No API server for one replica, and no history when it is back.
    Relist {
        process: usize,
        length: u64,
    },
    /// The watch of one kind stands still.
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
    /// People do something.
    Deed(Deed),
    /// The same fault at the replica that leads, or at a standby: the first one, the second one.
    AtLeader(Box<Self>),
    AtStandby(usize, Box<Self>),
    /// Somebody makes this object.
    Create(&'static str, serde_json::Value),
    /// Somebody puts this on a lock of the first namespace.
    Annotate(&'static str, &'static str, &'static str),
}

/// Everything that is drawn before the run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Length of the run.
    pub(crate) length: At,
    /// Until then the quorum comes up, and nothing goes wrong.
    pub(crate) quiet: At,
    /// After this everything heals.
    pub(crate) calm: At,
    /// A process gets time in portions of so many microseconds.
    pub(crate) tick: u64,
    pub(crate) members: usize,
    pub(crate) max_ttl: u64,
    pub(crate) keys: usize,
    pub(crate) claims: usize,
    pub(crate) replicas: Vec<Clocks>,
    pub(crate) contenders: Vec<Clocks>,
    pub(crate) servers: Vec<Clocks>,
    pub(crate) api_wrong: i64,
    pub(crate) faults: Vec<(At, Fault)>,
    /// The cluster takes its usual time, and minutes are left for coming to rest.
    pub(crate) long: bool,
    /// A cloud provider runs the machines.
    pub(crate) provider: bool,
    /// There is time for coming to rest, so that it has to be reached.
    pub(crate) settles: bool,
    /// At the end only a majority of the members, one replica and the API server are well.
    pub(crate) core: bool,
    /// What the seed is about, if it is about anything.
    pub(crate) theme: Option<Theme>,
    pub(crate) habits: Habits,
    /// There is a second quorum.
    pub(crate) second: bool,
    /// There is a second namespace of locks.
    pub(crate) annex: bool,
    /// Jobs hold locks.
    pub(crate) jobs: bool,
    /// Candidates elect by the Lease of an election.
    pub(crate) electors: bool,
    /// How many locks a namespace can have, or nothing.
    pub(crate) limit: usize,
    /// A replica that was killed comes back under another name.
    pub(crate) renames: bool,
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
