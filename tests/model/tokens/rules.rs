//! The model's implementation for the checker.

use std::fmt::Write;

use super::*;
use crate::check::Rules;

impl Rules for Tokens {
    type State = World;
    type Step = Step;

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        for (client, Client { phase, .. }) in world.clients.iter().enumerate() {
            match phase {
                Phase::Idle => steps.push(Step::Acquire(client)),
                Phase::Acquiring => {
                    steps.extend((1..1 << self.members).map(|among| Step::Decide(client, among)));
                    steps.push(Step::Over(client));
                }
                Phase::WritingBack => steps.extend([Step::Raised(client), Step::Over(client)]),
                Phase::Held => steps.push(Step::Over(client)),
            }
            for member in 0..self.members {
                if *phase != Phase::Idle {
                    let steps_of =
                        [Step::Set(client, member), Step::Count(client, member), Step::Refuse(client, member)];
                    steps.extend(steps_of);
                }
                if *phase == Phase::WritingBack {
                    steps.push(Step::Raise(client, member));
                }
            }
        }
        for member in 0..self.members {
            match world.members[member].fence {
                Fence::Admitted => {
                    steps.extend([Step::OtherKey(member), Step::Read(member), Step::Level(member)]);
                }
                Fence::Restored => steps.push(Step::Admit(member)),
                _ => {
                    steps.push(Step::Wait(member));
                    steps.extend((0..1 << self.members).map(|others| Step::Restore(member, others)));
                }
            }
            steps.extend([Step::Restart(member), Step::Lapse(member)]);
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
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

    fn canonical(&self, world: World) -> World {
        let sorted = |mut world: World| {
            world.members[..self.members].sort_unstable();
            world
        };
        let mut swapped = world;
        swapped.clients.swap(0, 1);
        for member in &mut swapped.members[..self.members] {
            member.owner = if member.owner == 0 { 0 } else { 3 - member.owner };
            member.set.swap(0, 1);
            member.yes.swap(0, 1);
            member.refused.swap(0, 1);
            member.chosen.swap(0, 1);
            member.raised.swap(0, 1);
            member.counted.swap(0, 1);
        }
        sorted(world).min(sorted(swapped))
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.reversed.then_some("a later holder's token is not greater")
    }

    /// Every restart has happened, all members vote again, and a client holds the lock with a later token.
    fn goal(&self, world: &World) -> bool {
        world.restarts == self.restarts
            && world.members.iter().all(|member| member.fence == Fence::Admitted)
            && world.clients.iter().any(|client| client.phase == Phase::Held && client.token > 1)
    }

    fn describe(&self, step: Step) -> String {
        let name = |client: usize| ["A", "B"][client];
        let names = |some: usize| {
            let some: Vec<_> =
                (0..self.members).filter(|m| some >> m & 1 == 1).map(|m| format!("m{}", m + 1)).collect();
            format!("[{}]", some.join(" "))
        };
        match step {
            Step::Acquire(c) => format!("{} starts to acquire", name(c)),
            Step::Over(c) => format!("{} gives up or releases", name(c)),
            Step::Set(c, m) => format!("m{} sets {}'s key", m + 1, name(c)),
            Step::Count(c, m) => format!("m{} counts for {}", m + 1, name(c)),
            Step::Refuse(c, m) => format!("m{} refuses {} and counts", m + 1, name(c)),
            Step::Lapse(m) => format!("the key on m{} ends", m + 1),
            Step::Decide(c, among) => format!("{} decides by {}", name(c), names(among)),
            Step::Raise(c, m) => format!("m{} confirms {}'s write-back", m + 1, name(c)),
            Step::Raised(c) => format!("{}'s write-back has a majority", name(c)),
            Step::OtherKey(m) => format!("another key takes a number of m{}", m + 1),
            Step::Restart(m) => format!("m{} restarts with counter 0, fenced", m + 1),
            Step::Wait(m) => format!("the rejoin delay of m{} is over", m + 1),
            Step::Read(m) => format!("the leader reads the counter of m{}", m + 1),
            Step::Level(m) => format!("the leader levels m{}", m + 1),
            Step::Restore(m, others) => format!("what m{} will count from is made up, of {}", m + 1, names(others)),
            Step::Admit(m) => format!("m{} gets its counter and is admitted", m + 1),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::from("[");
        for member in &world.members[..self.members] {
            let space = if text.len() > 1 { " " } else { "" };
            let fence = if member.fence == Fence::Admitted { "" } else { "!" };
            write!(text, "{space}{}{}{fence}", member.counter, ["", "A", "B"][usize::from(member.owner)]).unwrap();
        }
        text.push(']');
        for (name, client) in ["A", "B"].iter().zip(&world.clients).filter(|(_, client)| client.phase != Phase::Idle) {
            let token = if client.token > 0 { format!(" token {}", client.token) } else { String::new() };
            write!(text, " {name} {:?}{token}", client.phase).unwrap();
        }
        text
    }
}
