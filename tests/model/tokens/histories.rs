//! Tokens over days and at full speed.
//!
//! Counters are numbers of a clock here. The model checks whether a member without its counter, and a member after an
//! upgrade, begins above every token. The votes of one acquisition are one step, since [`super`] models its parts.

use std::fmt::Write;

use redlock_operator::quorum::model::counters::{MOST_LAG, behind};
use redlock_operator::redlock::{FencingToken, held_at_once, recovered, restored};

use crate::check::{Rules, each_violated, holds};
use crate::sets::{Set, members_of, named, sets};

const MEMBERS: usize = 3;
const QUORUM: usize = 2;
/// The smallest number of members that shares one with every majority.
const NEEDED: usize = MEMBERS - QUORUM + 1;
/// The range of a client that can only INCR: it raises a counter by this number.
const REACH: i64 = 1_000;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// The time of the start in microseconds.
const NOW: i64 = 1_795_284_168_033_000;

/// The process that grants, and restores counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Operator,
    /// A client of this operator that can only INCR.
    Direct,
    /// A client that has no operator.
    Library,
}

#[derive(Clone)]
struct Histories {
    who: &'static [Who],
    /// All counters at the start, each of which is the token of a held lock.
    start: i64,
    /// Number of grants per second.
    rate: i64,
    events: u8,
    /// Number of members that are always up.
    alive: usize,
    /// The number of other members whose counters are read when one is restored.
    answering: usize,
    /// Whether the leader levels counters before it opens a member, and occasionally.
    levels: bool,
    /// How far the clock of the restoring process is behind.
    clock_behind: i64,
    /// Whether a process begins with the counter of a snapshot from the start.
    snapshots: bool,
    /// Whether counters of other members are read.
    reads: bool,
    /// Whether the denial of a direct client is also a violation.
    denies: bool,
}

