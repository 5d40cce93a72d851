//! Draws a plan from its seed.

use crate::rng::Rng;
use crate::time::At;
use redlock_simulation::kube::api::Kind;
use redlock_simulation::kube::cluster::{Aim, FaultKind, Mishap};
use redlock_simulation::kube::users::{Deed, DeedKind, Habits};

use super::kinds::{self, Own, What};
use super::scenarios;
use super::themes::{self, Masters, Theme};
use super::{Clocks, ELECTORS, Fault, LOCKED_JOBS, MEMBERS, OUTER, Plan, WIDE};

/// The time of the quorum's start, without faults.
const QUIET: u64 = 7_000_000;
/// The time within which a terminated replica has a successor with all state.
const REPLACED: u64 = 4_000_000;

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::of(seed, "plan");
        let long = seed % 10 == 9 && seed < LOCKED_JOBS;
        let theme = draw_theme(seed, long);
        let (with_clocks, mut clocks_of) = (rng.percent(40), Rng::of(seed, "clocks"));
        let with_clocks = with_clocks || theme.is_some_and(|theme| theme.clocks);
        let mut clocks = || Clocks {
            wrong: if with_clocks && clocks_of.percent(50) { wrong(&mut clocks_of) } else { 0 },
            drift: clocks_of.between(0, 8_000) as i64 - 4_000,
        };
        let replicas: Vec<_> = (0..3).map(|_| clocks()).collect();
        let contenders: Vec<_> = (0..2).map(|_| clocks()).collect();
        let servers: Vec<_> = (0..5).map(|_| clocks()).collect();
        let (keys, ttls) = theme.map_or((3, (0, 10_000)), |theme| (theme.keys, theme.max_ttl));
        let mut plan = Self {
            seed,
            length: At(0),
            quiet: At(QUIET),
            calm: At(0),
            tick: *rng.pick(&[1_000, 1_000, 2_000, 4_000]),
            members: *rng.pick(&[3, 3, 3, 5, 1]),
            masters: 0,
            max_ttl: *rng.pick(&[3_000, 5_000, 10_000]).clamp(&ttls.0, &ttls.1),
            keys: rng.index(keys) + 1,
            claims: rng.index(3) + 1,
            replicas: replicas[..rng.index(2) + 2].to_vec(),
            contenders: contenders[..rng.index(2) + 1].to_vec(),
            servers,
            api_wrong: 0,
            faults: Vec::new(),
            long,
            provider: rng.percent(50),
            core: rng.percent(25),
            habits: theme.map_or(Habits::USUAL, |theme| theme.habits),
            second: theme.map_or(rng.percent(10), |theme| theme.second),
            annex: theme.map_or(rng.percent(10), |theme| theme.annex),
            jobs: theme.is_some_and(|theme| theme.jobs),
            electors: (ELECTORS..MEMBERS).contains(&seed),
            limit: 0,
            renames: false,
            hours: theme.is_some_and(|theme| theme.hours),
            theme,
        };
        if let Some(scenario) = scenarios::wanted() {
            plan.follow(scenario);
            return plan;
        }
        if (WIDE..ELECTORS).contains(&seed) {
            let mut wide = Rng::of(seed, "wide");
            plan.limit = if wide.percent(20) { wide.index(4) + 5 } else { 0 };
            plan.renames = wide.percent(50);
        }
        if let Some(theme) = theme.filter(|theme| theme.masters != Masters::None) {
            (plan.members, plan.masters) = match theme.masters {
                Masters::Shared => (0, 3),
                _ => *Rng::of(seed, "masters").pick(&[(0, 3), (0, 3), (0, 5), (1, 2), (2, 1)]),
            };
            plan.core &= theme.masters != Masters::Replaced;
        }
        let mut api = Rng::of(seed, "api clock");
        plan.api_wrong =
            if (with_clocks || (WIDE..ELECTORS).contains(&seed)) && api.percent(30) { wrong(&mut api) } else { 0 };
        if plan.long {
            plan.tick = 4_000;
        }
        if theme.is_some() {
            (plan.claims, plan.quiet) = (plan.claims.min(2), plan.quiet.max(At((plan.max_ttl + 2_500) * 1_000)));
        }
        plan.calm = plan.quiet + theme.map_or(16, |theme| theme.trouble) * 1_000_000;
        plan.draw_faults(&mut rng);
        if plan.hours {
            plan.draw_hours();
        }
        plan.keep(std::env::var("KEEP").ok().as_deref());
        if plan.electors {
            plan.claims = 0;
            plan.faults.extend(scenarios::electors(&mut Rng::of(seed, "electors")));
        }
        if !plan.hours {
            plan.take_time();
        }
        plan
    }

    /// Whether nothing prevents renewals.
    ///
    /// Replicas are only terminated, one after the other, and users do nothing drastic.
    pub(crate) fn is_gentle(&self) -> bool {
        let gentle = |fault: &Fault| match fault {
            Fault::Terminate { .. } | Fault::EndWatches { .. } => true,
            Fault::Deed(deed) => {
                !is_drastic(deed.kind) && !matches!(deed.kind, DeedKind::Roll | DeedKind::Meddle | DeedKind::DeletePod)
            }
            _ => false,
        };
        let only_gentle = self.faults.iter().all(|(at, fault)| gentle(fault) || *at >= self.calm);
        !self.core && self.voters() > 1 && only_gentle && self.replicas_end_one_by_one()
    }

    /// Whether users remove or resize objects that protect holds.
    pub(crate) fn is_drastic(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Deed(deed) if is_drastic(deed.kind)))
    }

    /// Whether a terminated replica can always hand over to another replica.
    ///
    /// A Deployment creates its successor at once. Here it starts only after the end.
    fn replicas_end_one_by_one(&self) -> bool {
        let ends = self.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Terminate { .. }));
        let mut ends: Vec<_> = ends.map(|(at, _)| at.0).collect();
        ends.sort_unstable();
        ends.windows(2).all(|pair| pair[1] - pair[0] >= REPLACED)
    }

    /// Whether every replica runs and reaches all members all the time.
    pub(crate) fn keeps_members_in_reach(&self) -> bool {
        let away = |fault: &Fault| match fault {
            Fault::Refuse { .. }
            | Fault::Lossy { .. }
            | Fault::Lag { .. }
            | Fault::SlowApi { .. }
            | Fault::CutApi { .. }
            | Fault::Deaf { .. }
            | Fault::Outage { .. }
            | Fault::EndWatches { .. }
            | Fault::Compact => false,
            Fault::Deed(deed) => {
                is_drastic(deed.kind) || matches!(deed.kind, DeedKind::Roll | DeedKind::Meddle | DeedKind::DeletePod)
            }
            _ => true,
        };
        !self.core && !self.faults.iter().any(|(_, fault)| away(fault))
    }

    /// Whether the API server's clock is set during the run.
    pub(crate) fn sets_clock(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::SetApiClock { .. }))
    }

    /// Whether requests of a leader can arrive after the end of its term.
    pub(crate) fn has_late_requests(&self) -> bool {
        let late = |fault: &Fault| {
            matches!(
                fault,
                Fault::Stop { .. }
                    | Fault::Suspend { .. }
                    | Fault::CutApi { .. }
                    | Fault::SlowApi { .. }
                    | Fault::Outage { .. }
                    | Fault::Standstill { .. }
            )
        };
        self.core || self.faults.iter().any(|(_, fault)| late(fault))
    }

    /// Sets how long the end of the run takes to settle.
    pub(super) fn take_time(&mut self) {
        let slow = self.faults.iter().any(|(_, fault)| takes_minutes(fault));
        self.length = self.calm
            + if slow {
                420_000_000
            } else {
                30_000_000 + (self.voters() as u64 + 2) * (self.max_ttl * 1_000 + 10_000_000)
            };
    }

    /// Keeps only the faults at these positions, to shorten a plan.
    fn keep(&mut self, places: Option<&str>) {
        if let Some(places) = places {
            let kept: Vec<usize> = places.split(',').filter_map(|place| place.parse().ok()).collect();
            let mut place = 0..;
            self.faults.retain(|_| kept.contains(&place.next().unwrap()));
        }
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        if std::env::var("CONTROL").is_ok_and(|control| control == "forget") {
            let every = |step: u64| At(QUIET + step * 500_000);
            let forgets = (0..30).map(|step| (every(step), Fault::Forget { member: rng.index(self.members) }));
            self.faults = forgets.collect();
            return;
        }
        let (mut kinds, mean) = self.draw_kinds(rng);
        if std::env::var("QUIET").is_ok() {
            kinds.clear();
        }
        let founders = self.theme.map_or(&[][..], |theme| theme.founders);
        for kind in founders {
            let at = At(self.quiet.0 - 1_500_000 + rng.below(1_500_000));
            self.faults.push((at, Fault::Deed(Deed { kind: *kind, number: rng.next() })));
        }
        let mut at = self.quiet;
        while !kinds.is_empty() {
            at = at + rng.between(1, 2 * mean);
            if at >= self.calm {
                break;
            }
            let fault = self.draw_fault(*rng.pick(&kinds), rng);
            if self.is_bearable(at, &fault) {
                self.faults.push((at, fault));
            }
        }
    }

    /// Draws the kinds of faults of this run, and the mean time between two of them.
    fn draw_kinds(&self, rng: &mut Rng) -> (Vec<What>, u64) {
        let Some(theme) = self.theme else {
            // Swarm testing: the run has a random set of kinds. A third of the runs have only one kind.
            let mut kinds = kinds::everything();
            rng.shuffle(&mut kinds);
            kinds.truncate(if rng.percent(33) { 1 } else { rng.index(12) + 1 });
            return (kinds, rng.logarithmic(300_000, 4_000_000));
        };
        let mut kinds = theme.kinds();
        // Some runs leave out a few kinds, because a kind can end a sequence too early.
        let mut left_out = kinds.clone();
        rng.shuffle(&mut left_out);
        left_out.truncate(rng.index(3));
        kinds.retain(|kind| !left_out.contains(kind));
        (kinds, rng.logarithmic(theme.pace.0 * 1_000, theme.pace.1 * 1_000))
    }

    /// Limits the number of faults that take everything down.
    ///
    /// A seed with a theme can have a few of them, and another seed only one. A quorum that changes its members can have many.
    fn is_bearable(&self, at: At, fault: &Fault) -> bool {
        let most = match self.theme {
            Some(_) if (MEMBERS..OUTER).contains(&self.seed) => 12,
            Some(_) => 3,
            None => 1,
        };
        let count = |is: &dyn Fn(&Fault) -> bool| self.faults.iter().filter(|(_, other)| is(other)).count();
        match fault {
            Fault::Deed(deed) if is_drastic(deed.kind) => {
                count(&|other| matches!(other, Fault::Deed(other) if is_drastic(other.kind))) < most
            }
            // Another replica has to receive all state first.
            Fault::Terminate { .. } if self.theme.is_some_and(|theme| theme.rolls) => {
                count(&|other| matches!(other, Fault::Terminate { .. })) as u64 * 9_000_000 + self.quiet.0 <= at.0
            }
            // The operator reads the record twice a second, and votes between two readings are not covered.
            Fault::FlushMaster { .. } => count(&|other| matches!(other, Fault::FlushMaster { .. })) < 1,
            Fault::Blackout { .. } => count(&|other| matches!(other, Fault::Blackout { .. })) < 1,
            _ => true,
        }
    }

    fn draw_fault(&self, what: What, rng: &mut Rng) -> Fault {
        let kind = match what {
            What::Own(kind) => kind,
            What::Breaks(kind) => {
                let aim = self.theme.map_or(Aim::Anywhere, |theme| theme.aim);
                return Fault::Cluster(Mishap { kind, number: rng.next(), aim });
            }
            What::Does(kind) => return Fault::Deed(Deed { kind, number: rng.next() }),
        };
        let replica = rng.index(self.replicas.len());
        let process = rng.index(self.replicas.len() + self.contenders.len());
        let member = rng.index(self.members + self.pool());
        // Short lengths are as frequent as long ones.
        let length = rng.logarithmic(1_000, 10_000_000);
        let by = rng.logarithmic(1_000, 3_000_000);
        let share = rng.between(5, 90);
        match kind {
            Own::Kill => Fault::Kill { process: if self.theme.is_some() { replica } else { process }, away: length },
            Own::Terminate => Fault::Terminate { process: replica },
            Own::Stop => Fault::Stop { process, length },
            Own::Suspend => Fault::Suspend { process, length },
            Own::StepClock => Fault::StepClock { process: replica, by: wrong(rng) },
            Own::SetApiClock => Fault::SetApiClock { by: step(rng) },
            Own::RestartMaster => {
                let kept = *rng.pick(&[0, 0, 50, 90, 100]);
                Fault::RestartMaster { number: rng.index(self.pool()), kept, away: rng.logarithmic(1_000, 6_000_000) }
            }
            Own::FlushMaster => Fault::FlushMaster { number: rng.index(self.pool()) },
            Own::Cut => Fault::Cut { process, member, up: true, down: true, length },
            Own::HalfCut => Fault::Cut { process, member, up: rng.percent(50), down: true, length },
            Own::Slow => Fault::Slow { process, member, by, length },
            Own::CutApi => Fault::CutApi { process: replica, length },
            Own::SlowApi => Fault::SlowApi { process: replica, by, length },
            Own::Deaf => Fault::Deaf { process: replica, length },
            Own::Lag => Fault::Lag { process: replica, by, length },
            Own::Refuse => {
                let length = if self.theme.is_some() { rng.between(1_000_000, 6_000_000) } else { length };
                Fault::Refuse { process: replica, share, code: *rng.pick(&REFUSALS), length }
            }
            Own::Lossy => Fault::Lossy { process: replica, share: share / 2, length },
            Own::EndWatches => Fault::EndWatches { process: replica, mercy: rng.percent(50) },
            Own::Compact => Fault::Compact,
            Own::Outage => Fault::Outage { length },
            Own::Crash => Fault::Crash { member },
            Own::Freeze => Fault::Freeze { member, length: rng.logarithmic(1_000, 6_000_000) },
            Own::StepMember if rng.percent(30) => Fault::StepMember { member, by: wrong(rng) },
            Own::StepMember | Own::DeleteMember => Fault::DeletePod { member },
            Own::CutAll => Fault::CutAll { process: replica, length: rng.logarithmic(100_000, 15_000_000) },
            Own::Part => Fault::Part { length: rng.between(6_000_000, 14_000_000) },
            Own::Relist => Fault::Relist { process: replica, length: rng.between(6_000_000, 14_000_000) },
            Own::DeafTo => {
                let kinds = [Kind::DistributedLock, Kind::Pod, Kind::RedisQuorum, Kind::Node];
                Fault::DeafTo { process: replica, kind: *rng.pick(&kinds), length: rng.between(1_000_000, 10_000_000) }
            }
            Own::Sick => Fault::Sick { number: rng.next(), length: rng.between(500_000, 15_000_000) },
            Own::Blackout => Fault::Blackout { away: rng.logarithmic(1_000, 3_000_000) },
        }
    }
}

