//! The leader's steps: the real decision on the model's state.

use redlock_operator::quorum::model::{member::MemberSummary, membership::ChangeStep};

use super::*;
use crate::change::{lists, next_step};

impl Change {
    /// Whether the status has this member as closed, so that it does not vote for the old list alone.
    fn closed(&self, member: &Member) -> bool {
        // Clients without the update count an external process that is fenced while it runs.
        let can_be_open = self.external && member.extra.open[0];
        member.extra.recorded || (matches!(member.fence, Fence::Observed(_)) && !can_be_open)
    }

    /// Whether the old list has no promises, according to the leader's state.
    pub(super) fn former_closed(&self, world: &World) -> bool {
        let closed = self.old.iter().filter(|member| self.closed(&world.members[**member])).count();
        world.extra.stage == Stage::Joint && closed >= self.closed_needed
    }

    /// The leader's possible steps.
    ///
    /// Each state goes to the real function once.
    pub(super) fn leads_to(&self, world: &World) -> Vec<Extra> {
        let seen = world.members[..self.base.members].iter().fold(world.extra.stage as u32, |key, member| {
            let bits = [member.fence == Fence::Admitted, member.extra.open[1], self.closed(member)];
            bits.into_iter().fold(key, |key, bit| key * 2 + u32::from(bit))
        });
        let key = seen * 16 + u32::from(world.extra.closed_for);
        if let Some(known) = self.decisions.lock().unwrap().get(&key) {
            return known.clone();
        }
        let each = |names: &[String], step: fn(usize) -> Extra| -> Vec<Extra> {
            (0..self.base.members).filter(|member| names.contains(&name(*member))).map(step).collect()
        };
        let steps = match self.decided(world) {
            ChangeStep::OpenNext(names) => each(&names, Extra::OpenNext),
            ChangeStep::Switch => vec![Extra::Switch],
            ChangeStep::Close(names) => each(&names, Extra::Close),
            ChangeStep::Finish => vec![Extra::Finish],
            ChangeStep::Nothing | ChangeStep::Wait(_) | ChangeStep::Unclosed(_) | ChangeStep::WaitUntil(_) => {
                Vec::new()
            }
        };
        self.decisions.lock().unwrap().insert(key, steps.clone());
        steps
    }

    fn decided(&self, world: &World) -> ChangeStep {
        let lists = lists(&self.old, &self.new, world.extra.stage);
        let enough = self.former_closed(world);
        let members: Vec<_> = (0..self.base.members)
            .map(|number| {
                let member = &world.members[number];
                MemberSummary {
                    name: name(number),
                    votes: member.fence == Fence::Admitted,
                    ready_for_next: member.extra.open[1] || self.external,
                    closed: self.closed(member) || enough,
                    ..MemberSummary::default()
                }
            })
            .filter(|member| lists.members().contains(&member.name))
            .collect();
        next_step(&lists, &members, world.extra.closed_for, self.wait)
    }
}
