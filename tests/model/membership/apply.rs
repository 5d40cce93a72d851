//! The effects of each step.

use super::*;

impl Change {
    /// Changes the world, and returns whether the step was possible.
    pub(super) fn execute(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Tick => {
                self.tick(world);
                true
            }
            Step::Receive(client) => self.receive(world, client),
            Step::Acquire(client) | Step::Extend(client) => {
                for member in &mut world.members {
                    member.votes[client] = false;
                }
                let now = &mut world.clients[client];
                (now.round, now.elapsed) = (now.knows, 0);
                now.phase = if now.phase == Phase::Idle { Phase::Acquiring } else { Phase::Extending };
                true
            }
            Step::Set(client, at) => {
                let free = self.executes(world, client, at) && world.members[at].owner == NOBODY;
                if free {
                    let counts = self.serves(world, client, at);
                    let member = &mut world.members[at];
                    (member.owner, member.ttl, member.votes[client]) = (number(client), self.ttl, counts);
                }
                free
            }
            Step::Extended(client, at) => {
                let ours = self.executes(world, client, at) && world.members[at].owner == number(client);
                let counts = self.serves(world, client, at);
                let member = &mut world.members[at];
                let fresh = ours && !member.votes[client];
                if fresh {
                    (member.ttl, member.votes[client]) = (self.ttl, counts);
                }
                fresh
            }
            Step::Repaired(client, at) => {
                let free = self.executes(world, client, at) && world.members[at].owner == NOBODY;
                if free && self.kinds[client] == Kind::Replica {
                    let valid = world.clients[client].valid;
                    (world.members[at].owner, world.members[at].ttl) = (number(client), valid);
                }
                free && self.kinds[client] == Kind::Replica
            }
            Step::Grant(client) => self.grant(world, client),
            Step::Renew(client) => self.renew(world, client),
            Step::GiveUp(client) => {
                Self::over(world, client);
                true
            }
            _ => self.lead(world, step),
        }
    }

    /// A replica receives the next status, or an outside client reads its Secret.
    pub(super) fn receive(&self, world: &mut World, client: usize) -> bool {
        let knows = &mut world.clients[client].knows;
        let before = *knows;
        *knows = match (before, world.stage, self.kinds[client]) {
            (_, Stage::Old, _) => before,
            (Stage::Old, Stage::Joint | Stage::New, Kind::Replica) => Stage::Joint,
            (Stage::Joint, Stage::New, Kind::Replica) | (Stage::Old, _, Kind::Outside) => Stage::New,
            _ => before,
        };
        *knows != before
    }

    pub(super) fn end_round(world: &mut World, client: usize) {
        for member in &mut world.members {
            member.votes[client] = false;
        }
        let client = &mut world.clients[client];
        (client.elapsed, client.round) = (0, Stage::Old);
    }

    pub(super) fn over(world: &mut World, client: usize) {
        for member in world.members.iter_mut().filter(|member| member.owner == number(client)) {
            (member.owner, member.ttl) = (NOBODY, 0);
        }
        Self::end_round(world, client);
        world.clients[client] = Client { knows: world.clients[client].knows, ..Client::default() };
    }

    pub(super) fn grant(&self, world: &mut World, client: usize) -> bool {
        let Some(valid) = granted(self.ttl, world.clients[client].elapsed).filter(|_| self.won(world, client)) else {
            return false;
        };
        Self::end_round(world, client);
        let other = &mut world.clients[1 - client];
        other.superseded |= matches!(other.phase, Phase::Held | Phase::Extending);
        let now = &mut world.clients[client];
        (now.phase, now.valid, now.superseded) = (Phase::Held, valid, false);
        true
    }

    pub(super) fn renew(&self, world: &mut World, client: usize) -> bool {
        let Client { elapsed, valid, .. } = world.clients[client];
        if !self.won(world, client) {
            return false;
        }
        match renewed(self.ttl, elapsed, valid) {
            Some(earned) => {
                Self::end_round(world, client);
                (world.clients[client].phase, world.clients[client].valid) = (Phase::Held, earned);
            }
            None => Self::over(world, client),
        }
        true
    }

    pub(super) fn tick(&self, world: &mut World) {
        for member in &mut world.members[..self.members] {
            exclusion::tick(&mut member.owner, &mut member.ttl, &mut member.fence, self.delay);
        }
        if world.closed_for > 0 {
            world.closed_for = (world.closed_for + 1).min(self.delay + 1);
        }
        for client in 0..2 {
            let now = &mut world.clients[client];
            now.elapsed = if matches!(now.phase, Phase::Idle | Phase::Held) { 0 } else { now.elapsed + 1 };
            let ran_out = now.valid == 1;
            now.valid = now.valid.saturating_sub(1);
            if ran_out || (now.phase == Phase::Acquiring && now.elapsed >= self.ttl) {
                Self::over(world, client);
            }
        }
    }

    /// Applies the steps of restarts, of the fence, and of the change.
    pub(super) fn lead(&self, world: &mut World, step: Step) -> bool {
        let stage = world.stage;
        let restarts_left = world.restarts < self.restarts;
        match step {
            Step::Restart(at) => {
                let member = &mut world.members[at];
                let possible = restarts_left && member.fence != UNSEEN;
                if possible {
                    // The votes that it has given are on their way, or were counted.
                    *member =
                        Member { fence: UNSEEN, recorded: member.recorded, votes: member.votes, ..Member::default() };
                    world.restarts += 1;
                }
                possible
            }
            Step::Fence(at) => {
                let possible = self.external && restarts_left && world.members[at].fence == ADMITTED;
                if possible {
                    world.members[at].fence = OBSERVED;
                    world.restarts += 1;
                }
                possible
            }
            Step::Observe(at) => {
                let unseen = world.members[at].fence == UNSEEN;
                if unseen {
                    world.members[at].fence = OBSERVED;
                }
                unseen
            }
            Step::Admit(at) => {
                let member = &mut world.members[at];
                let leaves = stage == Stage::New && !self.new.contains(&at);
                let possible = member.fence >= OBSERVED && self.admits[usize::from(member.fence - OBSERVED)] && !leaves;
                if possible && self.external {
                    member.fence = ADMITTED;
                    member.open[usize::from(stage != Stage::Old)] = true;
                } else if possible {
                    member.fence = ADMITTED;
                    member.open = [stage == Stage::Old, stage != Stage::Old];
                    member.recorded = stage != Stage::Old;
                }
                possible
            }
            Step::OpenNext(at) => {
                world.members[at].open[1] = true;
                true
            }
            Step::Switch => {
                world.stage = Stage::Joint;
                if self.external {
                    world.members[..self.members]
                        .iter_mut()
                        .for_each(|member| member.open[1] = member.fence == ADMITTED);
                }
                true
            }
            Step::Close(at) => {
                let member = &mut world.members[at];
                member.open[0] &= !self.close || self.external;
                member.marked |= self.external && self.close;
                member.recorded = true;
                true
            }
            Step::Finish => {
                world.stage = Stage::New;
                true
            }
            _ => false,
        }
    }
}

