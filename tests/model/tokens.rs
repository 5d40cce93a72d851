//! Tokens: members that count, vote, forget and are given their counters back; two clients that acquire in one round or two.
//!
//! There is no time here. The fence appears as what the model of exclusion shows of it: a process that forgot is not admitted
//! while an acquisition is under way that counts a vote or an acknowledgement of the process before. Validities are left out,
//! so that holders may follow each other sooner than in truth: more behaviours, not fewer.

use std::fmt::Write;

use redlock_operator::{
    quorum::model::lists::meets_every_majority,
    redlock::{FencingToken, restored},
};

use super::{
    check::{Rules, holds, large, violated},
    core::{Majorities, Yes},
};

const MOST: usize = 5;

#[derive(Clone)]
struct Tokens {
    members: usize,
    /// Bounds.
    most_counter: u8,
    restarts: u8,
    /// How often another key takes a number, on one member.
    others: u8,
    /// The token is written back where a majority does not store it yet.
    write_back: bool,
    /// A write-back counts only where the key still holds the caller's value.
    checks_value: bool,
    /// A counter is given back at the admission.
    restore: bool,
    /// It is made up after the wait, not before.
    restore_late: bool,
    /// Counters are read from admitted members only.
    reads_admitted: bool,
    /// So many counters of others are needed.
    needed: usize,
    /// The floor in etcd stands in for counters that cannot be had.
    floor: bool,
    majorities: Majorities,
}

