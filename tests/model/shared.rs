//! Two operators that share masters, and change the list of them with a pause.
//!
//! Nothing is granted from the end of the old list until a rejoin delay has passed. The leaders' steps are those of
//! `membership::decide`. The model repeats the script of the record, and tests/redis runs the script itself.
//!
//! Abstractions: an acquisition is one step, and a promise lives for `ttl` from then on. In addition to the leader,
//! each operator has a replica that lags. It continues with the old list wherever the record permits it.

use redlock_operator::quorum::model::{lists::Lists, member::MemberSummary, membership::ChangeStep};

use super::change::{self, Stage, majority};
use super::core::rejoin_ticks;
use super::protocol::{CLIENTS, MOST};
use super::sets::{Set, members_of};

mod rules;
mod tests;

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
    /// It pauses while the status has both lists.
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

/// The list that an operator claims.
const fn list_at(stage: Stage) -> usize {
    if matches!(stage, Stage::New) { 1 } else { 0 }
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
            members: change::size(old, new),
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
        change::lists(&self.lists[0], &self.lists[1], stage)
    }

    /// Whether the operator makes this change while another one uses the old list.
    fn is_permitted(&self) -> bool {
        let stays = self.lists[0].iter().filter(|member| self.lists[1].contains(member)).count();
        self.lists_at(Stage::Old).meet_both_lists(stays)
    }

    fn wins(&self, list: usize, set: impl Fn(usize) -> bool) -> bool {
        self.lists[list].iter().filter(|at| set(**at)).count() >= majority(&self.lists[list])
    }

    fn list_of(world: &World, voter: Voter) -> usize {
        if voter.lags { 0 } else { list_at(world.operators[voter.operator].stage) }
    }

    fn allows_votes(&self, world: &World, Voter { operator, lags }: Voter) -> bool {
        let now = world.operators[operator];
        if lags { now.stage != Stage::Old } else { now.stage != Stage::Joint && (now.joined || !self.joins) }
    }

    /// Whether the vote of this process counts.
    fn votes(world: &World, Voter { operator, lags }: Voter, at: usize) -> bool {
        let member = &world.members[at];
        if lags {
            // Its votes count while its own claim of the old list stands there.
            return member.lags[operator] && !member.closed[operator] && member.entries[operator] == 1;
        }
        let claims = list_at(world.operators[operator].stage) + 1;
        member.out == 0 && member.kept[operator] && usize::from(member.entries[operator]) == claims
    }

    /// Whether the operator's claim is on a majority, according to its own state.
    fn stands(&self, world: &World, operator: usize) -> bool {
        self.wins(list_at(world.operators[operator].stage), |at| {
            Self::votes(world, Voter { operator, lags: false }, at)
        })
    }

    fn observe(&self, world: &mut World, operator: usize, at: usize) {
        let now = world.operators[operator];
        let claims = u8::try_from(list_at(now.stage) + 1).unwrap();
        if !self.lists[list_at(now.stage)].contains(&at) {
            return;
        }
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
        let everywhere = self.lists[list_at(now.stage)].iter().all(|at| world.members[*at].kept[operator]);
        world.operators[operator].joined |= everywhere;
    }

    /// The leader's next step, by the real decision.
    fn lead(&self, world: &mut World, operator: usize) {
        let now = world.operators[operator];
        if now.stage == Stage::New {
            return;
        }
        let lists = self.lists_at(now.stage);
        let closed = |at: usize| {
            let member = &world.members[at];
            member.closed[operator] || !member.lags[operator] || !self.closes
        };
        let view = |at: usize| MemberSummary {
            name: change::name(at),
            votes: true,
            ready_for_next: true,
            closed: closed(at) || !self.lists[0].contains(&at),
            ..MemberSummary::default()
        };
        let members: Vec<_> = (0..self.members).map(view).collect();
        if now.stage == Stage::Joint && now.since == 0 && members.iter().all(|member| member.closed) {
            world.operators[operator].since = 1;
            return;
        }
        match change::next_step(&lists, &members, now.since, self.wait) {
            ChangeStep::Switch => self.switch(world, operator),
            ChangeStep::Finish => {
                let now = &mut world.operators[operator];
                (now.stage, now.since, now.joined) = (Stage::New, 0, false);
                world.members.iter_mut().for_each(|member| member.kept[operator] = false);
            }
            _ => {}
        }
    }

    /// Assigns the earlier grants to the lagging replica.
    fn switch(&self, world: &mut World, operator: usize) {
        let [leader, late] = [false, true].map(|lags| Voter { operator, lags });
        let has_joined = self.allows_votes(world, leader);
        for member in &mut world.members[..self.members] {
            member.lags[operator] = has_joined && member.kept[operator] && member.out == 0;
            if member.owner == leader.owner() {
                member.owner = late.owner();
            }
        }
        let now = &mut world.operators[operator];
        (now.stage, now.old_valid, now.valid) = (Stage::Joint, now.valid, 0);
    }

    fn acquire(&self, world: &mut World, voter: Voter, set: Set) {
        let is_free = |at: usize| Self::votes(world, voter, at) && world.members[at].owner == 0;
        if !self.allows_votes(world, voter) || !members_of(set).all(is_free) || *voter.valid(world) > 0 {
            return;
        }
        for at in members_of(set) {
            (world.members[at].owner, world.members[at].ttl) = (voter.owner(), self.ttl);
        }
        *voter.valid(world) = self.ttl;
    }

    fn renew(&self, world: &mut World, voter: Voter) {
        let ours = |at: usize| Self::votes(world, voter, at) && world.members[at].owner == voter.owner();
        let ours: Vec<bool> = (0..self.members).map(ours).collect();
        let wins = self.wins(Self::list_of(world, voter), |at| ours[at]);
        if !self.allows_votes(world, voter) || !wins || *voter.valid(world) == 0 {
            return;
        }
        (0..self.members).filter(|at| ours[*at]).for_each(|at| world.members[at].ttl = self.ttl);
        *voter.valid(world) = self.ttl;
    }

    fn release(world: &mut World, operator: usize) {
        let voter = Voter { operator, lags: false };
        if *voter.valid(world) > 0 {
            *voter.valid(world) = 0;
            let ours = world.members.iter_mut().filter(|member| member.owner == voter.owner());
            ours.for_each(|member| (member.owner, member.ttl) = (0, 0));
        }
    }

    fn lapse(&self, world: &mut World, operator: usize, at: usize) {
        let member = &mut world.members[at];
        if !self.lapses {
            return;
        }
        // A claim lives for longer than a promise.
        let now = world.operators[operator];
        let [leader, late] = [false, true].map(|lags| Voter { operator, lags });
        let promised =
            (now.valid > 0 && member.owner == leader.owner()) || (now.old_valid > 0 && member.owner == late.owner());
        if member.entries[operator] == 0 || promised {
            return;
        }
        (member.entries[operator], member.kept[operator]) = (0, false);
        // After this time no operator believes that it has joined, unless it has had a majority since the last renewal.
        let lost = std::mem::take(&mut member.lost);
        for one in [operator, 1 - operator] {
            world.operators[one].joined &= if one == operator { self.stands(world, one) } else { !lost[one] };
        }
    }

    /// A replica that has joined makes its claim again on a process that it has admitted, beside no other list.
    fn reclaim(&self, world: &mut World, operator: usize, at: usize) {
        let has_joined = self.wins(0, |at| world.members[at].entries[operator] == 1);
        let blind = !self.stands(world, 1 - operator);
        let member = &mut world.members[at];
        let can_claim = member.lags[operator] && !member.closed[operator] && member.entries[1 - operator] <= 1;
        if !self.lapses || !has_joined || !can_claim || member.entries[operator] != 0 {
            return;
        }
        member.entries[operator] = 1;
        member.lost[1 - operator] |= blind;
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
}
