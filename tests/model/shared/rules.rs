//! The steps that there are, what must never be, and how a counterexample is told.

use std::fmt::Write;

use super::*;
use crate::check::{Rules, sort_alike};

impl Rules for Shared {
    type State = World;
    type Step = Step;

    /// Both have joined.
    fn starts(&self) -> Vec<World> {
        let mut world = World::default();
        for operator in 0..2 {
            let stage = self.starts[operator];
            world.operators[operator] =
                Operator { stage, joined: true, since: if stage == Stage::Old { 0 } else { self.delay }, valid: 0 };
            for member in &mut world.members[..self.members] {
                (member.entries[operator], member.kept[operator]) = (self.says(operator, stage), true);
            }
        }
        vec![world]
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for operator in 0..2 {
            let lists = self.in_force(operator, world.operators[operator].stage);
            // Whatever is on more members only keeps others out.
            let wins = |set: &Set| self.wins(&lists, |at| set & (1 << at) != 0);
            let least =
                |set: &Set| wins(set) && (0..self.members).all(|at| set & (1 << at) == 0 || !wins(&(set & !(1 << at))));
            steps.extend((1..1_u8 << self.members).filter(least).map(|set| Step::Acquire(operator, set)));
            steps.extend([Step::Renew(operator), Step::Release(operator), Step::Lead(operator)]);
            steps.extend((0..self.members).flat_map(|at| [Step::Look(operator, at), Step::Lapse(operator, at)]));
        }
        steps.extend((0..self.members).map(Step::Restart));
    }

    fn take(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        self.apply(&mut next, step).then_some(next)
    }

    fn canonical(&self, mut world: World) -> World {
        let part = |member: usize| self.lists.clone().map(|list| list.contains(&member));
        sort_alike(&mut world.members[..self.members], part);
        world
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        let both = world.operators.iter().all(|operator| operator.valid > 0);
        both.then_some("two operators are inside their validity")
    }

    /// Both have come to the same list and one of them holds the lock. Of opposite ways none comes to its end; they vote.
    fn goal(&self, world: &World) -> bool {
        let [one, other] = &world.operators;
        let ended = one.stage == Stage::New && other.stage == Stage::New;
        let stuck = one.stage == Stage::Ending && other.stage == Stage::Ending;
        one.valid > 0 && (if self.to[0] == self.to[1] { ended } else { stuck })
    }

    fn tell(&self, step: Step) -> String {
        let who = |operator: usize| ["A", "B"][operator];
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Look(o, at) => format!("{} looks at the record of m{}", who(o), at + 1),
            Step::Lapse(o, at) => format!("{}'s claim on m{} runs out", who(o), at + 1),
            Step::Acquire(o, set) => {
                let named: Vec<_> =
                    (0..self.members).filter(|at| set & (1 << at) != 0).map(|at| (at + 1).to_string()).collect();
                format!("{} is granted the lock by {{{}}}", who(o), named.join(", "))
            }
            Step::Renew(o) => format!("{} renews", who(o)),
            Step::Release(o) => format!("{} releases", who(o)),
            Step::Restart(at) => format!("m{} restarts and has forgotten everything", at + 1),
            Step::Lead(o) => format!("{} takes the next step of its change", who(o)),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::from("[");
        for (at, member) in world.members[..self.members].iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            let holder = ["-", "A", "B"][usize::from(member.owner)];
            let out = if member.out > 0 { "!" } else { "" };
            write!(text, "{space}{holder}{out}").unwrap();
            for (entry, kept) in member.entries.iter().zip(member.kept) {
                let lists = ["-", "old", "new", "both"][usize::from(entry.lists)];
                let (ends, kept) = (if entry.newest > 0 { "!" } else { "" }, if kept { "" } else { "?" });
                write!(text, "/{lists}{ends}{kept}").unwrap();
            }
        }
        text.push(']');
        for (name, operator) in ["A", "B"].iter().zip(&world.operators) {
            let valid = if operator.valid > 0 { ", holds" } else { "" };
            let joined = if operator.joined { "" } else { ", not joined" };
            write!(text, " {name} {:?}{valid}{joined}", operator.stage).unwrap();
        }
        text
    }
}
