//! Random histories of a quorum and its replicas, with what really keeps the clock: members start again, are stepped, drift; replicas
//! start again, lead one after the other, and lose members or the API server, whose own clock is set now and then. Each replica's
//! clock goes on without a jump, all replicas agree, and none goes away from the API server's time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{MS, PPM, S};
use crate::fence::Users;
use crate::fence::clock::{OwnClocks, Rule};
use crate::quorum::model::timekeeping::{STEP, corrections};
use crate::quorum::session::ClockGuard;
use crate::redlock::{ClockSample, Drift, MemberName, RunId};
use crate::runtime::api_time::ApiTime;
use crate::time::{Boottime, ClockOffset, SystemClock, UnixMicros};

/// Readings are made twice a second.
const TICK: i64 = 500 * MS;
const REJOIN_TICKS: u32 = 20;
const REPLICAS: usize = 3;
/// One way on the network. A reading is wrong by so much at most.
const DELAY: i64 = 5 * MS;
/// No clock is faster or slower by more, in parts per million.
const DRIFT: i64 = 2_000;
/// The longest time for which the API server, or a member for a replica, is out of reach.
const AWAY_TICKS: u32 = 60;
const RULE: Rule = Rule { drift: Drift { ppm: PPM, floor: Duration::from_millis(2) }, window: Duration::from_secs(10) };

/// How far a clock drifts while nothing holds it.
const FREE: i64 = TICK * (AWAY_TICKS + REJOIN_TICKS) as i64 * 2 * DRIFT / 1_000_000;
/// How far members are apart, with the errors of readings.
const SPREAD: i64 = 2 * (STEP + 2 * DELAY) + FREE;
/// In one tick: a move, and from one side of what the members tell to the other.
const JUMP: i64 = STEP + SPREAD;
/// A replica that reaches nobody drifts, too.
const APART: i64 = SPREAD + FREE;

/// The API server's clock is wrong by so much at most.
const SET: i64 = 600 * MS;

#[derive(Clone, Debug)]
enum Event {
    Nothing,
    /// The process of this member ends, and the next one begins.
    Restart(usize),
    /// Its clock is set, by seconds.
    Step(usize, i64),
    /// This replica reaches this member no more for a while.
    Cut(usize, usize),
    /// This replica ends, and the next one begins, knowing nothing.
    Replace(usize),
    Lead(usize),
    /// No replica reaches the API server for a while.
    ApiServer,
    /// Its clock is set to so many milliseconds ahead.
    ApiServerSet(i64),
}

#[derive(Clone, Copy)]
struct Member {
    run: u32,
    ahead: i64,
    drift: i64,
    fenced: u32,
    admitted: bool,
    recorded: Option<i64>,
    /// Its clock was set since its process began.
    stepped: bool,
}

struct Replica {
    guard: ClockGuard,
    api_time: Arc<ApiTime>,
    own: OwnClocks,
    /// Its boot-time clock less true time, when that was zero, and how much faster it is.
    boot: i64,
    drift: i64,
    cut: [u32; 5],
    moved: Option<i64>,
    last: Option<i64>,
    ticks: u32,
    /// The clock has begun again without any member that carried it.
    /// This replica has not heard of that yet.
    behind: bool,
    /// It has heard a member that carries the quorum's clock, and goes by that.
    heard: bool,
    /// For how long it has heard nobody. Meanwhile it goes by the earliest time that the quorum's clock may show.
    silent: i64,
}

struct World {
    now: i64,
    members: Vec<Member>,
    replicas: Vec<Replica>,
    leader: usize,
    api_away: u32,
    api_ahead: i64,
    /// How far a second clock may be from the one that others carry.
    /// A leader that reaches no admitted process has begun it by the API server's time.
    slack: i64,
    /// How much farther members, and replicas that hear nobody, may be apart than by drift. The leader follows the API server with the
    /// members that it reaches, and a clock that was set is followed for as long as that takes, by `clockDrift.ppm` of the time. A member
    /// that it does not reach stays where it is: its record must not look like a leader's word on a clock that it has not read. When such
    /// a member is the last one that a replica hears, that replica goes back by what the member has missed.
    parted: i64,
}

