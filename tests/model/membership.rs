//! A change of the member list: members that join, leave, restart and are fenced, and two clients.
//!
//! The clients are replicas of the operator or outside clients, and receive the change late or never. The leader's
//! steps are those of `membership::decide`.
//!
//! Members can be external masters. The operator closes no users there. The record on the process has the epoch, and
//! the member refuses votes of an earlier epoch. A client that has not received an admission or a fencing continues to
//! count the earlier process.
//!
//! Abstractions: the closing of a member is recorded in the same step. A frozen leader is the subject of the model of
//! the fence. Whether every lock is on every member is not checked, because it only prevents losses.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use redlock_operator::quorum::model::lists::majority;

use super::{
    check::{Rules, holds, large, sort_alike, violated},
    core::{granted, rejoin_ticks, renewed, ticks},
    exclusion::{self, ADMITTED, NOBODY, OBSERVED, Phase, UNSEEN, admissions, number, show_member, show_valid},
};

mod apply;
mod leader;
mod tests;
mod tokens;

const MOST: usize = 5;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A replica of the operator: it needs the majorities of the lists in the status.
    Replica,
    /// An outside client, with the list of its Secret.
    Outside,
}

/// The rules, each with its switch.
#[derive(Clone)]
struct Change {
    /// Numbers of members.
    ///
    /// Members of one class are adjacent.
    old: Vec<usize>,
    new: Vec<usize>,
    members: usize,
    kinds: [Kind; 2],
    ttl: u8,
    /// Ticks from the first observation to the admission, and from the last closing to the end.
    delay: u8,
    /// Whether both lists count between the switch and the end.
    ///
    /// Otherwise only the new one counts.
    joint: bool,
    /// Whether users of the earlier epoch are closed.
    ///
    /// Otherwise their closing is only recorded.
    close: bool,
    /// Number of members of the old list that have to be closed.
    closed_needed: usize,
    /// Ticks from the last closing to the end.
    wait: u8,
    /// Whether clients with the new list are admitted at the end.
    ///
    /// Otherwise they are at the switch.
    clients_wait: bool,
    /// Whether a round uses connections of the epoch of its lists.
    bound_to_epoch: bool,
    /// Whether the members are external masters.
    external: bool,
    /// Whether an external member refuses a vote when its record has a later epoch.
    checked: bool,
    /// How often members restart, or are fenced while they run.
    restarts: u8,
    admits: Vec<bool>,
    /// A cache of decisions.
    decisions: Arc<Mutex<HashMap<u32, Vec<Step>>>>,
    /// Votes that make a majority of the old list and of the new one.
    needed: [usize; 2],
}

impl Change {
    fn new(old: &[usize], new: &[usize], kinds: [Kind; 2], ttl: u8) -> Self {
        let delay = rejoin_ticks(ttl);
        Self {
            old: old.to_vec(),
            new: new.to_vec(),
            members: old.iter().chain(new).max().unwrap() + 1,
            kinds,
            ttl,
            delay,
            joint: true,
            close: true,
            closed_needed: old.len(),
            wait: delay,
            clients_wait: true,
            bound_to_epoch: true,
            external: false,
            checked: true,
            restarts: 1,
            admits: admissions(delay),
            decisions: Arc::default(),
            needed: [old, new].map(|list| majority(&list.iter().map(|member| name(*member)).collect::<Vec<_>>())),
        }
    }
}

/// The progress of the change, and how much of it a client has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    #[default]
    Old,
    Joint,
    New,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    /// [`NOBODY`], or a client's number plus one.
    owner: u8,
    ttl: u8,
    /// [`ADMITTED`], [`UNSEEN`], or [`OBSERVED`] and more.
    fence: u8,
    /// Whether users of the earlier epoch are open, and the operator's users of the next one.
    ///
    /// For an external master: whether clients with the old list count this process, and whether clients with the
    /// change do.
    open: [bool; 2],
    /// Whether the record on the process has the new epoch.
    marked: bool,
    /// Whether the status has users of the earlier epoch as closed.
    recorded: bool,
    /// Whether each client has a yes in its current round.
    votes: [bool; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    knows: Stage,
    /// Its stage when the current round began.
    round: Stage,
    elapsed: u8,
    valid: u8,
    superseded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    stage: Stage,
    members: [Member; MOST],
    clients: [Client; 2],
    /// Ticks plus one since the old list has had no promises, according to the leader.
    closed_for: u8,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Receive(usize),
    Acquire(usize),
    Set(usize, usize),
    Grant(usize),
    GiveUp(usize),
    Extend(usize),
    Extended(usize, usize),
    Repaired(usize, usize),
    Renew(usize),
    Restart(usize),
    /// Its process continues to run, and is fenced because its clock was stepped.
    Fence(usize),
    Observe(usize),
    Admit(usize),
    /// The leader opens the user of the next epoch.
    OpenNext(usize),
    Switch,
    /// The leader closes the users of the earlier epoch.
    Close(usize),
    Finish,
}