/// Status codes of refused requests.
const REFUSALS: [u16; 6] = [429, 500, 503, 504, 409, 403];

/// Half of the seeds have a theme, each with the same probability.
fn draw_theme(seed: u64, long: bool) -> Option<Theme> {
    let turn = usize::try_from(seed / 2).unwrap();
    let themes: &[Theme] = if long { &themes::LONG } else { &themes::SHORT };
    let wanted = std::env::var("THEME").ok();
    let all = || {
        themes::LONG
            .iter()
            .chain(&themes::SHORT)
            .chain(&themes::RARE)
            .chain(&themes::LOCKED)
            .chain(&themes::WIDE)
            .chain(&themes::ELECTORS)
            .chain(&themes::MEMBERS)
            .chain(&themes::OUTER)
    };
    let named = |name: &String| all().find(|theme| theme.name == name).copied();
    match wanted {
        Some(name) => Some(named(&name).expect("a theme of that name")),
        None if seed >= OUTER => Some(themes::OUTER[usize::try_from(seed - OUTER).unwrap() % themes::OUTER.len()]),
        None if seed >= MEMBERS => Some(themes::MEMBERS[usize::try_from(seed % 2).unwrap()]),
        None if seed >= ELECTORS => Some(themes::ELECTORS[usize::try_from(seed % 2).unwrap()]),
        None if seed >= WIDE => Some(themes::WIDE[usize::try_from(seed % 3).unwrap()]),
        None if seed >= LOCKED_JOBS => Some(themes::LOCKED[usize::try_from(seed % 3).unwrap()]),
        None if long => (seed % 20 == 19).then(|| themes[turn % themes.len()]),
        None if seed % 16 == 8 => Some(themes::RARE[turn / 8 % themes::RARE.len()]),
        None => (seed % 2 == 1).then(|| themes[turn % themes.len()]),
    }
}

