//! Two operators that share masters, and change the list of them: each goes its own way from one list to the other, in three parts
//! of `membership::decide`, and tells the other one by records on the masters. The leaders' steps are the real ones; what the script
//! of the record does is repeated here, and tests/redis runs the script itself.
//!
//! Abstractions: an acquisition is one step, and what is promised lives for `ttl` from then on; a replica that lags behind within one
//! operator is the subject of the model of a change. What an operator knows of the other one beside the records, which only saves
//! it from announcing in vain, is left out.

use std::time::Duration;

use redlock_operator::{
    api::Announced,
    quorum::model::{
        lists::{Lists, majority},
        member::MemberView,
        membership::{ChangeStep, Others, View, decide},
    },
    time::Monotonic,
};

use super::core::{rejoin_ticks, ticks};

mod rules;
mod tests;

const MOST: usize = 5;
/// Some moment long after boot.
const START: u64 = 1_000;

/// The rules, each with its switch.
#[derive(Clone)]
struct Shared {
    lists: [Vec<usize>; 2],
    members: usize,
    /// Which list each operator changes to.
    to: [usize; 2],
    starts: [Stage; 2],
    ttl: u8,
    delay: u8,
    /// Ticks from the switch until both lists are told.
    wait: u8,
    /// The end waits for records that tell it.
    told_needed: bool,
    /// A record does not give up a list that somebody else counts alone.
    give_up_checked: bool,
    /// Claims run out of an operator that is away before its change. Nobody can see a claim that has run out, so the lists have to
    /// share a member then.
    lapses: bool,
    restarts: u8,
}

/// How far the change of an operator is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    #[default]
    Old,
    Joint,
    Both,
    Ending,
    New,
}

/// What an operator says in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    /// The lists, one bit each; none: there is no entry.
    lists: u8,
    /// The only one to be relied on, and one; 0: all of them.
    newest: u8,
}

impl Entry {
    const fn relied_on(self) -> u8 {
        if self.newest > 0 { 1 << (self.newest - 1) } else { self.lists }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    /// Nobody, or an operator's number plus one.
    owner: u8,
    ttl: u8,
    /// Ticks until the process has waited for its admission.
    out: u8,
    entries: [Entry; 2],
    /// The operator has seen a moment ago that its entry stands on this process.
    kept: [bool; 2],
    /// It has seen that the entry says what is announced; on this process or on the one before, which it may not know to be gone.
    told: [bool; 2],
    /// The other operator has not seen a majority since before this one renewed its claim here, by the number of the other one.
    lost: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Operator {
    stage: Stage,
    /// Ticks since the switch, at most the delay.
    since: u8,
    valid: u8,
    joined: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    members: [Member; MOST],
    operators: [Operator; 2],
    restarts: u8,
}

/// Members, one bit each.
type Set = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// An operator looks at a record.
    Look(usize, usize),
    /// Its claim there has run out.
    Lapse(usize, usize),
    Acquire(usize, Set),
    Renew(usize),
    Release(usize),
    Restart(usize),
    Lead(usize),
}

fn name(member: usize) -> String {
    format!("m{member}")
}

impl Shared {
    fn new(old: &[usize], new: &[usize]) -> Self {
        let ttl = 1;
        let delay = rejoin_ticks(ttl);
        Self {
            lists: [old.to_vec(), new.to_vec()],
            members: old.iter().chain(new).max().unwrap() + 1,
            to: [1, 1],
            starts: [Stage::Old, Stage::Old],
            ttl,
            delay,
            wait: delay,
            told_needed: true,
            give_up_checked: true,
            lapses: false,
            restarts: 1,
        }
    }

    /// The second operator changes back while the first one is about to leave.
    fn opposite(old: &[usize], new: &[usize]) -> Self {
        Self { to: [1, 0], starts: [Stage::Both, Stage::Old], ..Self::new(old, new) }
    }

    fn needed(&self, list: usize) -> usize {
        majority(&self.lists[list].iter().map(|member| name(*member)).collect::<Vec<_>>())
    }

    /// The lists of which the operator needs a majority, by number.
    fn in_force(&self, operator: usize, stage: Stage) -> Vec<usize> {
        let (from, to) = (1 - self.to[operator], self.to[operator]);
        match stage {
            Stage::Old => vec![from],
            Stage::New => vec![to],
            _ => vec![from, to],
        }
    }

