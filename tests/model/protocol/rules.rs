//! The steps of the protocol, for the checker.

use super::*;
use crate::check::{Rules, sort_alike};
use crate::core::{granted, renewed};

impl<P: Protocol> Rules for P {
    type State = WorldOf<P>;
    type Step = Step<P::Step>;

    fn starts(&self) -> Vec<Self::State> {
        vec![self.start()]
    }

    fn steps(&self, world: &Self::State, steps: &mut Vec<Self::Step>) {
        steps.push(Step::Tick);
        let Base { members, short_ttl, .. } = *self.base();
        for (client, now) in world.clients.iter().enumerate() {
            match now.phase {
                Phase::Idle => steps.push(Step::Acquire(client)),
                Phase::Acquiring => {
                    steps.extend([Step::Grant(client), Step::GiveUp(client)]);
                    steps.extend((0..members).map(|at| Step::Set(client, at)));
                }
                Phase::Held => {
                    steps.extend([Step::Extend(client, false), Step::GiveUp(client)]);
                    steps.extend(short_ttl.map(|_| Step::Extend(client, true)));
                }
                Phase::Extending => {
                    steps.extend([Step::Renew(client), Step::GiveUp(client)]);
                    let unvoted = (0..members).filter(|at| world.members[*at].votes[client] == Yes::None);
                    steps.extend(unvoted.map(|at| Step::Extended(client, at)));
                }
            }
        }
        steps.extend((0..members).flat_map(|at| [Step::Restart(at), Step::Observe(at), Step::Admit(at)]));
        steps.extend(self.extra_steps(world).into_iter().map(Step::Extra));
    }

    fn apply(&self, world: &mut Self::State, step: Self::Step) {
        let before = *world;
        match step {
            Step::Tick => tick(self, world),
            Step::Acquire(client) => self.enter(world, client, Phase::Acquiring),
            Step::Extend(client, short) => {
                self.enter(world, client, Phase::Extending);
                world.clients[client].short = short;
            }
            Step::Set(client, at) => execute(self, world, client, at, NOBODY),
            Step::Extended(client, at) => execute(self, world, client, at, number(client)),
            Step::Grant(client) => grant(self, world, client),
            Step::Renew(client) => renew(self, world, client),
            Step::GiveUp(client) => self.give_up(world, client),
            Step::Restart(at) => self.restart(world, at),
            Step::Observe(at) => world.members[at].fence.observe(),
            Step::Admit(at) => self.admit(world, at),
            Step::Extra(step) => self.apply_extra(world, step),
        }
        self.after_step(&before, world, step);
    }

    fn canonical(&self, mut world: Self::State) -> Self::State {
        let sort = |world: &mut Self::State| sort_alike(&mut world.members[..self.base().members], |at| self.role(at));
        let mut swapped = world;
        sort(&mut world);
        if !self.are_clients_alike() {
            return world;
        }
        swapped.clients.swap(0, 1);
        for member in &mut swapped.members {
            member.owner = [NOBODY, 2, 1, 3][usize::from(member.owner)];
            member.votes.swap(0, 1);
            self.swap_clients(&mut member.extra);
        }
        sort(&mut swapped);
        world.min(swapped)
    }