fn at_rate(time: i64, ppm: i64) -> i64 {
    time + time / 1_000_000 * ppm
}

impl Member {
    fn next_process(&mut self) {
        let run = self.run + 1;
        *self = Self { run, fenced: 0, admitted: false, recorded: None, stepped: false, ..*self };
    }
}

impl Replica {
    fn new(boot: i64, drift: i64, own: OwnClocks) -> Self {
        let api_time = Arc::new(ApiTime::new(Arc::new(SystemClock)));
        let guard = ClockGuard::new(3, RULE).witnessed_by(api_time.clone());
        let (moved, last, ticks, behind, heard, silent) = (None, None, 0, false, false, 0);
        Self { guard, api_time, own, boot, drift, cut: [0; 5], moved, last, ticks, behind, heard, silent }
    }

    fn boottime(&self, now: i64) -> Boottime {
        Boottime::new(Duration::from_micros(u64::try_from(self.boot + at_rate(now, self.drift)).unwrap()))
    }

    /// Its clock, if it knows one, less true time.
    fn clock(&self, now: i64) -> Option<i64> {
        Some(self.guard.quorum_time(self.boottime(now))?.0 - now)
    }
}

fn name(member: usize) -> MemberName {
    format!("m{member}").as_str().into()
}

fn run_id(member: usize, run: u32) -> RunId {
    RunId::new(format!("m{member}-{run}"))
}

impl World {
    fn new(members: &[(i64, i64)], replicas: &[(i64, i64)]) -> Self {
        let own = OwnClocks::read(&SystemClock);
        let member = |(ahead, drift): &(i64, i64)| Member {
            run: 0,
            ahead: *ahead * S,
            drift: *drift,
            fenced: 0,
            admitted: false,
            recorded: None,
            stepped: false,
        };
        let replica = |(boot, drift): &(i64, i64)| Replica::new(*boot * S, *drift, own);
        Self {
            now: 0,
            members: members.iter().map(member).collect(),
            replicas: replicas.iter().map(replica).collect(),
            leader: 0,
            api_away: 0,
            api_ahead: 0,
            slack: 0,
            parted: 0,
        }
    }

    fn suffer(&mut self, event: &Event) {
        match *event {
            Event::Nothing => {}
            Event::Restart(member) => self.members[member].next_process(),
            Event::Step(member, by) => {
                // Two at a time deceive a replica that has just begun: docs/safety.md, "What is not promised".
                if self.members.iter().enumerate().all(|(other, one)| other == member || !one.stepped) {
                    let member = &mut self.members[member];
                    (member.ahead, member.stepped) = (member.ahead + by * S, true);
                }
            }
            Event::Cut(replica, member) => self.replicas[replica].cut[member] = AWAY_TICKS,
            Event::Replace(replica) => {
                let Replica { boot, drift, own, .. } = self.replicas[replica];
                self.replicas[replica] = Replica::new(boot + 77 * S, drift, own);
            }
            Event::Lead(replica) => {
                self.leader = replica;
                self.replicas[replica].moved = None;
            }
            Event::ApiServer => self.api_away = AWAY_TICKS,
            Event::ApiServerSet(ahead) => self.api_ahead = ahead * MS,
        }
    }

