//! The clock watch: a member's wall clock is stepped, so that a key expires before its promise.
//!
//! A has the member's vote, and B requests it. Every answer carries the member's time, and the leader also reads the
//! member every second tick. `fence::clock::ClockWatch` decides on the readings. Answers take time, so a reading is an
//! interval.

use std::time::Duration;

use redlock_operator::fence::clock::{ClockWatch, Rule};
use redlock_operator::redlock::{ClockSample, Drift};
use redlock_operator::time::{Boottime, UnixMicros};

use super::check::{Rules, each_violated, holds, large};

const TTL: u8 = 4;
const READINGS: usize = 6;
const START: u64 = 1_000;
const RULE: Rule = Rule { drift: Drift { ppm: 0, floor: Duration::ZERO }, window: Duration::from_secs(TTL as u64) };

#[derive(Clone)]
struct Clocks {
    /// Bounds.
    ticks: u8,
    steps: u8,
    farthest: i8,
    /// Whether the time in a vote is checked.
    watches: bool,
    /// Whether the leader also reads the member between votes.
    reads: bool,
    /// Whether earlier readings are kept, so that a found step stays found.
    remembers: bool,
}

impl Clocks {
    fn new() -> Self {
        let (ticks, steps, farthest) = if large() { (10, 3, 3) } else { (8, 2, 2) };
        Self { ticks, steps, farthest, watches: true, reads: true, remembers: true }
    }
}

/// The times of a request, its execution on the member's clock, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reading {
    sent: u8,
    time: i8,
    received: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Asked {
    #[default]
    No,
    /// B sends its request.
    At(u8),
    /// The member has set B's key.
    Set { sent: u8, time: i8 },
    /// B has the answer, or ignores it.
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    now: u8,
    /// The member's clock minus ours.
    ahead: i8,
    steps: u8,
    /// Whether Redis has dropped A's key, which it can do when the key has expired by its clock.
    gone: bool,
    /// The regular readings.
    ///
    /// The first one is the vote for A.
    readings: [Option<Reading>; READINGS],
    read_since_step: bool,
    jumped: bool,
    b: Asked,
    two: bool,
    dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Jump(i8),
    Ask,
    Set,
    Answer,
}

fn signed(tick: u8) -> i8 {
    i8::try_from(tick).unwrap()
}

fn sample(reading: Reading) -> ClockSample {
    let at = |tick: u8| Boottime::new(Duration::from_secs(START + u64::from(tick)));
    let time = i64::try_from(START).unwrap() + i64::from(reading.time);
    ClockSample { time: UnixMicros(time * 1_000_000), sent: at(reading.sent), received: at(reading.received) }
}

impl Clocks {
    fn watch(&self, world: &World) -> ClockWatch {
        let mut readings = world.readings.iter().flatten().map(|reading| sample(*reading));
        let mut watch = ClockWatch::begin(readings.next().expect("A's vote"));
        for reading in readings {
            if !self.remembers {
                watch = ClockWatch::begin(reading);
            }
            watch.observe(reading, RULE);
        }
        watch
    }

    /// Reads the member's clock, twice a second in the product.
    fn read(&self, world: &mut World) {
        let reading = Reading { sent: world.now, time: signed(world.now) + world.ahead, received: world.now };
        if let Some(free) = world.readings.iter_mut().find(|reading| reading.is_none()) {
            *free = Some(reading);
        }
        world.read_since_step = true;
        world.jumped |= self.remembers && self.watch(world).jump().is_some();
    }
}

impl Rules for Clocks {
    type State = World;
    type Step = Step;

    fn starts(&self) -> Vec<World> {
        let mut start = World { read_since_step: true, ..World::default() };
        start.readings[0] = Some(Reading { sent: 0, time: 0, received: 0 });
        vec![start]
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.ticks {
            steps.push(Step::Tick);
        }
        // A step there and back between two readings cannot be detected. It cannot happen by accident either.
        if world.steps < self.steps && (world.read_since_step || !self.reads) {
            steps.extend((-self.farthest..=self.farthest).filter(|to| *to != world.ahead).map(Step::Jump));
        }
        match world.b {
            Asked::No => steps.push(Step::Ask),
            Asked::At(_) => steps.push(Step::Set),
            Asked::Set { .. } => steps.push(Step::Answer),
            Asked::Over => {}
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => {
                world.now += 1;
                if self.reads && world.now.is_multiple_of(2) {
                    self.read(world);
                }
            }
            Step::Jump(to) => {
                (world.ahead, world.steps, world.read_since_step) = (to, world.steps + 1, false);
            }
            Step::Ask => world.b = Asked::At(world.now),
            Step::Set => {
                let Asked::At(sent) = world.b else { return };
                if !world.gone {
                    return;
                }
                world.b = Asked::Set { sent, time: signed(world.now) + world.ahead };
            }
            Step::Answer => {
                let Asked::Set { sent, time } = world.b else { return };
                let vote = sample(Reading { sent, time, received: world.now });
                let steady = !world.jumped && self.watch(world).check(&vote, RULE).is_none();
                let counts = steady || !self.watches;
                world.two = counts && world.now < TTL;
                (world.dropped, world.b) = (!counts, Asked::Over);
            }
        }
        world.gone |= signed(world.now) + world.ahead >= signed(TTL);
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.two.then_some("the member's votes for A and for B count at the same time")
    }

    /// B's vote is not counted after a step.
    fn goal(&self, world: &World) -> bool {
        world.dropped
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Jump(to) => format!("the member's clock is stepped: {to:+}"),
            Step::Ask => "B asks for the vote".into(),
            Step::Set => "A's key is gone, and B's is set".into(),
            Step::Answer => "the answer reaches B".into(),
        }
    }

    fn show(&self, world: &World) -> String {
        let found = if world.jumped { ", found" } else { "" };
        let gone = if world.gone { ", A's key gone" } else { "" };
        format!("[tick {} member {:+}{found}{gone}] A until {TTL}, B {:?}", world.now, world.ahead, world.b)
    }
}

#[test]
fn a_stepped_clock_costs_the_vote() {
    holds("clocks", Clocks::new());
}

#[test]
fn without_any_one_rule_both_votes_are_valid() {
    each_violated([
        ("clocks, not watched", Clocks { watches: false, ..Clocks::new() }),
        ("clocks, read by votes alone", Clocks { reads: false, ..Clocks::new() }),
        ("clocks, the last reading alone kept", Clocks { remembers: false, ..Clocks::new() }),
    ]);
}