const fn is_drastic(kind: DeedKind) -> bool {
    matches!(
        kind,
        DeedKind::RecreateQuorum
            | DeedKind::ForceQuorum
            | DeedKind::DeleteNamespace
            | DeedKind::Resize
            | DeedKind::ReplaceMaster
    )
}

/// Whether the run needs minutes to settle after this fault.
fn takes_minutes(fault: &Fault) -> bool {
    match fault {
        Fault::Cluster(mishap) => !matches!(mishap.kind, FaultKind::Exit | FaultKind::Ready | FaultKind::Slow),
        Fault::Deed(deed) => is_drastic(deed.kind) && deed.kind != DeedKind::ForceQuorum,
        _ => false,
    }
}

/// A step of the API server's clock in milliseconds: seconds to minutes.
fn step(rng: &mut Rng) -> i64 {
    let size = *rng.pick(&[1_500, 8_000, 60_000, 300_000]);
    let millis = rng.between(size / 2, size) as i64;
    if rng.percent(50) { millis } else { -millis }
}

/// The error of a clock in milliseconds: small, seconds, an hour, or a day.
fn wrong(rng: &mut Rng) -> i64 {
    let size = *rng.pick(&[50, 1_500, 8_000, 3_600_000, 86_400_000]);
    let millis = rng.between(size / 2, size) as i64;
    if rng.percent(50) { millis } else { -millis }
}
