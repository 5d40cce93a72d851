//! The model's implementation for the checker.

use std::fmt::Write;

use super::*;
use crate::check::Rules;

impl Rules for Tokens {
    type State = World;
    type Step = Step;

    fn starts(&self) -> Vec<World> {
        vec![World::default()]
    }

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

    fn take(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        self.apply(&mut next, step).then_some(next)
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
