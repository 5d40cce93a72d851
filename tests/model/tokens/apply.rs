//! The effects of each step.

use super::*;

impl Member {
    /// Removes the answers to an attempt that is decided or given up.
    pub(super) fn forget(&mut self, client: usize) {
        (self.set[client], self.yes[client], self.refused[client]) = (false, 0, 0);
        (self.chosen[client], self.raised[client], self.counted[client]) = (false, false, false);
    }
}

impl Tokens {
    pub(super) fn majority(&self, world: &World, chosen: impl Fn(&Member) -> bool) -> bool {
        let votes = world.members[..self.members].iter();
        self.majorities.won(votes.map(|member| if chosen(member) { Yes::Admitted } else { Yes::None }))
    }

    /// Ends the client's attempt or hold, and removes its keys.
    pub(super) fn over(world: &mut World, client: usize) {
        for member in &mut world.members {
            if usize::from(member.owner) == client + 1 {
                member.owner = 0;
            }
            member.forget(client);
        }
        (world.clients[client].phase, world.clients[client].token) = (Phase::Idle, 0);
    }

    pub(super) fn grant(&self, world: &mut World, client: usize, token: u8) {
        world.reversed |= token <= world.last;
        world.last = world.last.max(token);
        if self.floor {
            world.floor = world.floor.max(token);
        }
        for member in &mut world.members {
            member.forget(client);
        }
        world.clients[client] = Client { phase: Phase::Held, token };
    }

    /// The counter to restore.
    ///
    /// Unix time is left out, because it would hide errors in the other two sources. Without a floor the operator waits
    /// for missing counters.
    pub(super) fn restored(&self, world: &World, others: usize) -> Option<u8> {
        let token = |number: u8| FencingToken::new(number.into()).unwrap();
        let read = (0..self.members).filter(|member| others >> member & 1 == 1);
        let counters: Vec<_> = read.map(|member| token(world.members[member].counter)).collect();
        let floor = if self.floor { token(world.floor) } else { FencingToken::ZERO };
        let restored = restored(&counters, self.needed, floor, FencingToken::ZERO);
        (self.floor || counters.len() >= self.needed).then(|| u8::try_from(restored.get()).unwrap())
    }