impl Tokens {
    fn new(members: usize) -> Self {
        Self {
            members,
            most_counter: 4,
            restarts: 1,
            others: 1,
            write_back: true,
            checks_value: true,
            restore: true,
            restore_late: true,
            reads_admitted: true,
            needed: meets_every_majority(&vec![String::new(); members]),
            floor: true,
            majorities: Majorities::new(members),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fence {
    #[default]
    Admitted,
    Waiting,
    /// Waiting, and what it will be given is made up already: only without [`Tokens::restore_late`].
    WaitingRestored,
    Waited,
    Restored,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    counter: u8,
    /// The client whose value the key holds, plus one; nobody's is 0.
    owner: u8,
    fence: Fence,
    /// What its counter will be raised to.
    restored: u8,
    /// The token in its yes to each client; 0 is none.
    yes: [u8; 2],
    /// It has confirmed the write-back.
    raised: [bool; 2],
    /// The process before counts in an acquisition that is under way.
    counted: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    #[default]
    Idle,
    Acquiring,
    WritingBack,
    Held,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    token: u8,
    hint: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    members: [Member; MOST],
    clients: [Client; 2],
    /// The greatest token of any holder.
    last: u8,
    floor: u8,
    restarts: u8,
    others: u8,
    reversed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Acquire(usize),
    Over(usize),
    Set(usize, usize),
    Decide(usize),
    Raise(usize, usize),
    Raised(usize),
    OtherKey(usize),
    Restart(usize),
    Wait(usize),
    /// From these others, as bits.
    Restore(usize, usize),
    Admit(usize),
}

impl Tokens {
    fn majority(&self, world: &World, chosen: impl Fn(&Member) -> bool) -> bool {
        let votes = world.members[..self.members].iter();
        self.majorities.won(votes.map(|member| if chosen(member) { Yes::Admitted } else { Yes::None }))
    }

    /// The client's attempt or hold is over, and its keys are gone.
    fn over(world: &mut World, client: usize) {
        for member in &mut world.members {
            if usize::from(member.owner) == client + 1 {
                member.owner = 0;
            }
            (member.yes[client], member.raised[client], member.counted[client]) = (0, false, false);
        }
        (world.clients[client].phase, world.clients[client].token) = (Phase::Idle, 0);
    }

    fn grant(&self, world: &mut World, client: usize, token: u8) {
        world.reversed |= token <= world.last;
        world.last = world.last.max(token);
        if self.floor {
            world.floor = world.floor.max(token);
        }
        for member in &mut world.members {
            (member.yes[client], member.raised[client], member.counted[client]) = (0, false, false);
        }
        world.clients[client] = Client { phase: Phase::Held, token, hint: token };
    }

    /// Unix time is left out, it would cover for the other two. Without a floor counters that cannot be had are waited for.
    fn restored(&self, world: &World, others: usize) -> Option<u8> {
        let token = |number: u8| FencingToken::new(number.into()).unwrap();
        let read = (0..self.members).filter(|member| others >> member & 1 == 1);
        let counters: Vec<_> = read.map(|member| token(world.members[member].counter)).collect();
        let floor = if self.floor { token(world.floor) } else { FencingToken::ZERO };
        let restored = restored(&counters, self.needed, floor, FencingToken::ZERO);
        (self.floor || counters.len() >= self.needed).then(|| u8::try_from(restored.get()).unwrap())
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        match step {
            Step::Acquire(client) => world.clients[client].phase = Phase::Acquiring,
            Step::Over(client) => Self::over(world, client),
            Step::Set(client, at) => {
                let Client { phase, hint, .. } = world.clients[client];
                let member = &mut world.members[at];
                let token = member.counter.max(hint) + 1;
                let free = member.fence == Fence::Admitted && member.owner == 0 && member.yes[client] == 0;
                if !free || token > self.most_counter {
                    return false;
                }
                (member.counter, member.owner) = (token, u8::try_from(client + 1).unwrap());
                // Too late to be counted it still takes the key, and a number.
                if phase == Phase::Acquiring {
                    member.yes[client] = token;
                }
            }
            Step::Decide(client) => {
                if !self.majority(world, |member| member.yes[client] > 0) {
                    return false;
                }
                let token = world.members.iter().map(|member| member.yes[client]).max().unwrap_or(0);
                if !self.write_back || self.majority(world, |member| member.yes[client] >= token) {
                    self.grant(world, client, token);
                } else {
                    (world.clients[client].phase, world.clients[client].token) = (Phase::WritingBack, token);
                }
            }
            Step::Raise(client, at) => {
                let token = world.clients[client].token;
                let member = &mut world.members[at];
                let ours = usize::from(member.owner) == client + 1 || !self.checks_value;
                if member.fence != Fence::Admitted || member.raised[client] || !ours {
                    return false;
                }
                member.counter = member.counter.max(token);
                member.raised[client] = true;
            }
            Step::Raised(client) => {
                if !self.majority(world, |member| member.raised[client]) {
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
            Step::Restart(at) => {
                let member = &mut world.members[at];
                if world.restarts == self.restarts || member.fence == Fence::Waiting {
                    return false;
                }
                world.restarts += 1;
                (member.counter, member.owner, member.restored, member.fence) = (0, 0, 0, Fence::Waiting);
                for client in 0..2 {
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
                Phase::Acquiring => steps.extend([Step::Decide(client), Step::Over(client)]),
                Phase::WritingBack => steps.extend([Step::Raised(client), Step::Over(client)]),
                Phase::Held => steps.push(Step::Over(client)),
            }
            for member in 0..self.members {
                if *phase != Phase::Idle {
                    steps.push(Step::Set(client, member));
                }
                if *phase == Phase::WritingBack {
                    steps.push(Step::Raise(client, member));
                }
            }
        }
        for member in 0..self.members {
            match world.members[member].fence {
                Fence::Admitted => steps.push(Step::OtherKey(member)),
                Fence::Restored => steps.push(Step::Admit(member)),
                _ => {
                    steps.push(Step::Wait(member));
                    steps.extend((0..1 << self.members).map(|others| Step::Restore(member, others)));
                }
            }
            steps.push(Step::Restart(member));
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
            member.yes.swap(0, 1);
            member.raised.swap(0, 1);
            member.counted.swap(0, 1);
        }
        sorted(world).min(sorted(swapped))
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world.reversed.then_some("a later holder's token is not greater")
    }

    /// Every restart has happened, all members vote again, and somebody holds the lock with a later token.
    fn goal(&self, world: &World) -> bool {
        world.restarts == self.restarts
            && world.members.iter().all(|member| member.fence == Fence::Admitted)
            && world.clients.iter().any(|client| client.phase == Phase::Held && client.token > 1)
    }

    fn tell(&self, step: Step) -> String {
        let name = |client: usize| ["A", "B"][client];
        match step {
            Step::Acquire(c) => format!("{} starts to acquire", name(c)),
            Step::Over(c) => format!("{} gives up or releases", name(c)),
            Step::Set(c, m) => format!("m{} sets {}'s key and counts", m + 1, name(c)),
            Step::Decide(c) => format!("{} has a majority", name(c)),
            Step::Raise(c, m) => format!("m{} confirms {}'s write-back", m + 1, name(c)),
            Step::Raised(c) => format!("{}'s write-back has a majority", name(c)),
            Step::OtherKey(m) => format!("another key takes a number of m{}", m + 1),
            Step::Restart(m) => format!("m{} restarts with counter 0, fenced", m + 1),
            Step::Wait(m) => format!("the rejoin delay of m{} is over", m + 1),
            Step::Restore(m, others) => {
                let from: Vec<_> =
                    (0..self.members).filter(|o| others >> o & 1 == 1).map(|o| format!("m{}", o + 1)).collect();
                format!("what m{} will count from is made up, of [{}]", m + 1, from.join(" "))
            }
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

mod tests;
