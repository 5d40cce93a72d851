//! The effects of each step.

use super::*;

impl Votes {
    /// Changes the world, and returns whether the step was possible.
    pub(super) fn execute(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Tick => {
                self.tick(world);
                true
            }
            Step::Acquire(client) => {
                Self::begin(world, client);
                world.clients[client].phase = Phase::Acquiring;
                true
            }
            Step::Set(client, member) => {
                let member = &mut world.members[member];
                let free = self.serves(member) && member.owner == NOBODY && member.votes[client] == Yes::None;
                if free {
                    (member.owner, member.ttl) = (number(client), self.ttl);
                    self.vote(member, client);
                }
                free
            }
            Step::Grant(client) => self.grant(world, client),
            Step::GiveUp(client) => {
                self.over(world, client);
                true
            }
            Step::Extend(client, short) => {
                if short && self.short_ttl.is_none() {
                    return false;
                }
                Self::begin(world, client);
                (world.clients[client].phase, world.clients[client].short) = (Phase::Extending, short);
                true
            }
            Step::Extended(client, member) => self.extended(world, client, member, true),
            Step::LateExtended(client, member) => self.extended(world, client, member, false),
            Step::LateSet(client, member) => self.set_again(&mut world.members[member], client, self.ttl, false),
            Step::Repaired(client, member, left) => {
                let member = &mut world.members[member];
                let set = self.set_again(member, client, left, !self.repair_nx);
                if set && !self.repair_uncounted && world.clients[client].phase == Phase::Extending {
                    self.vote(member, client);
                }
                set
            }
            Step::Renew(client) => self.renew(world, client),
            Step::ExtendFails(client) => {
                if world.clients[client].valid == 0 {
                    self.over(world, client);
                } else {
                    world.clients[client].phase = Phase::Held;
                    Self::end_round(world, client);
                }
                true
            }
            Step::LateRelease(client, member) => {
                let member = &mut world.members[member];
                let ours = member.owner == number(client) && self.serves(member);
                if ours {
                    (member.owner, member.ttl) = (NOBODY, 0);
                }
                ours
            }
            _ => self.apply_to_member(world, step),
        }
    }

    pub(super) fn extension_ttl(&self, client: &Client) -> u8 {
        self.short_ttl.filter(|_| client.short).unwrap_or(self.ttl)
    }

    pub(super) fn set_again(&self, member: &mut Member, client: usize, ttl: u8, replace: bool) -> bool {
        let may = self.serves(member) && (member.owner == NOBODY || (replace && member.owner != number(client)));
        if may {
            (member.owner, member.ttl) = (number(client), ttl);
        }
        may
    }

    pub(super) fn grant(&self, world: &mut World, client: usize) -> bool {
        let Some(valid) = granted(self.ttl, world.clients[client].elapsed).filter(|_| self.won(world, client)) else {
            return false;
        };
        world.forgetful_grant |= world.members.iter().any(|member| member.forgot && member.votes[client] != Yes::None);
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
        let ttl = self.extension_ttl(&world.clients[client]);
        let earned = if self.continuity {
            renewed(ttl, elapsed, valid)
        } else {
            granted(ttl, elapsed).map(|earned| earned.max(valid))
        };
        match earned {
            Some(earned) => {
                Self::end_round(world, client);
                (world.clients[client].phase, world.clients[client].valid) = (Phase::Held, earned);
            }
            None => self.over(world, client),
        }
        true
    }

    pub(super) fn extended(&self, world: &mut World, client: usize, member: usize, counts: bool) -> bool {
        let ttl = self.extension_ttl(&world.clients[client]);
        let member = &mut world.members[member];
        if !self.serves(member) || member.owner != number(client) || (counts && member.votes[client] != Yes::None) {
            return false;
        }
        let before = *member;
        member.ttl = if self.extend_gt { member.ttl.max(ttl) } else { ttl };
        if counts {
            self.vote(member, client);
        }
        *member != before
    }

    pub(super) fn apply_to_member(&self, world: &mut World, step: Step) -> bool {
        let (Step::GhostSet(at)
        | Step::GhostGone(at)
        | Step::Restart(at)
        | Step::UptimeLies(at)
        | Step::Observe(at)
        | Step::Admit(at)
        | Step::ClockJump(at)
        | Step::JumpNoticed(at)) = step
        else {
            return false;
        };
        let members = &world.members[..self.members];
        let others_out =
            members.iter().enumerate().filter(|(index, m)| *index != at && (m.fence != ADMITTED || m.stepped));
        let one_more = others_out.count() < self.most_out;
        let in_round = world.clients.map(|client| matches!(client.phase, Phase::Acquiring | Phase::Extending));
        let member = &mut world.members[at];
        let forget = |member: &mut Member| {
            (member.owner, member.ttl, member.stepped) = (NOBODY, 0, false);
        };
        let possible = match step {
            Step::GhostSet(_) => member.owner == NOBODY && self.serves(member),
            Step::GhostGone(_) => member.owner == GHOST,
            Step::Restart(_) => member.fence != UNSEEN && one_more,
            Step::UptimeLies(_) => member.fence >= OBSERVED,
            Step::Observe(_) => member.fence == UNSEEN,
            Step::Admit(_) => member.fence >= OBSERVED && self.admits[usize::from(member.fence - OBSERVED)],
            Step::ClockJump(_) => member.fence == ADMITTED && !member.stepped && member.owner != NOBODY && one_more,
            _ => member.stepped,
        };
        if !possible {
            return false;
        }
        match step {
            Step::GhostSet(_) => (member.owner, member.ttl) = (GHOST, self.ttl),
            Step::GhostGone(_) => (member.owner, member.ttl) = (NOBODY, 0),
            Step::Restart(_) => {
                forget(member);
                member.fence = if self.fence { UNSEEN } else { ADMITTED };
                member.forgot = self.track;
                // Without a fence the new process counts as the admitted one, because the difference is unknown.
                member.other = in_round.map(|in_round| in_round && self.fence);
            }
            Step::UptimeLies(_) => member.fence = OBSERVED + self.delay,
            Step::Observe(_) => member.fence = OBSERVED,
            Step::Admit(_) => member.fence = ADMITTED,
            Step::ClockJump(_) => {
                forget(member);
                member.stepped = true;
            }
            _ => {
                forget(member);
                member.fence = OBSERVED;
            }
        }
        true
    }
}