    pub(super) fn apply(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Acquire(client) => world.clients[client].phase = Phase::Acquiring,
            Step::Over(client) => Self::over(world, client),
            Step::Set(client, at) => {
                let member = &mut world.members[at];
                let is_unvoted = member.yes[client] == 0 || !self.counts_behind_set;
                let is_new = !member.set[client] && is_unvoted && member.refused[client] == 0;
                if member.fence != Fence::Admitted || member.owner != 0 || !is_new {
                    return false;
                }
                member.owner = u8::try_from(client + 1).unwrap();
                member.set[client] = true;
            }
            Step::Count(client, at) => {
                let is_acquiring = world.clients[client].phase == Phase::Acquiring;
                let member = &mut world.members[at];
                let is_set = member.set[client] || !self.counts_behind_set && member.yes[client] == 0;
                if member.fence != Fence::Admitted || !is_set || member.counter == self.most_counter {
                    return false;
                }
                member.counter += 1;
                // A request that is too late to be counted still takes a number.
                if is_acquiring {
                    member.yes[client] = member.counter;
                }
                member.set[client] &= !self.counts_behind_set;
            }
            Step::Refuse(client, at) => {
                let member = &mut world.members[at];
                let is_others = member.owner != 0 && usize::from(member.owner) != client + 1;
                let is_new = member.refused[client] == 0 && member.yes[client] == 0 && !member.set[client];
                // An ignored number has the effect of another key that takes one.
                let is_told = !self.refused_count_for_nothing;
                if member.fence != Fence::Admitted
                    || !is_told
                    || !is_others
                    || !is_new
                    || member.counter == self.most_counter
                {
                    return false;
                }
                member.counter += 1;
                member.refused[client] = member.counter;
            }
            Step::Lapse(at) => {
                let owner = usize::from(world.members[at].owner).checked_sub(1);
                if self.deadline || owner.is_none_or(|owner| world.clients[owner].phase != Phase::Acquiring) {
                    return false;
                }
                world.members[at].owner = 0;
            }
            Step::Decide(client, among) => {
                let has_voted =
                    |member: &Member| member.yes[client] > 0 && (self.counts_behind_set || member.set[client]);
                let voters: Vec<usize> = (0..self.members).filter(|at| among >> at & 1 == 1).collect();
                if voters.len() < self.quorum() || !voters.iter().all(|at| has_voted(&world.members[*at])) {
                    return false;
                }
                let largest = voters.iter().map(|at| world.members[*at].yes[client]).max().unwrap_or(0);
                if let Some(token) = self.at_once(world, client, &voters) {
                    self.grant(world, client, token);
                } else if !self.write_back {
                    self.grant(world, client, largest);
                } else if voters.len() == self.quorum() {
                    let chosen = (0..self.members).filter(|at| !self.same_set || voters.contains(at));
                    chosen.for_each(|at| world.members[at].chosen[client] = true);
                    (world.clients[client].phase, world.clients[client].token) = (Phase::WritingBack, largest);
                } else {
                    // A decision that leaves out some of these votes equals a decision by fewer votes.
                    return false;
                }
            }
            Step::Raise(client, at) => {
                let token = world.clients[client].token;
                let member = &mut world.members[at];
                let ours = usize::from(member.owner) == client + 1 || !self.checks_value;
                if member.fence != Fence::Admitted || !member.chosen[client] || member.raised[client] || !ours {
                    return false;
                }
                member.counter = member.counter.max(token);
                member.raised[client] = true;
            }
            Step::Raised(client) => {
                // Each chosen member must have confirmed. The chosen members are a majority.
                let has_confirmed = |member: &Member| member.raised[client] || !member.chosen[client] || !self.same_set;
                let all = world.members[..self.members].iter().all(has_confirmed);
                if !all || !self.majority(world, |member| member.raised[client]) {
                    return false;
                }
                let token = world.clients[client].token;
                self.grant(world, client, token);
            }
            Step::OtherKey(at) => {
                let member = &mut world.members[at];
                if world.others == self.others || member.fence != Fence::Admitted || member.counter == self.most_counter
                {
                    return false;
                }
                world.others += 1;
                member.counter += 1;
            }
            Step::Read(at) => {
                let counter = world.members[at].counter;
                if self.levels == 0 || world.members[at].fence != Fence::Admitted || world.read == counter {
                    return false;
                }
                world.read = counter;
            }
            Step::Level(at) => {
                let member = &mut world.members[at];
                let level = if self.level_raises { member.counter.max(world.read) } else { world.read };
                if world.levels == self.levels || level == member.counter || member.fence != Fence::Admitted {
                    return false;
                }
                world.levels += 1;
                member.counter = level;
            }
            Step::Restart(at) => {
                let member = &mut world.members[at];
                if world.restarts == self.restarts || member.fence == Fence::Waiting {
                    return false;
                }
                world.restarts += 1;
                (member.counter, member.owner, member.restored, member.fence) = (0, 0, 0, Fence::Waiting);
                for client in 0..2 {
                    (member.set[client], member.refused[client]) = (false, 0);
                    member.counted[client] |= member.yes[client] > 0 || member.raised[client];
                }
            }
            Step::Wait(at) => {
                let member = &mut world.members[at];
                member.fence = match member.fence {
                    _ if member.counted != [false; 2] => return false,
                    Fence::Waiting => Fence::Waited,
                    Fence::WaitingRestored => Fence::Restored,
                    _ => return false,
                };
            }
            Step::Restore(at, others) => {
                let readable = |(index, member): (usize, &Member)| {
                    others >> index & 1 == 0 || index != at && (member.fence == Fence::Admitted || !self.reads_admitted)
                };
                if !world.members.iter().enumerate().all(readable) {
                    return false;
                }
                let restored = if self.restore { self.restored(world, others) } else { Some(0) };
                let (Some(restored), member) = (restored, &mut world.members[at]) else { return false };
                member.fence = match member.fence {
                    Fence::Waited => Fence::Restored,
                    Fence::Waiting if !self.restore_late => Fence::WaitingRestored,
                    _ => return false,
                };
                member.restored = restored;
                if self.floor {
                    world.floor = world.floor.max(restored);
                }
            }
            Step::Admit(at) => {
                let member = &mut world.members[at];
                if member.fence != Fence::Restored {
                    return false;
                }
                (member.counter, member.restored) = (member.counter.max(member.restored), 0);
                member.fence = Fence::Admitted;
            }
        }
        true
    }
}