    /// What there is to say.
    fn says(&self, operator: usize, stage: Stage) -> Entry {
        let (from, to) = (1 << (1 - self.to[operator]), 1 << self.to[operator]);
        match stage {
            Stage::Old | Stage::Joint => Entry { lists: from, newest: 0 },
            Stage::Both => Entry { lists: from | to, newest: 0 },
            Stage::Ending => Entry { lists: from | to, newest: u8::try_from(self.to[operator] + 1).unwrap() },
            Stage::New => Entry { lists: to, newest: 0 },
        }
    }

    fn wins(&self, lists: &[usize], set: impl Fn(usize) -> bool) -> bool {
        lists.iter().all(|list| self.lists[*list].iter().filter(|at| set(**at)).count() >= self.needed(*list))
    }

    /// Whether its claim stands on a majority, as far as it has seen.
    fn sees(&self, world: &World, operator: usize) -> bool {
        let lists = self.in_force(operator, world.operators[operator].stage);
        self.wins(&lists, |at| world.members[at].kept[operator] && world.members[at].out == 0)
    }

    /// Whether the votes of the member count: nothing is to be relied on there of which the operator needs no majority any more.
    fn votes(&self, world: &World, operator: usize, at: usize) -> bool {
        let member = &world.members[at];
        let lists = self.in_force(operator, world.operators[operator].stage);
        let needed = lists.into_iter().fold(0, |needed, list| needed | 1 << list);
        let over = member.entries[operator].relied_on() & !needed;
        member.out == 0 && member.kept[operator] && over == 0
    }

    fn look(&self, world: &mut World, operator: usize, at: usize) -> bool {
        let now = world.operators[operator];
        let member = &world.members[at];
        let mut says = self.says(operator, now.stage);
        let other = member.entries[1 - operator];
        let may = now.joined || member.out == 0;
        let free = other.lists == 0;
        let blind = !self.sees(world, 1 - operator);
        let member = &mut world.members[at];
        if !may || !(free || says.lists & other.relied_on() != 0) {
            let changed = member.kept[operator];
            member.kept[operator] = false;
            return changed;
        }
        if self.give_up_checked && !free && says.relied_on() & other.relied_on() == 0 {
            says.newest = 0;
        }
        let before = *member;
        (member.entries[operator], member.kept[operator]) = (says, true);
        member.told[operator] = says == self.says(operator, now.stage) && member.out == 0;
        let changed = before != *member;
        member.lost[1 - operator] |= blind;
        if self.sees(world, operator) {
            world.members.iter_mut().for_each(|member| member.lost[operator] = false);
        }
        // It has stood on all of them.
        let lists = self.in_force(operator, now.stage);
        let mut all = lists.iter().flat_map(|list| &self.lists[*list]);
        let joins = !now.joined && all.all(|at| world.members[*at].kept[operator]);
        world.operators[operator].joined |= joins;
        changed || joins
    }

    /// What the leader of this operator does next, by the real decision.
    fn lead(&self, world: &World, operator: usize) -> Option<Stage> {
        let now = world.operators[operator];
        let names = |list: &[usize]| list.iter().map(|member| name(*member)).collect::<Vec<_>>();
        let (from, to) = (names(&self.lists[1 - self.to[operator]]), names(&self.lists[self.to[operator]]));
        let joint = |announced| Lists {
            epoch: 2,
            voters: to.clone(),
            former: Some(from.clone()),
            announced,
            wanted: to.clone(),
        };
        let lists = match now.stage {
            Stage::Old => Lists { epoch: 1, voters: from.clone(), former: None, announced: None, wanted: to.clone() },
            Stage::Joint => joint(None),
            Stage::Both => joint(Some(Announced::BothLists)),
            Stage::Ending => joint(Some(Announced::NewList)),
            Stage::New => return None,
        };
        let stands = |at: usize| world.members[at].kept[operator] || !lists.members().contains(&name(at));
        let unclaimed: Vec<_> = (0..self.members).filter(|at| !stands(*at)).map(name).collect();
        let told = |at: &usize| world.members[*at].told[operator] || !self.told_needed;
        let told: Vec<_> = (0..self.members).filter(told).map(name).collect();
        let members: Vec<_> = lists
            .members()
            .into_iter()
            .map(|name| MemberView { name, votes: true, ready_for_next: true, closed: true, ..MemberView::default() })
            .collect();
        let since = (now.stage != Stage::Old).then(|| Duration::from_secs(START - u64::from(now.since)));
        let step = decide(&View {
            now: Monotonic::new(Duration::from_secs(START)),
            lists: &lists,
            members: &members,
            incomplete_locks: &[],
            busy: None,
            others: Some(Others { unclaimed: &unclaimed, behind: &[], told: &told }),
            former_closed_since: since.map(Monotonic::new),
            rejoin_delay: ticks(self.wait),
        });
        match step {
            ChangeStep::Switch => Some(Stage::Joint),
            ChangeStep::Announce(Announced::BothLists) => Some(Stage::Both),
            ChangeStep::Announce(Announced::NewList) => Some(Stage::Ending),
            ChangeStep::Finish => Some(Stage::New),
            _ => None,
        }
    }

