//! Tokens through a change of the members.
//!
//! Every grant is one step here, since the model of tokens covers its parts. The model checks which members store a
//! token when the lists change.

use std::fmt::Write;

use crate::change::{self, Stage, majority, meets_every_majority};
use crate::check::{Rules, each_violated, holds};
use crate::protocol::MOST;
use crate::sets::{Set, has, members_of, named, sets};

#[derive(Clone)]
struct Tokens {
    old: Vec<usize>,
    new: Vec<usize>,
    members: usize,
    /// Whether the counters of the new list are raised at the end.
    raise: bool,
    /// Number of needed counters that are not read at the end.
    too_few: usize,
    /// Whether a restarted member reads the counters of the new list while both lists count.
    new_list: bool,
    grants: u8,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    stage: Stage,
    counters: [u8; MOST],
    last: u8,
    falls: bool,
    grants: u8,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Grant(Set),
    Switch,
    /// The leader reads the counters of the first set, and raises those of the second one.
    Finish(Set, Set),
    /// A member restarts, and is admitted with the counters of this set.
    Restart(usize, Set),
}

fn size(list: &[usize], set: Set) -> usize {
    list.iter().filter(|member| has(set, **member)).count()
}

impl Tokens {
    fn new(old: &[usize], new: &[usize]) -> Self {
        Self {
            old: old.to_vec(),
            new: new.to_vec(),
            members: change::size(old, new),
            raise: true,
            too_few: 0,
            new_list: false,
            grants: 3,
            restarts: 1,
        }
    }

    fn lists(&self, stage: Stage) -> Vec<&[usize]> {
        match stage {
            Stage::Old => vec![&self.old],
            Stage::Joint => vec![&self.old, &self.new],
            Stage::New => vec![&self.new],
        }
    }

    fn highest(world: &World, set: Set) -> u8 {
        members_of(set).map(|member| world.counters[member]).max().unwrap_or(0)
    }

    fn raise_to(world: &mut World, set: Set, token: u8) {
        for member in members_of(set) {
            world.counters[member] = world.counters[member].max(token);
        }
    }
}

impl Rules for Tokens {
    type State = World;
    type Step = Step;

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        let sets = || sets(self.members).skip(1);
        let lists = self.lists(world.stage);
        let wins = |set: &Set| lists.iter().all(|list| size(list, *set) >= majority(list));
        if world.grants < self.grants {
            steps.extend(sets().filter(wins).map(Step::Grant));
        }
        match world.stage {
            Stage::Old => steps.push(Step::Switch),
            Stage::Joint => {
                let needed = meets_every_majority(&self.old) - self.too_few;
                let read = sets()
                    .filter(|set| size(&self.old, *set) == needed && size(&self.old, !*set) == self.old.len() - needed);
                let raised: Vec<Set> = sets().filter(|set| size(&self.new, *set) >= majority(&self.new)).collect();
                for read in read {
                    steps.extend(raised.iter().map(|raised| Step::Finish(read, *raised)));
                }
            }
            Stage::New => {}
        }
        if world.restarts < self.restarts {
            let list = match world.stage {
                Stage::Joint if self.new_list => &self.new,
                Stage::Old | Stage::Joint => &self.old,
                Stage::New => &self.new,
            };
            for member in 0..self.members {
                let needed = meets_every_majority(list);
                let suffice = |set: &Set| !has(*set, member) && size(list, *set) >= needed;
                steps.extend(sets().filter(suffice).map(|set| Step::Restart(member, set)));
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Grant(set) => {
                let token = Self::highest(world, set) + 1;
                Self::raise_to(world, set, token);
                (world.falls, world.last) = (token <= world.last, token);
                world.grants += 1;
            }
            Step::Switch => world.stage = Stage::Joint,
            Step::Finish(read, raised) => {
                let token = if self.raise { Self::highest(world, read) } else { 0 };
                Self::raise_to(world, raised, token);
                world.stage = Stage::New;
            }
            Step::Restart(member, set) => {
                world.counters[member] = Self::highest(world, set);
                world.restarts += 1;
            }
        }
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.falls.then_some("a later grant has no larger token")
    }

    fn goal(&self, world: &World) -> bool {
        world.stage == Stage::New && world.grants == self.grants
    }

    fn describe(&self, step: Step) -> String {
        match step {
            Step::Grant(set) => format!("granted by {}", named(set)),
            Step::Switch => "both lists count".into(),
            Step::Finish(read, raised) => {
                format!("the end: counters of {} read, those of {} raised", named(read), named(raised))
            }
            Step::Restart(member, set) => format!("m{} restarts, with the counters of {}", member + 1, named(set)),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = format!("{:?} last token {} counters", world.stage, world.last);
        for counter in &world.counters[..self.members] {
            write!(text, " {counter}").unwrap();
        }
        text
    }
}

#[test]
fn with_all_rules_tokens_rise_through_a_change() {
    for (name, old, new) in [
        ("1 to 3", &[0][..], &[0, 1, 2][..]),
        ("3 to 1", &[0, 1, 2], &[0]),
        ("3 to 5", &[0, 1, 2], &[0, 1, 2, 3, 4]),
        ("5 to 3", &[0, 1, 2, 3, 4], &[0, 1, 2]),
        ("three of five replaced", &[0, 1, 2], &[2, 3, 4]),
    ] {
        holds(&format!("tokens through a change, {name}"), Tokens::new(old, new));
    }
}

#[test]
fn without_any_one_rule_tokens_fall_through_a_change() {
    let shrinks = || Tokens::new(&[0, 1, 2, 3, 4], &[0, 1, 2]);
    each_violated([
        ("counters are not raised", Tokens { raise: false, ..shrinks() }),
        ("one counter too few is read", Tokens { too_few: 1, ..shrinks() }),
        ("a restart reads the new list too early", Tokens { new_list: true, ..Tokens::new(&[0, 1, 2], &[0, 3, 4]) }),
    ]);
}
