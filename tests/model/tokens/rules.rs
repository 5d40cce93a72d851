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
                    steps.extend(sets(self.members).skip(1).map(|among| Step::Decide(client, among)));
                    steps.push(Step::Over(client));
                }
                Phase::WritingBack => steps.extend([Step::Raised(client), Step::Over(client)]),
                Phase::Held => steps.push(Step::Over(client)),
            }
        }
        for at in 0..self.members {
            match world.members[at].fence {
                Fence::Admitted => {
                    steps.extend([Step::OtherKey(at), Step::Read(at), Step::Level(at)]);
                    for client in (0..2).filter(|client| world.clients[*client].phase != Phase::Idle) {
                        steps.extend([Step::Set(client, at), Step::Count(client, at)]);
                        steps.extend([Step::Refuse(client, at), Step::Raise(client, at)]);
                    }
                }
                Fence::Restored => steps.push(Step::Admit(at)),
                _ => {
                    steps.push(Step::Wait(at));
                    steps.extend(sets(self.members).map(|others| Step::Restore(at, others)));
                }
            }
            steps.extend([Step::Restart(at), Step::Lapse(at)]);
        }
    }

    fn apply(&self, world: &mut World, step: Step) {
        let members = world.members;
        let can_count = |at: usize| members[at].counter < self.most_counter;
        match step {
            Step::Acquire(client) => world.clients[client].phase = Phase::Acquiring,
            Step::Over(client) => Self::over(world, client),
            Step::Set(client, at) if members[at].owner == 0 => {
                let answers = &mut world.members[at].answers[client];
                if answers.set || answers.refused > 0 || (answers.yes > 0 && self.counts_behind_set) {
                    return;
                }
                answers.set = true;
                world.members[at].owner = number(client);
            }
            Step::Count(client, at) if can_count(at) => {
                let member = &mut world.members[at];
                let answers = &mut member.answers[client];
                if !answers.set && (self.counts_behind_set || answers.yes > 0) {
                    return;
                }
                member.counter += 1;
                // A request that is too late to be counted still takes a number.
                if world.clients[client].phase == Phase::Acquiring {
                    answers.yes = member.counter;
                }
                answers.set &= !self.counts_behind_set;
            }
            // An ignored number has the effect of another key that takes one.
            Step::Refuse(client, at) if can_count(at) && !self.refused_count_for_nothing => {
                let member = &mut world.members[at];
                let Answers { set, yes, refused, .. } = member.answers[client];
                if [0, number(client)].contains(&member.owner) || set || yes > 0 || refused > 0 {
                    return;
                }
                member.counter += 1;
                member.answers[client].refused = member.counter;
            }
            Step::Lapse(at) if !self.deadline => {
                let is_acquiring = |(client, now): (usize, &Client)| {
                    members[at].owner == number(client) && now.phase == Phase::Acquiring
                };
                if world.clients.iter().enumerate().any(is_acquiring) {
                    world.members[at].owner = 0;
                }
            }
            Step::Decide(client, among) => {
                let has_voted = |at: usize| {
                    let Answers { set, yes, .. } = members[at].answers[client];
                    yes > 0 && (self.counts_behind_set || set)
                };
                let voters: Vec<usize> = members_of(among).collect();
                if voters.len() < self.quorum() || !voters.iter().all(|at| has_voted(*at)) {
                    return;
                }
                let largest = voters.iter().map(|at| members[*at].answers[client].yes).max().unwrap_or(0);
                if let Some(token) = self.at_once(world, client, &voters) {
                    self.grant(world, client, token);
                } else if !self.write_back {
                    self.grant(world, client, largest);
                } else if voters.len() == self.quorum() {
                    // With more votes it equals a decision by fewer of them.
                    let chosen = (0..self.members).filter(|at| !self.same_set || voters.contains(at));
                    chosen.for_each(|at| world.members[at].answers[client].chosen = true);
                    (world.clients[client].phase, world.clients[client].token) = (Phase::WritingBack, largest);
                }
            }
            Step::Raise(client, at) if members[at].owner == number(client) || !self.checks_value => {
                let member = &mut world.members[at];
                let answers = &mut member.answers[client];
                if !answers.chosen || answers.raised {
                    return;
                }
                member.counter = member.counter.max(world.clients[client].token);
                answers.raised = true;
            }
            Step::Raised(client) => {
                // Each chosen member must have confirmed. The chosen members are a majority.
                let answers = || members[..self.members].iter().map(|member| member.answers[client]);
                let all = answers().all(|answers| answers.raised || !answers.chosen || !self.same_set);
                if !all || !self.majority(answers().map(|answers| answers.raised)) {
                    return;
                }
                self.grant(world, client, world.clients[client].token);
            }
            Step::OtherKey(at) if world.others < self.others && can_count(at) => {
                world.others += 1;
                world.members[at].counter += 1;
            }
            Step::Read(at) if self.levels > 0 => world.read = members[at].counter,
            Step::Level(at) if world.levels < self.levels => {
                let counter = members[at].counter;
                world.members[at].counter = if self.level_raises { counter.max(world.read) } else { world.read };
                world.levels += u8::from(world.members[at].counter != counter);
            }
            Step::Restart(at) if world.restarts < self.restarts && members[at].fence != Fence::Waiting => {
                world.restarts += 1;
                let member = &mut world.members[at];
                (member.counter, member.owner, member.restored, member.fence) = (0, 0, 0, Fence::Waiting);
                for answers in &mut member.answers {
                    (answers.set, answers.refused) = (false, 0);
                    answers.counted |= answers.yes > 0 || answers.raised;
                }
            }
            Step::Wait(at) if members[at].answers.iter().all(|answers| !answers.counted) => {
                world.members[at].fence = match members[at].fence {
                    Fence::Waiting => Fence::Waited,
                    Fence::WaitingRestored => Fence::Restored,
                    _ => return,
                };
            }
            Step::Restore(at, others) => {
                let is_read = |other: usize| members[other].fence == Fence::Admitted || !self.reads_admitted;
                if !members_of(others).all(|other| other != at && is_read(other)) {
                    return;
                }
                let restored = if self.restore { self.restored(world, others) } else { Some(0) };
                let Some(restored) = restored else { return };
                world.members[at].fence = match members[at].fence {
                    Fence::Waited => Fence::Restored,
                    Fence::Waiting if !self.restore_late => Fence::WaitingRestored,
                    _ => return,
                };
                world.members[at].restored = restored;
                if self.floor {
                    world.floor = world.floor.max(restored);
                }
            }
            Step::Admit(at) => {
                let member = &mut world.members[at];
                (member.counter, member.restored) = (member.counter.max(member.restored), 0);
                member.fence = Fence::Admitted;
            }
            _ => {}
        }
    }

    fn canonical(&self, world: World) -> World {
        let sorted = |mut world: World| {
            world.members[..self.members].sort_unstable();
            world
        };
        let mut swapped = world;
        swapped.clients.swap(0, 1);
        for member in &mut swapped.members[..self.members] {
            member.owner = [0, 2, 1][usize::from(member.owner)];
            member.answers.swap(0, 1);
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
        match step {
            Step::Acquire(c) => format!("{} starts to acquire", CLIENTS[c]),
            Step::Over(c) => format!("{} gives up or releases", CLIENTS[c]),
            Step::Set(c, m) => format!("m{} sets {}'s key", m + 1, CLIENTS[c]),
            Step::Count(c, m) => format!("m{} counts for {}", m + 1, CLIENTS[c]),
            Step::Refuse(c, m) => format!("m{} refuses {} and counts", m + 1, CLIENTS[c]),
            Step::Lapse(m) => format!("the key on m{} ends", m + 1),
            Step::Decide(c, among) => format!("{} decides by {}", CLIENTS[c], named(among)),
            Step::Raise(c, m) => format!("m{} confirms {}'s write-back", m + 1, CLIENTS[c]),
            Step::Raised(c) => format!("{}'s write-back has a majority", CLIENTS[c]),
            Step::OtherKey(m) => format!("another key takes a number of m{}", m + 1),
            Step::Restart(m) => format!("m{} restarts with counter 0, fenced", m + 1),
            Step::Wait(m) => format!("the rejoin delay of m{} is over", m + 1),
            Step::Read(m) => format!("the leader reads the counter of m{}", m + 1),
            Step::Level(m) => format!("the leader levels m{}", m + 1),
            Step::Restore(m, others) => format!("what m{} will count from is made up, of {}", m + 1, named(others)),
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
        for (name, client) in CLIENTS.iter().zip(&world.clients).filter(|(_, client)| client.phase != Phase::Idle) {
            let token = if client.token > 0 { format!(" token {}", client.token) } else { String::new() };
            write!(text, " {name} {:?}{token}", client.phase).unwrap();
        }
        text
    }
}
