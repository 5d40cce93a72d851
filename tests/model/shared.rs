//! Two operators that share masters, and change the list of them with a pause.
//!
//! From the end of the old list until a rejoin delay has passed, nothing is granted. The leaders' steps are those of
//! `membership::decide`. The model repeats the script of the record, and tests/redis runs the script itself.
//!
//! Abstractions: an acquisition is one step, and a promise lives for `ttl` from then on. In addition to the leader,
//! each operator has a replica that lags. It continues with the old list wherever the record permits it.

use std::time::Duration;

use redlock_operator::{
    quorum::model::{
        lists::{Lists, majority},
        member::MemberSummary,
        membership::{ChangeStep, Input, decide},
    },
    time::Monotonic,
};

use super::core::{rejoin_ticks, ticks};

mod rules;
mod tests;

const MOST: usize = 4;
/// A time long after boot.
const START: u64 = 1_000;

/// The rules, each with its switch.
#[derive(Clone)]
struct Shared {
    /// The old list and the new one.
    lists: [Vec<usize>; 2],
    members: usize,
    ttl: u8,
    delay: u8,
    /// Ticks from the closing of the old list until its end.
    wait: u8,
    /// Whether the records close the old epoch before the wait.
    closes: bool,
    /// Whether an operator refuses to claim on a record with a claim of another list.
    lists_checked: bool,
    /// Whether an operator votes only after its claim was on every member of its list.
    joins: bool,
    /// Whether claims expire of an operator that is down before its change.
    lapses: bool,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    #[default]
    Old,
    Paused,
    New,
}

