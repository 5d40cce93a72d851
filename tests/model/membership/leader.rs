//! The leader's steps: the real decision on the model's state.

use std::time::Duration;

use redlock_operator::{
    quorum::model::{
        lists::Lists,
        member::MemberSummary,
        membership::{ChangeStep, Input, decide},
    },
    time::Monotonic,
};

use super::*;

/// A time long after boot.
const START: u64 = 1_000;

impl Change {
    fn lists(&self, world: &World) -> Lists {
        let names = |list: &[usize]| list.iter().map(|member| name(*member)).collect::<Vec<_>>();
        let (old, new) = (names(&self.old), names(&self.new));
        match world.stage {
            Stage::Old => Lists { epoch: 1, voters: old, former: None, wanted: new },
            Stage::Joint => Lists { epoch: 2, voters: new.clone(), former: Some(old), wanted: new },
            Stage::New => Lists { epoch: 2, voters: new.clone(), former: None, wanted: new },
        }
    }

    /// Whether the status has this member as closed, so that it does not vote for the old list alone.
    fn closed(&self, member: &Member) -> bool {
        // Clients without the update count an external process that is fenced while it runs.
        let may_be_open = self.external && member.open[0];
        member.recorded || (member.fence >= OBSERVED && !may_be_open)
    }

    /// Whether the old list has no promises, according to the leader's state.
    pub(super) fn former_closed(&self, world: &World) -> bool {
        let closed = self.old.iter().filter(|member| self.closed(&world.members[**member])).count();
        world.stage == Stage::Joint && closed >= self.closed_needed
    }

    /// The leader's possible steps.
    ///
    /// Each state goes to the real function once.
    pub(super) fn leads_to(&self, world: &World) -> Vec<Step> {
        let seen = world.members[..self.members].iter().fold(world.stage as u32, |key, member| {
            let bits = [member.fence == ADMITTED, member.open[1], self.closed(member)];
            bits.into_iter().fold(key, |key, bit| key * 2 + u32::from(bit))
        });
        let key = seen * 16 + u32::from(world.closed_for);
        if let Some(known) = self.decisions.lock().unwrap().get(&key) {
            return known.clone();
        }
        let each = |names: &[String], step: fn(usize) -> Step| -> Vec<Step> {
            (0..self.members).filter(|member| names.contains(&name(*member))).map(step).collect()
        };
        let steps = match self.decided(world) {
            ChangeStep::OpenNext(names) => each(&names, Step::OpenNext),
            ChangeStep::Switch => vec![Step::Switch],
            ChangeStep::Close(names) => each(&names, Step::Close),
            ChangeStep::Finish => vec![Step::Finish],
            ChangeStep::Nothing | ChangeStep::Wait(_) | ChangeStep::Unclosed(_) | ChangeStep::WaitUntil(_) => {
                Vec::new()
            }
        };
        self.decisions.lock().unwrap().insert(key, steps.clone());
        steps
    }

    fn decided(&self, world: &World) -> ChangeStep {
        let lists = self.lists(world);
        let enough = self.former_closed(world);
        let members: Vec<_> = (0..self.members)
            .map(|number| {
                let member = &world.members[number];
                MemberSummary {
                    name: name(number),
                    votes: member.fence == ADMITTED,
                    ready_for_next: member.open[1] || self.external,
                    closed: self.closed(member) || enough,
                    ..MemberSummary::default()
                }
            })
            .filter(|member| lists.members().contains(&member.name))
            .collect();
        let now = Monotonic::new(Duration::from_secs(START));
        let since = world.closed_for.checked_sub(1).map(|ago| START - u64::from(ago));
        decide(&Input {
            now,
            lists: &lists,
            members: &members,
            incomplete_locks: &[],
            busy: None,
            left_behind: &[],
            former_closed_since: since.map(|since| Monotonic::new(Duration::from_secs(since))),
            rejoin_delay: ticks(self.wait),
        })
    }
}
