//! What a seed will do, drawn before it begins, so that it can be printed, and shortened fault by fault.

use std::fmt;

use crate::kube::cluster::{FaultKind, Mishap};
use crate::kube::people::{Deed, DeedKind};
use crate::rng::Rng;
use crate::time::At;

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
    /// Something breaks in the cluster.
    Cluster(Mishap),
    /// People do something.
    Deed(Deed),
}

/// How many kinds of faults there are.
const KINDS: u64 = 20;
/// Those of them that the cluster and people have are drawn by a number above.
const ALL_KINDS: u64 = KINDS + 14 + 32;

/// Everything that is drawn before the run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Length of the run.
    pub(crate) length: At,
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
}

/// Beginning: the quorum comes up meanwhile.
const QUIET: u64 = 7_000_000;

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::of(seed, "plan");
        let with_clocks = rng.percent(40);
        let mut clocks = || Clocks {
            wrong: if with_clocks && rng.percent(50) { wrong(&mut rng) } else { 0 },
            drift: rng.between(0, 8_000) as i64 - 4_000,
        };
        let replicas: Vec<_> = (0..3).map(|_| clocks()).collect();
        let contenders: Vec<_> = (0..2).map(|_| clocks()).collect();
        let servers: Vec<_> = (0..5).map(|_| clocks()).collect();
        let mut plan = Self {
            seed,
            length: At(0),
            calm: At(QUIET + 16_000_000),
            tick: *rng.pick(&[1_000, 1_000, 2_000, 4_000]),
            members: *rng.pick(&[3, 3, 3, 5, 1]),
            max_ttl: *rng.pick(&[3_000, 5_000, 10_000]),
            keys: rng.index(3) + 1,
            claims: rng.index(3) + 1,
            replicas: replicas[..rng.index(2) + 2].to_vec(),
            contenders: contenders[..rng.index(2) + 1].to_vec(),
            servers,
            api_wrong: 0,
            faults: Vec::new(),
            long: seed % 10 == 9,
            provider: rng.percent(50),
            settles: true,
        };
        if plan.long {
            plan.tick = 4_000;
        }
        plan.draw_faults(&mut rng);
        plan.keep(std::env::var("KEEP").ok().as_deref());
        let slow = |fault: &Fault| match fault {
            Fault::Cluster(mishap) => !matches!(mishap.kind, FaultKind::Exit | FaultKind::Ready | FaultKind::Slow),
            Fault::Deed(deed) => {
                matches!(deed.kind, DeedKind::RecreateQuorum | DeedKind::DeleteNamespace | DeedKind::Resize)
            }
            _ => false,
        };
        let slow = plan.faults.iter().any(|(_, fault)| slow(fault));
        plan.settles = plan.long || !slow;
        plan.length = plan.calm
            + if plan.long && slow {
                420_000_000
            } else if plan.settles {
                30_000_000 + (plan.members as u64 + 2) * (plan.max_ttl * 1_000 + 10_000_000)
            } else {
                4_000_000
            };
        plan
    }

    /// Only these faults, by their places in the list: how a plan is made shorter.
    fn keep(&mut self, places: Option<&str>) {
        if let Some(places) = places {
            let kept: Vec<usize> = places.split(',').filter_map(|place| place.parse().ok()).collect();
            let mut place = 0..;
            self.faults.retain(|_| kept.contains(&place.next().unwrap()));
        }
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        // Swarm: which kinds there are in this run. A third of the runs have one kind alone.
        let mut kinds: Vec<u64> = (0..ALL_KINDS).collect();
        rng.shuffle(&mut kinds);
        kinds.truncate(if rng.percent(33) { 1 } else { rng.index(12) + 1 });
        if std::env::var("QUIET").is_ok() {
            kinds.clear();
        }
        let mean = rng.logarithmic(300_000, 4_000_000);
        let mut at = At(QUIET);
        if std::env::var("CONTROL").is_ok_and(|control| control == "forget") {
            let every = |step: u64| At(QUIET + step * 500_000);
            let forgets = (0..30).map(|step| (every(step), Fault::Forget { member: rng.index(self.members) }));
            self.faults = forgets.collect();
            return;
        }
        while !kinds.is_empty() {
            at = at + rng.between(1, 2 * mean);
            if at >= self.calm {
                break;
            }
            let fault = self.draw_fault(*rng.pick(&kinds), rng);
            if self.is_bearable(&fault) {
                self.faults.push((at, fault));
            }
        }
    }

    /// What takes everything down once is enough.
    fn is_bearable(&self, fault: &Fault) -> bool {
        let Fault::Deed(deed) = fault else { return true };
        let drastic = |kind| matches!(kind, DeedKind::RecreateQuorum | DeedKind::DeleteNamespace | DeedKind::Resize);
        let same = |other: &Fault| matches!(other, Fault::Deed(other) if drastic(other.kind));
        !drastic(deed.kind) || !self.faults.iter().any(|(_, other)| same(other))
    }

    fn draw_fault(&self, kind: u64, rng: &mut Rng) -> Fault {
        if kind >= KINDS {
            let (index, number) = (usize::try_from(kind - KINDS).unwrap(), rng.next());
            return match FaultKind::ALL.get(index) {
                Some(kind) => Fault::Cluster(Mishap { kind: *kind, number }),
                None => Fault::Deed(Deed { kind: DeedKind::ALL[index - FaultKind::ALL.len()], number }),
            };
        }
        let replica = rng.index(self.replicas.len());
        let process = rng.index(self.replicas.len() + self.contenders.len());
        let member = rng.index(self.members);
        // As many short as long ones.
        let length = rng.logarithmic(1_000, 10_000_000);
        let by = rng.logarithmic(1_000, 3_000_000);
        let share = rng.between(5, 90);
        match kind {
            0 => Fault::Kill { process, away: length },
            1 => Fault::Terminate { process: replica },
            2 => Fault::Stop { process, length },
            3 => Fault::Suspend { process, length },
            4 => Fault::StepClock { process: replica, by: wrong(rng) },
            5 => Fault::Cut { process, member, up: true, down: true, length },
            6 => Fault::Cut { process, member, up: rng.percent(50), down: true, length },
            7 => Fault::Slow { process, member, by, length },
            8 => Fault::CutApi { process: replica, length },
            9 => Fault::SlowApi { process: replica, by, length },
            10 => Fault::Deaf { process: replica, length },
            11 => Fault::Lag { process: replica, by, length },
            12 => Fault::Refuse { process: replica, share, code: *rng.pick(&[429, 500, 503, 504, 409]), length },
            13 => Fault::Lossy { process: replica, share: share / 2, length },
            14 => Fault::EndWatches { process: replica, mercy: rng.percent(50) },
            15 => Fault::Compact,
            16 => Fault::Outage { length },
            17 => Fault::Crash { member },
            18 => Fault::Freeze { member, length: rng.logarithmic(1_000, 6_000_000) },
            19 if rng.percent(30) => Fault::StepMember { member, by: wrong(rng) },
            _ => Fault::DeletePod { member },
        }
    }
}

/// Milliseconds by which a clock is wrong: a little, seconds, an hour, or a day.
fn wrong(rng: &mut Rng) -> i64 {
    let size = *rng.pick(&[50, 1_500, 8_000, 3_600_000, 86_400_000]);
    let millis = rng.between(size / 2, size) as i64;
    if rng.percent(50) { millis } else { -millis }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, members, max_ttl, keys, claims, tick, .. } = self;
        writeln!(
            f,
            "seed {seed}: {members} members, maxTTL {max_ttl} ms, {keys} keys, {claims} claims each, ticks of {tick} us"
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