    /// Every replica looks at every member that it reaches. `late`: how many hundredths of the delay are on the way there.
    fn look(&mut self, late: i64) {
        for replica in &mut self.replicas {
            replica.ticks += 1;
            for (index, member) in self.members.iter().enumerate() {
                replica.cut[index] = replica.cut[index].saturating_sub(1);
                if replica.cut[index] > 0 {
                    replica.guard.lost(&name(index));
                    continue;
                }
                let (sent, received) = (replica.boottime(self.now - DELAY), replica.boottime(self.now + DELAY));
                let asked = self.now - DELAY + 2 * DELAY * late / 100;
                let sample =
                    ClockSample { time: UnixMicros(at_rate(asked, member.drift) + member.ahead), sent, received };
                let users = if member.admitted { Users::Open } else { Users::Closed };
                replica.guard.saw(&name(index), &run_id(index, member.run), users, sample, replica.own);
            }
        }
    }

    /// Every replica hears from the API server.
    fn hear(&self) {
        for replica in &self.replicas {
            let (time, boot) = (UnixMicros(self.now + self.api_ahead), replica.boottime(self.now));
            replica.api_time.learn(ClockOffset::of_reading(time, Duration::ZERO, boot, boot));
        }
    }

    /// What the leader does, as `quorum::controller` does it.
    fn lead(&mut self) {
        let (now, replica) = (self.now, &mut self.replicas[self.leader]);
        let boot = replica.boottime(now);
        let Some(api) = replica.api_time.offset(boot) else { return };
        let carriers = self.members.iter().filter(|member| member.admitted).count();
        // The only process that is left was stepped while no replica watched, and this one knows nothing that speaks for it: the API
        // server's time counts, as where nobody is left.
        let is_carried = self.members.iter().any(|member| member.admitted && !member.stepped);
        let mut begins = false;
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.admitted && replica.guard.step_of(&run_id(index, member.run)).is_some() {
                member.next_process();
            }
        }
        let (told, clock) = replica.guard.testimonies(boot);
        let moved = *replica.moved.get_or_insert(now);
        let recorded = corrections(&told, clock, api, now - moved, PPM);
        begins |= !is_carried && !replica.heard && !recorded.is_empty();
        let arrived = told.iter().all(|process| {
            let told = process.recorded.map(|by| process.reading.middle() + by);
            told.is_some_and(|told| told.abs_diff(api.middle()) <= (STEP + 2 * DELAY).unsigned_abs())
        });
        for (index, member) in self.members.iter_mut().enumerate() {
            let run_id = run_id(index, member.run);
            if let Some(to) = recorded.get(&run_id) {
                (member.recorded, replica.moved) = (Some(*to), Some(now));
            }
            // It counts what it has seen itself.
            let fenced = member.fenced.min(replica.ticks).min(AWAY_TICKS - replica.cut[index].min(AWAY_TICKS));
            let reading = replica.guard.reading_of(&run_id).filter(|_| replica.cut[index] == 0);
            if let Some(reading) = reading.filter(|_| !member.admitted && fenced > REJOIN_TICKS) {
                begins |= clock.is_none() || !replica.heard;
                member.admitted = true;
                member.recorded = Some(clock.unwrap_or_else(|| api.middle()) - reading.middle());
            }
        }
        for replica in &mut self.replicas {
            replica.behind |= begins;
        }
        let hears = |replica: &Replica| !replica.guard.testimonies(replica.boottime(now)).0.is_empty();
        let is_complete = carriers == told.len() && self.replicas.iter().all(hears);
        match (recorded.is_empty(), is_complete) {
            (false, false) => self.parted = (self.parted + STEP).min(2 * SET),
            (true, true) if arrived => self.parted = 0,
            _ => {}
        }
        if begins && carriers > 0 {
            self.slack = 2 * SET;
        }
    }

    /// The status reaches every replica.
    fn publish(&self) {
        let admitted = self.members.iter().enumerate().filter(|(_, member)| member.admitted);
        let recorded: BTreeMap<_, _> =
            admitted.map(|(index, member)| (name(index), (run_id(index, member.run), member.recorded))).collect();
        for replica in &self.replicas {
            replica.guard.set_recorded(recorded.clone());
        }
    }

    fn tick(&mut self, event: &Event, late: i64) -> Result<(), TestCaseError> {
        let parted = self.parted;
        self.now += TICK;
        self.suffer(event);
        for member in &mut self.members {
            member.fenced = member.fenced.saturating_add(1);
        }
        self.look(late);
        self.api_away = self.api_away.saturating_sub(1);
        if self.api_away == 0 {
            self.hear();
            self.lead();
            self.publish();
        }
        self.check(parted.max(self.parted))
    }

    /// The promises.
    fn check(&mut self, parted: i64) -> Result<(), TestCaseError> {
        let now = self.now;
        let mut slack = self.slack + parted;
        let mut early = 0;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let clock = replica.clock(now);
            let hears = !replica.guard.testimonies(replica.boottime(now)).0.is_empty();
            let silent = replica.silent;
            replica.silent = if hears { 0 } else { silent + TICK };
            let back = (silent + TICK) * i64::from(PPM) / 1_000_000;
            early = early.max(back);
            // Between one that carries the clock and one that was stepped, a replica that has just begun cannot tell: it goes by the API
            // server until it agrees with one that carries it.
            let carries = |(index, member): (usize, &Member)| {
                let told = member.recorded.map(|by| at_rate(now, member.drift) + member.ahead + by - now);
                let agrees = told.zip(clock).is_some_and(|(told, clock)| (told - clock).abs() <= JUMP + back);
                member.admitted && !member.stepped && agrees && replica.cut[index] == 0
            };
            replica.heard |= hears && self.members.iter().enumerate().any(carries);
            if !replica.heard {
                // It knows nothing, so it believes the API server and not a lone process that may have been stepped.
                replica.last = None;
                continue;
            }
            if replica.behind {
                replica.behind = !hears;
                replica.last = clock.filter(|_| hears);
                continue;
            }
            if let (Some(last), Some(clock)) = (replica.last, clock) {
                prop_assert!(
                    (clock - last).abs() <= JUMP + back + slack,
                    "replica {index} jumps from {last} to {clock} at {now}"
                );
            }
            replica.last = clock;
        }
        slack += early;
        let known: Vec<i64> = self.replicas.iter().filter_map(|replica| replica.last).collect();
        let (Some(least), Some(most)) = (known.iter().min(), known.iter().max()) else { return Ok(()) };
        prop_assert!(most - least <= APART + slack, "the replicas are {} us apart at {now}: {known:?}", most - least);
        prop_assert!(
            -APART - SET - early <= *least && *most <= APART + SET,
            "not the API server's time at {now}: {known:?}"
        );
        Ok(())
    }
}