fn name(member: usize) -> String {
    format!("main-{member}")
}

impl Rules for Change {
    type State = World;
    type Step = Step;

    /// The joining members have just started, and the leader has not observed them.
    fn starts(&self) -> Vec<World> {
        let mut world = World::default();
        for at in 0..self.members {
            let member = &mut world.members[at];
            match self.old.contains(&at) {
                true => member.open[0] = true,
                false => member.fence = UNSEEN,
            }
        }
        vec![world]
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for (client, now) in world.clients.iter().enumerate() {
            steps.push(Step::Receive(client));
            match now.phase {
                Phase::Idle => steps.push(Step::Acquire(client)),
                Phase::Acquiring => steps.extend([Step::Grant(client), Step::GiveUp(client)]),
                Phase::Held => steps.extend([Step::Extend(client), Step::GiveUp(client)]),
                Phase::Extending => steps.extend([Step::Renew(client), Step::GiveUp(client)]),
            }
            for member in 0..self.members {
                match now.phase {
                    Phase::Idle => {}
                    Phase::Acquiring => steps.push(Step::Set(client, member)),
                    Phase::Held => steps.push(Step::Repaired(client, member)),
                    Phase::Extending => steps.push(Step::Extended(client, member)),
                }
            }
        }
        for member in 0..self.members {
            steps.extend([Step::Restart(member), Step::Fence(member), Step::Observe(member), Step::Admit(member)]);
        }
        steps.extend(self.leads_to(world));
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        let is_possible = self.execute(world, step);
        world.closed_for = if self.former_closed(world) { world.closed_for.max(1) } else { 0 };
        is_possible
    }

    fn canonical(&self, world: World) -> World {
        let part = |member: usize| (self.old.contains(&member), self.new.contains(&member));
        let sorted = |mut world: World| {
            sort_alike(&mut world.members[..self.members], part);
            world
        };
        if self.kinds[0] != self.kinds[1] {
            return sorted(world);
        }
        let mut swapped = world;
        swapped.clients.swap(0, 1);
        for member in &mut swapped.members[..self.members] {
            member.owner = [NOBODY, 2, 1][usize::from(member.owner)];
            member.votes.swap(0, 1);
        }
        sorted(world).min(sorted(swapped))
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        exclusion::violation(world.clients.map(|client| (client.valid, client.superseded)))
    }

    /// The change has ended, and a client that has received the end holds the lock.
    fn goal(&self, world: &World) -> bool {
        world.stage == Stage::New && world.clients.iter().any(|client| client.valid > 0 && client.knows == Stage::New)
    }

    fn describe(&self, step: Step) -> String {
        let who = |client: usize| ["A", "B"][client];
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Receive(c) => format!("{} receives the change", who(c)),
            Step::Acquire(c) => format!("{} starts to acquire", who(c)),
            Step::Set(c, m) => format!("m{} sets {}'s key: yes", m + 1, who(c)),
            Step::Grant(c) => format!("{} has its majority: granted", who(c)),
            Step::GiveUp(c) => format!("{} gives up or releases", who(c)),
            Step::Extend(c) => format!("{} starts to extend", who(c)),
            Step::Extended(c, m) => format!("m{} extends {}'s key: yes", m + 1, who(c)),
            Step::Repaired(c, m) => format!("m{} is repaired for {} (not counted)", m + 1, who(c)),
            Step::Renew(c) => format!("{}'s extension has its majority", who(c)),
            Step::Restart(m) => format!("m{} restarts and has forgotten everything", m + 1),
            Step::Fence(m) => format!("m{} is fenced while it runs", m + 1),
            Step::Observe(m) => format!("the operator observes m{}'s new process", m + 1),
            Step::Admit(m) => format!("m{} is admitted", m + 1),
            Step::OpenNext(m) => format!("the next epoch's user is opened on m{}", m + 1),
            Step::Switch => "the status names both lists".into(),
            Step::Close(m) => format!("users of the epoch before are closed on m{}", m + 1),
            Step::Finish => "the status names the new list alone".into(),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = format!("{:?} [", world.stage);
        for (at, member) in world.members[..self.members].iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            let open: String =
                ["e", "f"].iter().zip(member.open).filter(|(_, open)| *open).map(|(user, _)| *user).collect();
            write!(text, "{space}{}/{open}", show_member(member.owner, member.ttl, member.fence)).unwrap();
        }
        text.push(']');
        for (name, client) in ["A", "B"].iter().zip(&world.clients) {
            let valid = show_valid(client.valid);
            write!(text, " {name}({:?}) {:?}{valid}", client.knows, client.phase).unwrap();
        }
        text
    }
}
