//! Tokens: members that count, vote, forget and restore their counters, and two clients.
//!
//! A client acquires in one round or two. A vote is `SET NX` and the number of the INCR behind it, as two steps. The
//! crate's own function makes the token from the numbers of any majority of the votes, since any answer can be late or
//! lost.
//!
//! There is no time here. The model of exclusion contains the fence, and this model only its result. A process without
//! its data is not admitted while an acquisition is in progress that counts a vote or an acknowledgement of the earlier
//! process. Validities are left out, so holders can follow each other sooner than in the product. That gives more
//! behaviours, not fewer.

mod histories;
mod rule;
mod rules;
mod tests;

use redlock_operator::{
    quorum::model::lists::meets_every_majority,
    redlock::{FencingToken, restored},
};

use super::{
    check::{each_violated, holds, large},
    core::{Majorities, Yes},
    protocol::{CLIENTS, MOST, number},
    sets::{Set, members_of, named, sets},
};

use rule::Rule;

#[derive(Clone)]
struct Tokens {
    members: usize,
    /// Bounds.
    most_counter: u8,
    restarts: u8,
    /// How often another key takes a number on one member.
    others: u8,
    /// Whether the token is written back where a majority does not store it yet.
    write_back: bool,
    /// The rule that chooses the token.
    rule: Rule,
    /// Whether the number of a refused SET is ignored.
    refused_count_for_nothing: bool,
    /// Whether no client decides on votes after the possible expiry of their keys.
    deadline: bool,
    /// Whether the number is taken behind the SET, on the same connection.
    counts_behind_set: bool,
    /// How often the leader raises a counter to one that it has read.
    levels: u8,
    /// Whether it only raises.
    ///
    /// Otherwise it writes the number that it has read.
    level_raises: bool,
    /// Whether a write-back counts only where the key still holds the client's value.
    checks_value: bool,
    /// Whether exactly the voters whose numbers made the token confirm it.
    same_set: bool,
    /// Whether a counter is restored at the admission.
    restore: bool,
    /// Whether the restored counter is computed after the wait, instead of before it.
    restore_late: bool,
    /// Whether counters are read from admitted members only.
    reads_admitted: bool,
    /// Number of counters of other members that are needed.
    needed: usize,
    /// Whether the floor in etcd replaces missing counters.
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
            rule: Rule::Product,
            refused_count_for_nothing: true,
            deadline: true,
            counts_behind_set: true,
            levels: 0,
            level_raises: true,
            checks_value: true,
            same_set: true,
            restore: true,
            restore_late: true,
            reads_admitted: true,
            needed: meets_every_majority(&vec![String::new(); members]),
            floor: true,
            majorities: Majorities::new(members),
        }
    }

    fn majority(&self, votes: impl DoubleEndedIterator<Item = bool>) -> bool {
        self.majorities.won(votes.map(|vote| if vote { Yes::Admitted } else { Yes::None }))
    }

    /// Ends the client's attempt or hold, and removes its keys.
    fn over(world: &mut World, client: usize) {
        for member in &mut world.members {
            member.owner *= u8::from(member.owner != number(client));
            member.answers[client] = Answers::default();
        }
        world.clients[client] = Client::default();
    }

    fn grant(&self, world: &mut World, client: usize, token: u8) {
        world.reversed |= token <= world.last;
        world.last = world.last.max(token);
        if self.floor {
            world.floor = world.floor.max(token);
        }
        for member in &mut world.members {
            member.answers[client] = Answers::default();
        }
        world.clients[client] = Client { phase: Phase::Held, token };
    }

    /// The counter to restore.
    ///
    /// Unix time is left out, because it would hide errors in the other two sources. Without a floor the operator waits
    /// for missing counters.
    fn restored(&self, world: &World, others: Set) -> Option<u8> {
        let token = |number: u8| FencingToken::new(number.into()).unwrap();
        let counters: Vec<_> = members_of(others).map(|member| token(world.members[member].counter)).collect();
        let floor = if self.floor { token(world.floor) } else { FencingToken::ZERO };
        let restored = restored(&counters, self.needed, floor, FencingToken::ZERO);
        (self.floor || counters.len() >= self.needed).then(|| u8::try_from(restored.get()).unwrap())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fence {
    #[default]
    Admitted,
    Waiting,
    /// Waiting with a computed counter, which happens only without [`Tokens::restore_late`].
    WaitingRestored,
    Waited,
    Restored,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Answers {
    /// Whether it has set the key, before the number.
    set: bool,
    /// The number in its yes, or 0 without a yes.
    yes: u8,
    /// The number behind a SET that it has refused.
    refused: u8,
    /// Whether it has to confirm the write-back.
    chosen: bool,
    /// Whether it has confirmed the write-back.
    raised: bool,
    /// Whether the earlier process counts in a current acquisition.
    counted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    counter: u8,
    /// The client whose value the key holds, plus one, or 0 without an owner.
    owner: u8,
    fence: Fence,
    /// The value to which its counter will be raised.
    restored: u8,
    /// Its answers to the current attempt of each client.
    answers: [Answers; 2],
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
    levels: u8,
    /// The counter that the leader has read last.
    read: u8,
    reversed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Acquire(usize),
    Over(usize),
    Set(usize, usize),
    Count(usize, usize),
    Refuse(usize, usize),
    /// A key expires although its attempt can still be decided.
    Lapse(usize),
    /// A client decides by the votes of these members.
    Decide(usize, Set),
    Raise(usize, usize),
    Raised(usize),
    OtherKey(usize),
    Read(usize),
    Level(usize),
    Restart(usize),
    Wait(usize),
    /// A member restores its counter from these other members.
    Restore(usize, Set),
    Admit(usize),
}
