//! What a seed will do, drawn before it begins, so that it can be printed, and shortened fault by fault.

use std::fmt;

use crate::kube::cluster::{FaultKind, Mishap};
use crate::kube::people::{Deed, DeedKind};
use crate::rng::Rng;
use crate::time::At;
use crate::world::{Event, World};

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
        plan.draw_faults(&mut rng);
        let slow = |fault: &Fault| match fault {
            Fault::Cluster(mishap) => !matches!(mishap.kind, FaultKind::Exit | FaultKind::Ready | FaultKind::Slow),
            Fault::Deed(deed) => {
                matches!(deed.kind, DeedKind::RecreateQuorum | DeedKind::DeleteNamespace | DeedKind::Resize)
            }
            _ => false,
        };
        let slow = plan.faults.iter().any(|(_, fault)| slow(fault));
        plan.settles = plan.long || !slow;
        plan.length = plan.calm + if plan.long && slow { 420_000_000 } else { 14_000_000 };
        plan
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

impl World {
    fn way_to(&self, process: usize, member: usize) -> Option<(usize, String)> {
        Some((process, self.servers.all[self.server_of(member)?].host.clone()))
    }

    pub(crate) fn fault(&mut self, fault: &Fault) {
        self.oracle.counts.faults += 1;
        self.note(format_args!("FAULT {fault:?}"));
        let healed = |length: u64, world: &mut Self| world.queue.push(world.now + length, Event::Healed(fault.clone()));
        match *fault {
            Fault::Kill { process, away } => self.kill_process(process, away),
            Fault::Terminate { process } => self.processes[process].terminate(),
            Fault::Stop { process, length } => {
                self.processes[process].pace = crate::process::Pace::Stopped;
                healed(length, self);
            }
            Fault::Suspend { process, length } => {
                self.processes[process].pace = crate::process::Pace::Suspended;
                healed(length, self);
            }
            Fault::StepClock { process, by } => self.processes[process].clock.step(by * 1_000),
            Fault::Cut { process, member, up, down, length } => {
                if let Some(way) = self.way_to(process, member) {
                    self.cut(&way, up, down);
                }
                healed(length, self);
            }
            Fault::Slow { process, member, by, length } => {
                if let Some(way) = self.way_to(process, member) {
                    self.network.ways.entry(way).or_default().slow = by;
                }
                healed(length, self);
            }
            Fault::CutApi { process, length } => {
                self.api_weather(process, |weather| weather.cut = true);
                healed(length, self);
            }
            Fault::SlowApi { process, by, length } => {
                self.api_weather(process, |weather| weather.slow = by);
                healed(length, self);
            }
            Fault::Deaf { process, length } => {
                self.api_weather(process, |weather| weather.deaf = true);
                healed(length, self);
            }
            Fault::Lag { process, by, length } => {
                self.api_weather(process, |weather| weather.lag = by);
                healed(length, self);
            }
            Fault::Refuse { process, share, code, length } => {
                self.api_weather(process, |weather| weather.refused = Some((share, code)));
                healed(length, self);
            }
            Fault::Lossy { process, share, length } => {
                self.api_weather(process, |weather| weather.lossy = share);
                healed(length, self);
            }
            Fault::EndWatches { process, mercy } => self.cut_watches(process, mercy),
            Fault::Compact => {
                let version = self.api.server.version();
                self.api.server.compact(version);
                (0..self.plan.replicas.len()).for_each(|process| self.cut_watches(process, true));
            }
            Fault::Outage { length } => {
                (0..self.plan.replicas.len())
                    .for_each(|process| self.api_weather(process, |weather| weather.cut = true));
                healed(length, self);
            }
            Fault::Crash { member } => {
                if let Some(container) = self.container_of(member) {
                    self.inflict(&crate::kube::cluster::Fault::Exit { container, code: 137 });
                }
            }
            Fault::Cluster(mishap) => {
                if let Some(fault) = mishap.resolve(&self.cluster.cluster, &self.api.server) {
                    self.note(format_args!("{fault:?}"));
                    self.inflict(&fault);
                }
            }
            Fault::Deed(deed) => self.deed(deed),
            Fault::Freeze { member, length } => {
                if let Some(server) = self.server_of(member) {
                    self.freeze_server(server);
                }
                healed(length, self);
            }
            Fault::StepMember { member, by } => {
                self.oracle.stepped = true;
                if let Some(server) = self.server_of(member) {
                    self.servers.all[server].wrong += by * 1_000;
                }
            }
            Fault::DeletePod { member } => {
                let path = format!("/api/v1/namespaces/{}/pods/q-{member}-0", crate::people::SHOP);
                self.api_request("DELETE", &path, "application/json", &serde_json::Value::Null);
            }
        }
    }

    pub(crate) fn heal(&mut self, fault: &Fault) {
        self.note(format_args!("healed {fault:?}"));
        match *fault {
            Fault::Stop { process, .. } | Fault::Suspend { process, .. } => {
                self.processes[process].pace = crate::process::Pace::Running;
            }
            Fault::Cut { process, .. } => {
                let ways: Vec<_> = self.network.ways.keys().filter(|way| way.0 == process).cloned().collect();
                ways.iter().for_each(|way| self.mend(way));
            }
            Fault::Slow { process, .. } => {
                let ways = self.network.ways.iter_mut().filter(|(way, _)| way.0 == process);
                ways.for_each(|(_, weather)| weather.slow = 0);
            }
            Fault::CutApi { process, .. } => self.api_weather(process, |weather| weather.cut = false),
            Fault::SlowApi { process, .. } => self.api_weather(process, |weather| weather.slow = 0),
            Fault::Deaf { process, .. } => self.api_weather(process, |weather| weather.deaf = false),
            Fault::Lag { process, .. } => self.api_weather(process, |weather| weather.lag = 0),
            Fault::Refuse { process, .. } => self.api_weather(process, |weather| weather.refused = None),
            Fault::Lossy { process, .. } => self.api_weather(process, |weather| weather.lossy = 0),
            Fault::Outage { .. } => {
                (0..self.plan.replicas.len())
                    .for_each(|process| self.api_weather(process, |weather| weather.cut = false));
            }
            Fault::Freeze { member, .. } => {
                if let Some(server) = self.server_of(member) {
                    self.thaw_server(server);
                }
            }
            _ => {}
        }
    }

    /// Whatever is still wrong is put right, but for wrong clocks and for what has died.
    pub(crate) fn heal_all(&mut self) {
        self.note(format_args!("everything heals"));
        for (_, fault) in self.plan.faults.clone() {
            self.heal(&fault);
        }
        self.cluster_heals();
        self.people_rest();
    }
}