fn event() -> impl Strategy<Value = Event> {
    let seconds = prop_oneof![Just(-86_400), Just(3_600), Just(5), Just(-5)];
    prop_oneof![
        6 => Just(Event::Nothing),
        3 => (0..3_usize).prop_map(Event::Restart),
        2 => (0..3_usize, seconds).prop_map(|(member, by)| Event::Step(member, by)),
        2 => (0..REPLICAS, 0..3_usize).prop_map(|(replica, member)| Event::Cut(replica, member)),
        2 => (0..REPLICAS).prop_map(Event::Replace),
        2 => (0..REPLICAS).prop_map(Event::Lead),
        1 => Just(Event::ApiServer),
        1 => (-SET / MS..=SET / MS).prop_map(Event::ApiServerSet),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]

    #[test]
    fn the_clock_never_jumps_and_all_replicas_agree(
        members in prop::collection::vec((-86_400..86_400_i64, -DRIFT..=DRIFT), 3..=5),
        replicas in prop::collection::vec((86_400..864_000_i64, -DRIFT..=DRIFT), REPLICAS),
        events in prop::collection::vec((event(), 0..=100_i64, 1..25_u32), 1..60),
    ) {
        let mut world = World::new(&members, &replicas);
        for (event, late, ticks) in events {
            world.tick(&event, late)?;
            for _ in 1..ticks {
                world.tick(&Event::Nothing, late)?;
            }
        }
    }
}