    fn violation(&self, world: &Self::State) -> Option<&'static str> {
        let mut holders = world.clients.iter().filter(|client| client.valid > 0);
        if holders.clone().count() == 2 {
            Some("two clients are inside their validity")
        } else if holders.any(|client| client.superseded) {
            Some("a holder is valid again although another was granted the lock in between")
        } else {
            None
        }
    }

    fn goal(&self, world: &Self::State) -> bool {
        Protocol::goal(self, world)
    }

    fn describe(&self, step: Self::Step) -> String {
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Acquire(c) => format!("{} starts to acquire", CLIENTS[c]),
            Step::Set(c, m) => format!("m{} sets {}'s key: yes", m + 1, CLIENTS[c]),
            Step::Grant(c) => format!("{} has its majority: granted", CLIENTS[c]),
            Step::Extend(c, short) => {
                format!("{} starts to extend{}", CLIENTS[c], if short { ", shorter" } else { "" })
            }
            Step::Extended(c, m) => format!("m{} extends {}'s key: yes", m + 1, CLIENTS[c]),
            Step::Renew(c) => format!("{}'s extension has its majority", CLIENTS[c]),
            Step::GiveUp(c) => format!("{} gives up or releases", CLIENTS[c]),
            Step::Restart(m) => format!("m{} restarts and has forgotten everything", m + 1),
            Step::Observe(m) => format!("the operator observes m{}'s new process", m + 1),
            Step::Admit(m) => format!("m{} is admitted", m + 1),
            Step::Extra(step) => self.describe_extra(step),
        }
    }

    fn show(&self, world: &Self::State) -> String {
        let members = world.members[..self.base().members].iter().map(|member| {
            let owner = ["-", "A", "B", "?"][usize::from(member.owner)];
            let ttl = if member.ttl > 0 { member.ttl.to_string() } else { String::new() };
            let fence = match member.fence {
                Fence::Admitted => String::new(),
                Fence::Restarted => "!new".into(),
                Fence::Observed(age) => format!("!{age}"),
            };
            format!("{owner}{ttl}{fence}{}", self.show_member(&member.extra))
        });
        let mut text = format!("{}[{}]", self.show_world(&world.extra), members.collect::<Vec<_>>().join(" "));
        for (name, client) in CLIENTS.iter().zip(&world.clients) {
            let valid = if client.valid > 0 { format!(", valid for {}", client.valid) } else { String::new() };
            text += &format!(" {name}{} {:?}{valid}", self.show_client(&client.extra), client.phase);
        }
        text
    }
}

/// Executes a request for a key with this owner.
fn execute<P: Protocol>(model: &P, world: &mut WorldOf<P>, client: usize, at: usize, owner: u8) {
    if world.members[at].owner == owner && model.executes(world, client, at) {
        let vote = model.vote(world, client, at);
        let ttl = model.ttl(&world.clients[client], &world.members[at]);
        let member = &mut world.members[at];
        (member.owner, member.ttl, member.votes[client]) = (number(client), ttl, vote);
    }
}

fn grant<P: Protocol>(model: &P, world: &mut WorldOf<P>, client: usize) {
    let valid = granted(model.base().ttl, world.clients[client].elapsed).filter(|_| model.won(world, client));
    let Some(valid) = valid else { return };
    model.enter(world, client, Phase::Held);
    (world.clients[client].valid, world.clients[client].superseded) = (valid, false);
    let other = &mut world.clients[1 - client];
    other.superseded |= matches!(other.phase, Phase::Held | Phase::Extending);
}

fn renew<P: Protocol>(model: &P, world: &mut WorldOf<P>, client: usize) {
    if !model.won(world, client) {
        return;
    }
    let Client { elapsed, valid, short, .. } = world.clients[client];
    let ttl = model.base().requested_ttl(short);
    let earned = if model.base().continuity {
        renewed(ttl, elapsed, valid)
    } else {
        granted(ttl, elapsed).map(|earned| earned.max(valid))
    };
    match earned {
        Some(earned) => {
            model.enter(world, client, Phase::Held);
            world.clients[client].valid = earned;
        }
        None => model.over(world, client),
    }
}

fn tick<P: Protocol>(model: &P, world: &mut WorldOf<P>) {
    let Base { members, ttl, ref delay, continuity, .. } = *model.base();
    for member in &mut world.members[..members] {
        member.ttl = member.ttl.saturating_sub(1);
        if member.ttl == 0 {
            member.owner = NOBODY;
        }
        member.fence.tick(delay);
    }
    for client in 0..2 {
        let now = &mut world.clients[client];
        now.elapsed = if now.is_in_round() { now.elapsed + 1 } else { 0 };
        let ran_out = now.valid == 1;
        now.valid = now.valid.saturating_sub(1);
        let is_over = match now.phase {
            Phase::Idle => false,
            Phase::Acquiring => now.elapsed >= ttl,
            Phase::Extending if !continuity => now.elapsed >= ttl && now.valid == 0,
            Phase::Held | Phase::Extending => ran_out,
        };
        if is_over {
            model.over(world, client);
        }
    }
}
