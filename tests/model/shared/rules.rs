//! The possible steps, the violations, and the text of a counterexample.

use std::fmt::Write;

use super::*;
use crate::check::{Rules, sort_alike};
use crate::sets::{has, named, sets};

const VOTERS: [Voter; 4] = [
    Voter { operator: 0, lags: false },
    Voter { operator: 1, lags: false },
    Voter { operator: 0, lags: true },
    Voter { operator: 1, lags: true },
];

impl Rules for Shared {
    type State = World;
    type Step = Step;

    /// Both operators have joined.
    fn starts(&self) -> Vec<World> {
        let mut world = World::default();
        for operator in 0..2 {
            world.operators[operator].joined = true;
            for at in &self.lists[0] {
                (world.members[*at].entries[operator], world.members[*at].kept[operator]) = (1, true);
            }
        }
        vec![world]
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for voter in VOTERS {
            let list = Self::list_of(world, voter);
            // A value on more members only keeps other claims out.
            let wins = |set: Set| self.wins(list, |at| has(set, at));
            let is_least = |set: &Set| wins(*set) && members_of(*set).all(|at| !wins(set & !(1 << at)));
            steps.extend(sets(self.members).filter(is_least).map(|set| Step::Acquire(voter, set)));
            steps.push(Step::Renew(voter));
        }
        for operator in 0..2 {
            steps.extend([Step::Release(operator), Step::Lead(operator)]);
            let of_claims = |at| [Step::Observe(operator, at), Step::Lapse(operator, at), Step::Reclaim(operator, at)];
            steps.extend((0..self.members).flat_map(of_claims));
        }
        if world.restarts < self.restarts {
            steps.extend((0..self.members).map(Step::Restart));
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => self.tick(world),
            Step::Observe(operator, at) => self.observe(world, operator, at),
            Step::Lapse(operator, at) => self.lapse(world, operator, at),
            Step::Reclaim(operator, at) => self.reclaim(world, operator, at),
            Step::Acquire(voter, set) => self.acquire(world, voter, set),
            Step::Renew(voter) => self.renew(world, voter),
            Step::Release(operator) => Self::release(world, operator),
            Step::Restart(at) => {
                world.members[at] = Member { out: self.delay, ..Member::default() };
                world.restarts += 1;
            }
            Step::Lead(operator) => self.lead(world, operator),
        }
    }

    fn canonical(&self, mut world: World) -> World {
        let part = |member: usize| self.lists.clone().map(|list| list.contains(&member));
        sort_alike(&mut world.members[..self.members], part);
        world
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        let valid = world.operators.iter().flat_map(|operator| [operator.valid, operator.old_valid]);
        (valid.filter(|valid| *valid > 0).count() > 1).then_some("two holders are inside their validity")
    }

    /// Both operators have the new list, and one of them holds the lock.
    fn goal(&self, world: &World) -> bool {
        let [one, other] = &world.operators;
        one.valid > 0 && one.stage == Stage::New && other.stage == Stage::New && other.joined
    }

    fn describe(&self, step: Step) -> String {
        let who = |operator: usize| CLIENTS[operator];
        let voter =
            |voter: Voter| format!("{}{}", who(voter.operator), if voter.lags { "'s late replica" } else { "" });
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Observe(o, at) => format!("{} reads the record of m{}", who(o), at + 1),
            Step::Lapse(o, at) => format!("{}'s claim on m{} runs out", who(o), at + 1),
            Step::Reclaim(o, at) => format!("{}'s late replica claims m{} again", who(o), at + 1),
            Step::Acquire(o, set) => format!("{} is granted the lock by {}", voter(o), named(set)),
            Step::Renew(o) => format!("{} renews", voter(o)),
            Step::Release(o) => format!("{} releases", who(o)),
            Step::Restart(at) => format!("m{} restarts and has forgotten everything", at + 1),
            Step::Lead(o) => format!("{} takes the next step of its change", who(o)),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::from("[");
        for (at, member) in world.members[..self.members].iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            let holder = ["-", "A", "B", "a", "b"][usize::from(member.owner)];
            let out = if member.out > 0 { "!" } else { "" };
            write!(text, "{space}{holder}{out}").unwrap();
            for ((entry, kept), closed) in member.entries.iter().zip(member.kept).zip(member.closed) {
                let list = ["-", "old", "new"][usize::from(*entry)];
                let (closed, kept) = (if closed { "x" } else { "" }, if kept { "" } else { "?" });
                write!(text, "/{list}{closed}{kept}").unwrap();
            }
        }
        text.push(']');
        for (name, operator) in CLIENTS.iter().zip(&world.operators) {
            let valid = if operator.valid > 0 { ", holds" } else { "" };
            let joined = if operator.joined { "" } else { ", not joined" };
            write!(text, " {name} {:?}{valid}{joined}", operator.stage).unwrap();
        }
        text
    }
}
