//! The effects of each step.

use super::*;

impl Shared {
    pub(super) fn observe(&self, world: &mut World, operator: usize, at: usize) -> bool {
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
    pub(super) fn lead(&self, world: &mut World, operator: usize) -> bool {
        let now = world.operators[operator];
        if now.stage == Stage::New {
            return false;
        }
        let lists = self.lists_at(now.stage);
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

    /// Assigns the earlier grants to the lagging replica.
    pub(super) fn switch(&self, world: &mut World, operator: usize) {
        let [leader, late] = [false, true].map(|lags| Voter { operator, lags });
        let has_joined = self.may_vote(world, leader);
        for member in &mut world.members[..self.members] {
            member.lags[operator] = has_joined && member.kept[operator] && member.out == 0;
            if member.owner == leader.owner() {
                member.owner = late.owner();
            }
        }
        let now = &mut world.operators[operator];
        (now.stage, now.old_valid, now.valid) = (Stage::Paused, now.valid, 0);
    }

    pub(super) fn acquire(&self, world: &mut World, voter: Voter, set: Set) -> bool {
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

    pub(super) fn renew(&self, world: &mut World, voter: Voter) -> bool {
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

    pub(super) fn release(world: &mut World, operator: usize) -> bool {
        let voter = Voter { operator, lags: false };
        for member in world.members.iter_mut().filter(|member| member.owner == voter.owner()) {
            (member.owner, member.ttl) = (0, 0);
        }
        std::mem::take(voter.valid(world)) > 0
    }

    pub(super) fn lapse(&self, world: &mut World, operator: usize, at: usize) -> bool {
        let member = &mut world.members[at];
        if !self.lapses {
            return false;
        }
        // A claim lives for longer than a promise.
        let now = world.operators[operator];
        let [leader, late] = [false, true].map(|lags| Voter { operator, lags });
        let promised =
            (now.valid > 0 && member.owner == leader.owner()) || (now.old_valid > 0 && member.owner == late.owner());
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

    /// A replica that has joined makes its claim again on a process that it has admitted, beside no other list.
    pub(super) fn reclaim(&self, world: &mut World, operator: usize, at: usize) -> bool {
        let has_joined = self.wins(0, |at| world.members[at].entries[operator] == 1);
        let blind = !self.stands(world, 1 - operator);
        let member = &mut world.members[at];
        let can_claim = member.lags[operator] && !member.closed[operator] && member.entries[1 - operator] <= 1;
        if !self.lapses || !has_joined || !can_claim || member.entries[operator] != 0 {
            return false;
        }
        member.entries[operator] = 1;
        member.lost[1 - operator] |= blind;
        true
    }

    pub(super) fn tick(&self, world: &mut World) {
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
