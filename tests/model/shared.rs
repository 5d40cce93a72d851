//! Two operators that share masters, and change the list of them with a pause.
//!
//! Nothing is granted from the end of the old list until a rejoin delay has passed. The leaders' steps are those of
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

mod apply;
mod rules;
mod tests;

const MOST: usize = 5;
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
    /// Whether the claims of an operator without a connection expire.
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
    /// Whether the operator's state records its claim on this process.
    kept: [bool; 2],
    /// Whether the record refuses votes under the operator's old epoch.
    closed: [bool; 2],
    /// Whether the lagging replica has admitted this process.
    lags: [bool; 2],
    /// Whether the other operator has lacked a majority since before this one renewed its claim here.
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
    /// An operator's claim on a record has expired.
    Lapse(usize, usize),
    /// The lagging replica of an operator makes the expired claim of the old list again.
    Reclaim(usize, usize),
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

    /// The lists of an operator with this stage.
    fn lists_at(&self, stage: Stage) -> Lists {
        let [old, new] = [0, 1].map(|list| self.lists[list].iter().map(|member| name(*member)).collect::<Vec<_>>());
        match stage {
            Stage::Old => Lists { epoch: 1, voters: old, former: None, wanted: new },
            Stage::Paused => Lists { epoch: 2, voters: new.clone(), former: Some(old), wanted: new },
            Stage::New => Lists { epoch: 2, voters: new.clone(), former: None, wanted: new },
        }
    }

    /// Whether the operator makes this change while another one uses the old list.
    fn is_permitted(&self) -> bool {
        let stays = self.lists[0].iter().filter(|member| self.lists[1].contains(member)).count();
        self.lists_at(Stage::Old).meet_both_lists(stays)
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
            // Its votes count while its own claim of the old list stands there.
            return member.lags[operator] && !member.closed[operator] && member.entries[operator] == 1;
        }
        let claims = world.operators[operator].stage.list() + 1;
        member.out == 0 && member.kept[operator] && usize::from(member.entries[operator]) == claims
    }

    /// Whether the operator's claim is on a majority, according to its own state.
    fn stands(&self, world: &World, operator: usize) -> bool {
        self.wins(world.operators[operator].stage.list(), |at| Self::votes(world, Voter { operator, lags: false }, at))
    }
}