impl Stage {
    /// The list that the operator claims.
    const fn list(self) -> usize {
        if matches!(self, Self::New) { 1 } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    /// No owner, an operator's number plus one, or that plus two for its lagging replica.
    owner: u8,
    ttl: u8,
    /// Ticks until the process can be admitted.
    out: u8,
    /// The list that an operator claims here, plus one. 0 without a claim.
    entries: [u8; 2],
    /// Whether the operator knows that its claim is on this process.
    kept: [bool; 2],
    /// Whether the record refuses votes under the operator's old epoch.
    closed: [bool; 2],
    /// Whether the lagging replica has admitted this process.
    lags: [bool; 2],
    /// Whether the other operator lacks a majority since before this one renewed its claim here.
    ///
    /// The index is the other operator's number.
    lost: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Operator {
    stage: Stage,
    /// Ticks plus one since every former member was closed. 0 before that.
    since: u8,
    valid: u8,
    /// Remaining ticks of promises under the old list since the switch.
    old_valid: u8,
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

/// An operator, or its lagging replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Voter {
    operator: usize,
    lags: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// An operator reads a record, and makes its claim.
    Observe(usize, usize),
    /// Its claim there has expired.
    Lapse(usize, usize),
    Acquire(Voter, Set),
    Renew(Voter),
    Release(usize),
    Restart(usize),
    Lead(usize),
}

fn name(member: usize) -> String {
    format!("m{member}")
}

impl Voter {
    fn owner(self) -> u8 {
        u8::try_from(self.operator + 1).unwrap() + if self.lags { 2 } else { 0 }
    }

    const fn valid(self, world: &mut World) -> &mut u8 {
        let operator = &mut world.operators[self.operator];
        if self.lags { &mut operator.old_valid } else { &mut operator.valid }
    }
}

impl Shared {
    fn new(old: &[usize], new: &[usize]) -> Self {
        let ttl = 1;
        let delay = rejoin_ticks(ttl);
        Self {
            lists: [old.to_vec(), new.to_vec()],
            members: old.iter().chain(new).max().unwrap() + 1,
            ttl,
            delay,
            wait: delay,
            closes: true,
            lists_checked: true,
            joins: true,
            lapses: false,
            restarts: 1,
        }
    }

    fn wins(&self, list: usize, set: impl Fn(usize) -> bool) -> bool {
        let names: Vec<_> = self.lists[list].iter().map(|member| name(*member)).collect();
        self.lists[list].iter().filter(|at| set(**at)).count() >= majority(&names)
    }

    fn list_of(world: &World, voter: Voter) -> usize {
        if voter.lags { 0 } else { world.operators[voter.operator].stage.list() }
    }

    fn may_vote(&self, world: &World, Voter { operator, lags }: Voter) -> bool {
        let now = world.operators[operator];
        if lags { now.stage != Stage::Old } else { now.stage != Stage::Paused && (now.joined || !self.joins) }
    }

    /// Whether the vote of this process counts.
    fn votes(world: &World, Voter { operator, lags }: Voter, at: usize) -> bool {
        let member = &world.members[at];
        if lags {
            return member.lags[operator] && !member.closed[operator];
        }
        let claims = world.operators[operator].stage.list() + 1;
        member.out == 0 && member.kept[operator] && usize::from(member.entries[operator]) == claims
    }

    /// Whether its claim is on a majority, as far as it knows.
    fn stands(&self, world: &World, operator: usize) -> bool {
        self.wins(world.operators[operator].stage.list(), |at| Self::votes(world, Voter { operator, lags: false }, at))
    }

    fn observe(&self, world: &mut World, operator: usize, at: usize) -> bool {
        let now = world.operators[operator];
        let claims = u8::try_from(now.stage.list() + 1).unwrap();
        if !self.lists[now.stage.list()].contains(&at) {
            return false;
        }
        let before = *world;
        let blind = !self.stands(world, 1 - operator);
        let member = &mut world.members[at];
        member.closed[operator] |= now.stage != Stage::Old && self.closes;
        let other = member.entries[1 - operator];
        let agrees = other == 0 || other == claims || !self.lists_checked;
        if (now.joined || member.out == 0) && agrees {
            (member.entries[operator], member.kept[operator]) = (claims, true);
            member.lost[1 - operator] |= blind;
        } else {
            member.kept[operator] = false;
            // Its promises under the old list have expired.
            if now.stage == Stage::New {
                member.entries[operator] = 0;
            }
        }
        if self.stands(world, operator) {
            world.members.iter_mut().for_each(|member| member.lost[operator] = false);
        }
        let everywhere = self.lists[now.stage.list()].iter().all(|at| world.members[*at].kept[operator]);
        world.operators[operator].joined |= everywhere;
        before != *world
    }

    /// The leader's next step, by the real decision.
    fn lead(&self, world: &mut World, operator: usize) -> bool {
        let now = world.operators[operator];
        let names = |list: usize| self.lists[list].iter().map(|member| name(*member)).collect::<Vec<_>>();
        let (old, new) = (names(0), names(1));
        let lists = match now.stage {
            Stage::Old => Lists { epoch: 1, voters: old, former: None, wanted: new },
            Stage::Paused => Lists { epoch: 2, voters: new.clone(), former: Some(old), wanted: new },
            Stage::New => return false,
        };
        let closed = |at: usize| {
            let member = &world.members[at];
            member.closed[operator] || !member.lags[operator] || !self.closes
        };
        let view = |at: usize| MemberSummary {
            name: name(at),
            votes: true,
            ready_for_next: true,
            closed: closed(at) || !self.lists[0].contains(&at),
            ..MemberSummary::default()
        };
        let members: Vec<_> = (0..self.members).map(view).collect();
        if now.stage == Stage::Paused && now.since == 0 && members.iter().all(|member| member.closed) {
            world.operators[operator].since = 1;
            return true;
        }
        let since = (now.since > 0).then(|| Duration::from_secs(START - u64::from(now.since - 1)));
        let step = decide(&Input {
            now: Monotonic::new(Duration::from_secs(START)),
            lists: &lists,
            members: &members,
            incomplete_locks: &[],
            busy: None,
            left_behind: &[],
            former_closed_since: since.map(Monotonic::new),
            rejoin_delay: ticks(self.wait),
        });
        match step {
            ChangeStep::Switch => self.switch(world, operator),
            ChangeStep::Finish => {
                let now = &mut world.operators[operator];
                (now.stage, now.since, now.joined) = (Stage::New, 0, false);
                world.members.iter_mut().for_each(|member| member.kept[operator] = false);
            }
            _ => return false,
        }
        true
    }

    /// From now on earlier grants belong to the lagging replica.
    fn switch(&self, world: &mut World, operator: usize) {
        let [leader, late] = [false, true].map(|lags| Voter { operator, lags });
        for member in &mut world.members[..self.members] {
            member.lags[operator] = member.kept[operator] && member.out == 0;
            if member.owner == leader.owner() {
                member.owner = late.owner();
            }
        }
        let now = &mut world.operators[operator];
        (now.stage, now.old_valid, now.valid) = (Stage::Paused, now.valid, 0);
    }

    fn acquire(&self, world: &mut World, voter: Voter, set: Set) -> bool {
        let in_set = |at: usize| set & (1 << at) != 0;
        let free = |at: usize| !in_set(at) || (Self::votes(world, voter, at) && world.members[at].owner == 0);
        if !self.may_vote(world, voter) || !(0..self.members).all(free) || *voter.valid(world) > 0 {
            return false;
        }
        for at in (0..self.members).filter(|at| in_set(*at)) {
            (world.members[at].owner, world.members[at].ttl) = (voter.owner(), self.ttl);
        }
        *voter.valid(world) = self.ttl;
        true
    }

    fn renew(&self, world: &mut World, voter: Voter) -> bool {
        let ours = |at: usize| Self::votes(world, voter, at) && world.members[at].owner == voter.owner();
        let ours: Vec<bool> = (0..self.members).map(ours).collect();
        let wins = self.wins(Self::list_of(world, voter), |at| ours[at]);
        if !self.may_vote(world, voter) || !wins || *voter.valid(world) == 0 {
            return false;
        }
        (0..self.members).filter(|at| ours[*at]).for_each(|at| world.members[at].ttl = self.ttl);
        *voter.valid(world) = self.ttl;
        true
    }

    fn release(world: &mut World, operator: usize) -> bool {
        let voter = Voter { operator, lags: false };
        for member in world.members.iter_mut().filter(|member| member.owner == voter.owner()) {
            (member.owner, member.ttl) = (0, 0);
        }
        std::mem::take(voter.valid(world)) > 0
    }

    fn lapse(&self, world: &mut World, operator: usize, at: usize) -> bool {
        let member = &mut world.members[at];
        if !self.lapses || world.operators[operator].stage != Stage::Old {
            return false;
        }
        let promised = world.operators[operator].valid > 0 && usize::from(member.owner) == operator + 1;
        if member.entries[operator] == 0 || promised {
            return false;
        }
        (member.entries[operator], member.kept[operator]) = (0, false);
        // After this time no operator believes that it has joined, unless it has had a majority since the last renewal.
        let lost = std::mem::take(&mut member.lost);
        for one in [operator, 1 - operator] {
            world.operators[one].joined &= if one == operator { self.stands(world, one) } else { !lost[one] };
        }
        true
    }

    fn tick(&self, world: &mut World) {
        for member in &mut world.members[..self.members] {
            member.ttl = member.ttl.saturating_sub(1);
            member.owner *= u8::from(member.ttl > 0);
            member.out = member.out.saturating_sub(1);
        }
        for operator in &mut world.operators {
            operator.valid = operator.valid.saturating_sub(1);
            operator.old_valid = operator.old_valid.saturating_sub(1);
            if operator.since > 0 {
                operator.since = (operator.since + 1).min(self.delay + 1);
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Tick => {
                self.tick(world);
                true
            }
            Step::Observe(operator, at) => self.observe(world, operator, at),
            Step::Lapse(operator, at) => self.lapse(world, operator, at),
            Step::Acquire(voter, set) => self.acquire(world, voter, set),
            Step::Renew(voter) => self.renew(world, voter),
            Step::Release(operator) => Self::release(world, operator),
            Step::Restart(at) => {
                world.members[at] = Member { out: self.delay, ..Member::default() };
                world.restarts += 1;
                world.restarts <= self.restarts
            }
            Step::Lead(operator) => self.lead(world, operator),
        }
    }
}
