//! The effects of each step.

use super::*;

impl Continuity {
    pub(super) fn end_round(world: &mut World) {
        world.round = None;
        for member in &mut world.members {
            (member.vote, member.other) = (Answer::None, false);
        }
    }

    pub(super) fn ask_again(world: &mut World) {
        (world.asked, world.sealed) = (0, 0);
        for member in &mut world.members {
            member.last_answer = Answer::None;
        }
    }

    pub(super) fn count(members: &[Member; MEMBERS], of: impl Fn(&Member) -> bool) -> usize {
        members.iter().filter(|member| of(member)).count()
    }

    pub(super) fn over(world: &mut World) {
        world.status = Status::Over;
        world.is_wrong |= world.belief > 0;
        Self::ask_again(world);
    }

    pub(super) fn vote(&self, member: &mut Member, answer: Answer) {
        if !(member.other && self.bound_to_run_id) {
            member.vote = answer;
        }
    }

    pub(super) fn tick(&self, world: &mut World) {
        for member in &mut world.members {
            member.ttl = member.ttl.saturating_sub(1);
            if member.ttl == 0 {
                member.key = Key::Missing;
            }
            let left = |(last, end): (u8, u8)| (last.saturating_sub(1), end - 1);
            member.repair = member.repair.map(left).filter(|(last, end)| *last > 0 && *end > 0);
            if self.last_repair.is_none() {
                // Without a last moment the repair sets the key with its whole time to live.
                member.repair = member.repair.map(|_| (self.ttl, self.ttl));
            }
            member.fence.tick(&self.delay);
        }
        world.age = (world.age + 1).min(self.ttl);
        world.belief = world.belief.saturating_sub(1);
        world.sealed = world.sealed.saturating_sub(1);
        if world.members.iter().any(|member| member.last_answer != Answer::None) {
            world.asked += 1;
            if world.asked > self.window {
                Self::ask_again(world);
            }
        }
        world.round = world.round.map(|elapsed| elapsed + 1);
        if world.round.is_some_and(|elapsed| granted(self.ttl, elapsed).is_none()) {
            Self::end_round(world);
        }
    }

    pub(super) fn won(world: &World) -> bool {
        Self::count(&world.members, |member| member.vote == Answer::Yes) >= MAJORITY
    }

    pub(super) fn renew(&self, world: &mut World) {
        let Some(valid) = world.round.and_then(|elapsed| granted(self.ttl, elapsed)) else { return };
        let elapsed = world.round.unwrap_or_default();
        if !world.is_granted || !Self::won(world) {
            return;
        }
        world.is_wrong |= world.status == Status::Over;
        world.belief = world.belief.max(valid);
        for member in world.members.iter_mut().filter(|member| member.vote == Answer::Missing) {
            let last = self.last_repair.map_or(valid, |last| last.saturating_sub(elapsed));
            if last > 0 {
                member.repair = member.repair.max(Some((last, valid)));
            }
        }
        Self::end_round(world);
    }

    pub(super) fn member_step(&self, world: &mut World, at: usize, step: MemberStep) {
        let out = Self::count(&world.members, |member| member.fence != Fence::Admitted);
        let (age, status, granted) = (world.age, world.status, world.is_granted);
        let in_round = world.round.is_some();
        let member = &mut world.members[at];
        let serves = member.fence == Fence::Admitted;
        match step {
            MemberStep::Set if serves && !member.set && member.key == Key::Missing => {
                if self.last_set.is_some_and(|last| age >= last) {
                    return;
                }
                (member.key, member.ttl, member.set) = (Key::Held, self.ttl, true);
                if !granted && in_round {
                    self.vote(member, Answer::Yes);
                }
            }
            MemberStep::Extend if serves && granted && in_round && member.vote == Answer::None => match member.key {
                Key::Held => {
                    member.ttl = member.ttl.max(self.ttl);
                    self.vote(member, Answer::Yes);
                }
                Key::Missing => self.vote(member, Answer::Missing),
                Key::Sealed => self.vote(member, Answer::Another),
            },
            MemberStep::LateExtend if serves && granted && member.key == Key::Held => member.ttl = self.ttl,
            MemberStep::Repair | MemberStep::LateRepair if serves && member.key == Key::Missing => {
                let Some((_, end)) = member.repair else { return };
                (member.key, member.ttl) = (Key::Held, end);
                if step == MemberStep::Repair {
                    member.repair = None;
                }
            }
            MemberStep::Seal if serves && status == Status::Ending && member.last_answer == Answer::None => {
                member.last_answer = Answer::Missing;
                if member.key != Key::Missing {
                    if self.seal {
                        (member.key, member.ttl) = (Key::Sealed, member.ttl.max(self.least_seal));
                    }
                    member.last_answer = Answer::Yes;
                    world.sealed = world.sealed.max(member.ttl);
                }
            }
            MemberStep::Delete if serves && status == Status::Over && member.key == Key::Held => {
                (member.key, member.ttl) = (Key::Missing, 0);
            }
            MemberStep::Restart if member.fence != Fence::Restarted && (out < self.most_out || !serves) => {
                (member.key, member.ttl, member.fence, member.other) = (Key::Missing, 0, Fence::Restarted, in_round);
            }
            MemberStep::Observe => member.fence.observe(),
            MemberStep::Admit => {
                member.fence.admit(&self.delay);
            }
            _ => {}
        }
    }
}
