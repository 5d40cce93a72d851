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
use std::sync::{Arc, Mutex};

use super::{
    change::{Stage, majority, name, size},
    check::{each_violated, holds, large},
    core::Yes,
    protocol::{self, Base, CLIENTS, Fence, NOBODY, Phase, Protocol},
};

mod leader;
mod rules;
mod tests;
mod tokens;

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
    kinds: [Kind; 2],
    base: Base,
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
    /// A cache of decisions.
    decisions: Arc<Mutex<HashMap<u32, Vec<Extra>>>>,
    /// Votes that make a majority of the old list and of the new one.
    needed: [usize; 2],
}

impl Change {
    fn new(old: &[usize], new: &[usize], kinds: [Kind; 2], ttl: u8) -> Self {
        let base = Base::new(size(old, new), ttl);
        Self {
            old: old.to_vec(),
            new: new.to_vec(),
            kinds,
            joint: true,
            close: true,
            closed_needed: old.len(),
            wait: base.delay.ticks,
            base,
            clients_wait: true,
            bound_to_epoch: true,
            external: false,
            checked: true,
            restarts: 1,
            decisions: Arc::default(),
            needed: [old, new].map(majority),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct MemberExtra {
    /// Whether users of the earlier epoch are open, and the operator's users of the next one.
    ///
    /// For an external master: whether clients with the old list count this process, and whether clients with the
    /// change do.
    open: [bool; 2],
    /// Whether the record on the process has the new epoch.
    marked: bool,
    /// Whether the status has users of the earlier epoch as closed.
    recorded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ClientExtra {
    /// How much of the change it has received.
    received: Stage,
    /// Its stage when the current round began.
    round: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct WorldExtra {
    stage: Stage,
    /// Ticks plus one since the old list has had no promises, according to the leader.
    closed_for: u8,
    restarts: u8,
}

type Member = protocol::Member<MemberExtra>;
type World = protocol::World<MemberExtra, ClientExtra, WorldExtra>;
type Step = protocol::Step<Extra>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Receive(usize),
    Repaired(usize, usize),
    /// Its process continues to run, and is fenced because its clock was stepped.
    Fence(usize),
    /// The leader opens the user of the next epoch.
    OpenNext(usize),
    Switch,
    /// The leader closes the users of the earlier epoch.
    Close(usize),
    Finish,
}