impl Change {
    /// Whether the yes votes are sufficient for the client.
    pub(super) fn won(&self, world: &World, client: usize) -> bool {
        let has = |list: &[usize], needed: usize| {
            list.iter().filter(|member| world.members[**member].votes[client]).count() >= needed
        };
        let old = || has(&self.old, self.needed[0]);
        let new = || has(&self.new, self.needed[1]);
        match (world.clients[client].round, self.kinds[client]) {
            (Stage::Old, _) => old(),
            (Stage::Joint, Kind::Replica) if self.joint => old() && new(),
            _ => new(),
        }
    }

    /// Whether the member executes the client's request as its user, and its vote counts.
    pub(super) fn serves(&self, world: &World, client: usize, at: usize) -> bool {
        let member = &world.members[at];
        let now = &world.clients[client];
        let in_round = matches!(now.phase, Phase::Acquiring | Phase::Extending);
        let epoch = if in_round && self.bound_to_epoch { now.round } else { now.knows };
        let may = match (self.kinds[client], epoch) {
            (Kind::Replica, Stage::Old) => member.open[0],
            (Kind::Replica, _) => member.open[1],
            (Kind::Outside, Stage::Old) => member.open[0] && self.old.contains(&at),
            (Kind::Outside, _) => {
                member.open[1] && self.new.contains(&at) && (world.stage == Stage::New || !self.clients_wait)
            }
        };
        may && (member.fence == ADMITTED || self.external)
    }

    /// Whether the member executes the client's request, even if its vote does not count.
    ///
    /// The operator never closes an external master.
    pub(super) fn executes(&self, world: &World, client: usize, at: usize) -> bool {
        if !self.external {
            return self.serves(world, client, at);
        }
        let now = &world.clients[client];
        let in_round = matches!(now.phase, Phase::Acquiring | Phase::Extending);
        let epoch = if in_round && self.bound_to_epoch { now.round } else { now.knows };
        epoch != Stage::Old || !world.members[at].marked || !self.checked
    }
}