impl Histories {
    const fn of(who: &'static [Who]) -> Self {
        Self {
            who,
            start: NOW,
            rate: 100_000,
            events: 6,
            alive: 0,
            answering: 0,
            levels: true,
            clock_behind: 0,
            snapshots: false,
            reads: true,
            denies: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    clock: i64,
    counters: [i64; MEMBERS],
    out: [bool; MEMBERS],
    /// The floor of each operator, which has a RedisQuorum of its own.
    floor: i64,
    last: i64,
    events: u8,
    grants: u8,
    restarts: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A second of grants by these members.
    Work(Who, Set),
    Quiet,
    Restart(Set),
    /// A member is admitted with the counters of these members.
    Admit(Who, usize, Set),
    Level,
}

fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

impl Histories {
    fn work(&self, world: &mut World, who: Who, voters: Set) -> bool {
        let count = members_of(voters).count();
        if count < QUORUM || members_of(voters).any(|member| world.out[member]) {
            return false;
        }
        let numbers: Vec<i64> = members_of(voters).map(|member| world.counters[member] + 1).collect();
        let at_once = held_at_once(numbers.iter().map(|number| token(*number)).collect(), MEMBERS, QUORUM);
        let (least, most) = (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap());
        let first = match at_once {
            Some(token) => token.get(),
            None if who == Who::Direct && most - least > REACH => {
                world.wrong = self.denies.then_some("a client is denied its token");
                return self.denies;
            }
            // Both are raised.
            None => most,
        };
        for member in members_of(voters) {
            let number = world.counters[member] + 1;
            world.counters[member] = if at_once.is_some() { number } else { most } + self.rate - 1;
        }
        if first <= world.last {
            world.wrong = Some("a later holder's token is not greater");
        }
        world.last = world.last.max(first + self.rate - 1);
        match who {
            Who::Operator => world.floor = world.floor.max(world.last),
            Who::Direct | Who::Library => {}
        }
        world.clock += SECOND;
        world.grants += 1;
        true
    }

    /// Raises the counters of admitted members, as the leader judges them.
    fn level(world: &mut World, at_least: FencingToken) -> bool {
        let admitted = (0..MEMBERS).filter(|member| !world.out[*member]);
        let counters: Vec<_> = admitted.map(|member| (member, token(world.counters[member]))).collect();
        let (highest, members) = behind(counters, at_least, MOST_LAG);
        for member in &members {
            world.counters[*member] = world.counters[*member].max(highest.get());
        }
        let is_news = highest.get() > world.floor || !members.is_empty();
        world.floor = world.floor.max(highest.get());
        is_news
    }

    fn admit(&self, world: &mut World, who: Who, member: usize, others: Set) -> bool {
        if members_of(others).count() < self.answering
            || !world.out[member]
            || members_of(others).any(|other| other == member || world.out[other])
        {
            return false;
        }
        let counters: Vec<_> =
            members_of(others).filter(|_| self.reads).map(|other| token(world.counters[other])).collect();
        let clock = token(world.clock - self.clock_behind);
        let counter = match who {
            Who::Direct => return false,
            Who::Operator => restored(&counters, NEEDED, token(world.floor), clock),
            // It reads all members that answer, even if their counters are not restored.
            Who::Library if !self.reads => clock,
            Who::Library => {
                let rest: Vec<_> = (0..MEMBERS)
                    .filter(|other| *other != member && world.out[*other])
                    .map(|other| token(world.counters[other]))
                    .collect();
                let own = (token(world.counters[member]), &counters[..]);
                // Members that do not answer are down for the whole wait.
                let Some(counter) = recovered(own, &rest, (MEMBERS, QUORUM), clock, true) else { return false };
                counter
            }
        };
        if who == Who::Operator {
            if self.levels {
                Self::level(world, counter);
            }
            world.floor = world.floor.max(counter.get());
        }
        world.counters[member] = world.counters[member].max(counter.get());
        world.out[member] = false;
        true
    }
}

impl Rules for Histories {
    type State = World;
    type Step = Step;

    fn starts(&self) -> Vec<World> {
        vec![World {
            clock: NOW,
            counters: [self.start; MEMBERS],
            floor: self.start,
            last: self.start,
            ..World::default()
        }]
    }

    fn steps(&self, _: &World, steps: &mut Vec<Step>) {
        for who in self.who {
            steps.extend(sets(MEMBERS).map(|voters| Step::Work(*who, voters)));
            for member in 0..MEMBERS {
                steps.extend(sets(MEMBERS).map(|others| Step::Admit(*who, member, others)));
            }
        }
        steps.extend(sets(MEMBERS).skip(1).map(Step::Restart));
        steps.extend([Step::Quiet, Step::Level]);
    }

    fn apply(&self, world: &mut World, step: Step) {
        if world.events == self.events || world.wrong.is_some() {
            return;
        }
        let before = *world;
        world.events += 1;
        let is_possible = match step {
            Step::Work(who, voters) => self.work(world, who, voters),
            Step::Quiet => {
                world.clock += DAY;
                true
            }
            Step::Restart(members) => {
                for member in members_of(members) {
                    (world.counters[member], world.out[member]) = (if self.snapshots { self.start } else { 0 }, true);
                }
                world.restarts += 1;
                world.out.iter().filter(|out| !**out).count() >= self.alive && world.out != before.out
            }
            Step::Admit(who, member, others) => self.admit(world, who, member, others),
            Step::Level => self.levels && self.who.contains(&Who::Operator) && Self::level(world, token(0)),
        };
        if !is_possible {
            *world = before;
        }
    }

    fn canonical(&self, mut world: World) -> World {
        let mut members: Vec<_> = world.counters.into_iter().zip(world.out).collect();
        members.sort_unstable();
        for (place, (counter, out)) in members.into_iter().enumerate() {
            (world.counters[place], world.out[place]) = (counter, out);
        }
        world
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.wrong
    }

    /// A lock was granted after a restart.
    fn goal(&self, world: &World) -> bool {
        world.grants > 1 && world.restarts > 0 && world.out == [false; MEMBERS]
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Work(who, voters) => format!("a second of grants to {who:?} by {}", named(voters)),
            Step::Quiet => "a quiet day".into(),
            Step::Restart(members) => format!("{} forget", named(members)),
            Step::Admit(who, member, others) => {
                format!("{who:?} restores m{}, with the counters of {}", member + 1, named(others))
            }
            Step::Level => "the leader levels".into(),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = format!("clock {} last {} [", world.clock - NOW, world.last - NOW);
        for (counter, out) in world.counters.iter().zip(world.out) {
            write!(text, " {}{}", counter - NOW, if out { "!" } else { "" }).unwrap();
        }
        text + " ]"
    }
}

mod tests;