impl Votes {
    pub(super) fn begin(world: &mut World, client: usize) {
        for member in &mut world.members {
            member.votes[client] = Yes::None;
            member.other[client] = member.fence != ADMITTED;
        }
        world.clients[client].elapsed = 0;
    }

    pub(super) fn end_round(world: &mut World, client: usize) {
        for member in &mut world.members {
            member.votes[client] = Yes::None;
            member.other[client] = false;
        }
        let client = &mut world.clients[client];
        (client.elapsed, client.short) = (0, false);
    }

    /// Ends the client's attempt or hold.
    ///
    /// Its keys are deleted now, unless a request is left that deletes them later.
    pub(super) fn over(&self, world: &mut World, client: usize) {
        for member in world.members.iter_mut().filter(|member| member.owner == number(client)) {
            if !self.fresh_value {
                continue;
            }
            (member.owner, member.ttl) = if self.ghosts { (GHOST, member.ttl) } else { (NOBODY, 0) };
        }
        Self::end_round(world, client);
        world.clients[client] = Client { released_before: !self.fresh_value, ..Client::default() };
    }

    pub(super) fn won(&self, world: &World, client: usize) -> bool {
        self.majorities.won(world.members[..self.members].iter().map(|member| match member.votes[client] {
            Yes::Other if !self.bound_to_run_id => Yes::Admitted,
            vote => vote,
        }))
    }

    /// Records a yes, unless the member's own time reveals a step.
    pub(super) fn vote(&self, member: &mut Member, client: usize) {
        if !(member.stepped && self.clock_watch) {
            member.votes[client] = if member.other[client] { Yes::Other } else { Yes::Admitted };
        }
    }

    pub(super) fn serves(&self, member: &Member) -> bool {
        member.fence == ADMITTED || self.external
    }

    pub(super) fn tick(&self, world: &mut World) {
        for member in &mut world.members[..self.members] {
            exclusion::tick(&mut member.owner, &mut member.ttl, &mut member.fence, self.delay);
        }
        for client in 0..2 {
            let now = &mut world.clients[client];
            now.elapsed = if now.phase == Phase::Idle || now.phase == Phase::Held { 0 } else { now.elapsed + 1 };
            let ran_out = now.valid == 1;
            now.valid = now.valid.saturating_sub(1);
            match now.phase {
                Phase::Acquiring if now.elapsed >= self.ttl => self.over(world, client),
                Phase::Held if ran_out => self.over(world, client),
                Phase::Extending if ran_out && self.continuity => self.over(world, client),
                Phase::Extending if now.elapsed >= self.ttl && now.valid == 0 => self.over(world, client),
                Phase::Extending if now.elapsed >= self.ttl => {
                    world.clients[client].phase = Phase::Held;
                    Self::end_round(world, client);
                }
                _ => {}
            }
        }
    }
}