    fn release(world: &mut World, operator: usize) {
        world.operators[operator].valid = 0;
        for member in world.members.iter_mut().filter(|member| usize::from(member.owner) == operator + 1) {
            (member.owner, member.ttl) = (0, 0);
        }
    }

    fn tick(&self, world: &mut World) {
        for member in &mut world.members[..self.members] {
            member.ttl = member.ttl.saturating_sub(1);
            member.owner *= u8::from(member.ttl > 0);
            member.out = member.out.saturating_sub(1);
        }
        for operator in &mut world.operators {
            operator.valid = operator.valid.saturating_sub(1);
            if operator.stage == Stage::Joint {
                operator.since = (operator.since + 1).min(self.delay);
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Tick => {
                self.tick(world);
                true
            }
            Step::Look(operator, at) => self.look(world, operator, at),
            Step::Lapse(operator, at) => {
                let member = &mut world.members[at];
                if !self.lapses || world.operators[operator].stage != Stage::Old {
                    return false;
                }
                let promised = world.operators[operator].valid > 0 && usize::from(member.owner) == operator + 1;
                if member.entries[operator].lists == 0 || promised {
                    return false;
                }
                (member.entries[operator], member.kept[operator]) = (Entry::default(), false);
                // So much time has passed that nobody believes any more who has not seen a majority since before the last renewal.
                let lost = std::mem::take(&mut member.lost);
                for one in [operator, 1 - operator] {
                    world.operators[one].joined &= if one == operator { self.sees(world, one) } else { !lost[one] };
                }
                true
            }
            Step::Acquire(operator, set) => {
                let in_set = |at: usize| set & (1 << at) != 0;
                let free = |at: usize| !in_set(at) || (self.votes(world, operator, at) && world.members[at].owner == 0);
                let now = world.operators[operator];
                if now.valid > 0 || !now.joined || !(0..self.members).all(free) {
                    return false;
                }
                for at in (0..self.members).filter(|at| in_set(*at)) {
                    (world.members[at].owner, world.members[at].ttl) = (u8::try_from(operator + 1).unwrap(), self.ttl);
                }
                world.operators[operator].valid = self.ttl;
                true
            }
            Step::Renew(operator) => {
                let now = world.operators[operator];
                let ours =
                    |at: usize| self.votes(world, operator, at) && usize::from(world.members[at].owner) == operator + 1;
                let ours: Vec<bool> = (0..self.members).map(ours).collect();
                let lists = self.in_force(operator, now.stage);
                if now.valid == 0 || !now.joined || !self.wins(&lists, |at| ours[at]) {
                    return false;
                }
                (0..self.members).filter(|at| ours[*at]).for_each(|at| world.members[at].ttl = self.ttl);
                world.operators[operator].valid = self.ttl;
                true
            }
            Step::Release(operator) => {
                let held = world.operators[operator].valid > 0;
                Self::release(world, operator);
                held
            }
            Step::Restart(at) => {
                let member = &mut world.members[at];
                *member = Member { out: self.delay, told: member.told, ..Member::default() };
                world.restarts += 1;
                world.restarts <= self.restarts
            }
            Step::Lead(operator) => {
                let Some(stage) = self.lead(world, operator) else { return false };
                let now = &mut world.operators[operator];
                now.stage = stage;
                world.members.iter_mut().for_each(|member| member.told[operator] = false);
                true
            }
        }
    }
}
