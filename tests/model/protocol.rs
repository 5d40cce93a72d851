//! The protocol of two clients and the members that vote for them, which the models of exclusion share.
//!
//! A client begins a round, members set or extend its key, and the votes decide. Keys and validities expire. A member
//! that restarted votes again after its admission. A model adds state and steps, and has its own rules where they differ.

use std::{fmt::Debug, hash::Hash};

use super::core::{Yes, admits, rejoin_ticks};

mod rules;

/// Maximum number of members.
pub(crate) const MOST: usize = 5;
/// The owner of a key that no client's [`number`] owns.
pub(crate) const NOBODY: u8 = 0;
pub(crate) const CLIENTS: [&str; 2] = ["A", "B"];

/// The wait from the first observation of a process to its admission.
#[derive(Clone)]
pub(crate) struct Delay {
    pub(crate) ticks: u8,
    /// Whether a process is admitted, by ticks since the first observation.
    admits: Vec<bool>,
}

impl Delay {
    pub(crate) fn new(ticks: u8) -> Self {
        Self { ticks, admits: (0..=ticks).map(|age| admits(age, ticks)).collect() }
    }
}

/// The fence around the process of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fence {
    #[default]
    Admitted,
    /// Restarted and not observed.
    Restarted,
    /// First observed this number of ticks ago.
    Observed(u8),
}

impl Fence {
    pub(crate) fn tick(&mut self, delay: &Delay) {
        if let Self::Observed(age) = self {
            *age = (*age + 1).min(delay.ticks);
        }
    }

    pub(crate) fn observe(&mut self) {
        if *self == Self::Restarted {
            *self = Self::Observed(0);
        }
    }

    pub(crate) fn admit(&mut self, delay: &Delay) -> bool {
        let is_over = matches!(self, Self::Observed(age) if delay.admits[usize::from(*age)]);
        if is_over {
            *self = Self::Admitted;
        }
        is_over
    }
}

/// The bounds and rules that every model has.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) members: usize,
    /// Time to live, in ticks.
    pub(crate) ttl: u8,
    /// A second time to live that some extensions use.
    pub(crate) short_ttl: Option<u8>,
    pub(crate) delay: Delay,
    /// Whether an extension never shortens.
    pub(crate) extend_gt: bool,
    /// Whether an extension counts only within the old validity.
    pub(crate) continuity: bool,
}

impl Base {
    pub(crate) fn new(members: usize, ttl: u8) -> Self {
        let delay = Delay::new(rejoin_ticks(ttl));
        Self { members, ttl, short_ttl: None, delay, extend_gt: true, continuity: true }
    }

    fn requested_ttl(&self, short: bool) -> u8 {
        self.short_ttl.filter(|_| short).unwrap_or(self.ttl)
    }
}

/// The progress of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring,
    Held,
    Extending,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Member<M> {
    /// [`NOBODY`], the [`number`] of a client, or another owner in the model.
    pub(crate) owner: u8,
    pub(crate) ttl: u8,
    pub(crate) fence: Fence,
    /// Its votes in the current round of each client.
    pub(crate) votes: [Yes; 2],
    pub(crate) extra: M,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client<C> {
    pub(crate) phase: Phase,
    /// Ticks since the current round began.
    pub(crate) elapsed: u8,
    /// Ticks of validity left.
    pub(crate) valid: u8,
    /// Whether the current extension uses the short time to live.
    pub(crate) short: bool,
    /// Whether another client was granted the lock while this one had it.
    pub(crate) superseded: bool,
    pub(crate) extra: C,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct World<M, C, W> {
    pub(crate) members: [Member<M>; MOST],
    pub(crate) clients: [Client<C>; 2],
    pub(crate) extra: W,
}

type WorldOf<P> = World<<P as Protocol>::Member, <P as Protocol>::Client, <P as Protocol>::World>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<S> {
    Tick,
    Acquire(usize),
    Set(usize, usize),
    Grant(usize),
    /// A client begins an extension, which can use the short time to live.
    Extend(usize, bool),
    Extended(usize, usize),
    Renew(usize),
    GiveUp(usize),
    Restart(usize),
    Observe(usize),
    Admit(usize),
    /// A step that only this model has.
    Extra(S),
}

/// The number of a client in the owner of a key.
pub(crate) fn number(client: usize) -> u8 {
    u8::try_from(client + 1).unwrap()
}

impl<M> Member<M> {
    pub(crate) fn set(&mut self, client: usize, ttl: u8) {
        (self.owner, self.ttl) = (number(client), ttl);
    }

    pub(crate) fn delete(&mut self) {
        (self.owner, self.ttl) = (NOBODY, 0);
    }
}

impl<C> Client<C> {
    pub(crate) fn is_in_round(&self) -> bool {
        matches!(self.phase, Phase::Acquiring | Phase::Extending)
    }
}

/// A model: its own state and steps, and the parts of the protocol in which it differs.
pub(crate) trait Protocol: Clone + Send + Sync + 'static {
    type Member: Copy + Debug + Default + Ord + Hash + Send + Sync;
    type Client: Copy + Debug + Default + Ord + Hash + Send + Sync;
    type World: Copy + Debug + Default + Ord + Hash + Send + Sync;
    type Step: Copy + Debug + Eq + Send + Sync;

    fn base(&self) -> &Base;
    fn start(&self) -> WorldOf<Self> {
        World::default()
    }
    fn goal(&self, world: &WorldOf<Self>) -> bool;

    /// Whether the member executes a request of the client's current round.
    fn executes(&self, world: &WorldOf<Self>, client: usize, at: usize) -> bool;
    /// The vote in the answer to such a request.
    fn vote(&self, world: &WorldOf<Self>, client: usize, at: usize) -> Yes;
    /// Whether the client's votes are sufficient.
    fn won(&self, world: &WorldOf<Self>, client: usize) -> bool;
    /// Changes the added state when the client enters a phase.
    fn set_round(&self, world: &mut WorldOf<Self>, client: usize);
    fn give_up(&self, world: &mut WorldOf<Self>, client: usize) {
        self.over(world, client);
    }
    /// Deletes a key after the end of the attempt or hold.
    fn release(&self, member: &mut Member<Self::Member>) {
        member.delete();
    }
    fn restart(&self, world: &mut WorldOf<Self>, at: usize);
    fn admit(&self, world: &mut WorldOf<Self>, at: usize) {
        world.members[at].fence.admit(&self.base().delay);
    }

    fn extra_steps(&self, world: &WorldOf<Self>) -> Vec<Self::Step>;
    fn apply_extra(&self, world: &mut WorldOf<Self>, step: Self::Step);
    /// Changes the added state after any step, even an impossible one.
    fn after_step(&self, before: &WorldOf<Self>, world: &mut WorldOf<Self>, step: Step<Self::Step>);

    /// Members with the same role can change their places.
    fn role(&self, _at: usize) -> (bool, bool) {
        (false, false)
    }
    /// Whether the clients can change their places.
    fn are_clients_alike(&self) -> bool {
        true
    }
    fn swap_clients(&self, _member: &mut Self::Member) {}

    fn describe_extra(&self, step: Self::Step) -> String;
    /// The text before the members.
    fn show_world(&self, _world: &Self::World) -> String {
        String::new()
    }
    fn show_member(&self, _member: &Self::Member) -> String {
        String::new()
    }
    fn show_client(&self, _client: &Self::Client) -> String {
        String::new()
    }

    /// Begins or ends a round of the client.
    fn enter(&self, world: &mut WorldOf<Self>, client: usize, phase: Phase) {
        world.members.iter_mut().for_each(|member| member.votes[client] = Yes::None);
        let now = &mut world.clients[client];
        (now.phase, now.elapsed, now.short) = (phase, 0, false);
        self.set_round(world, client);
    }

    /// Ends the client's attempt or hold.
    fn over(&self, world: &mut WorldOf<Self>, client: usize) {
        let ours = world.members.iter_mut().filter(|member| member.owner == number(client));
        ours.for_each(|member| self.release(member));
        self.enter(world, client, Phase::Idle);
        (world.clients[client].valid, world.clients[client].superseded) = (0, false);
    }

    /// The time to live that the client's request leaves on the key.
    fn ttl(&self, client: &Client<Self::Client>, member: &Member<Self::Member>) -> u8 {
        let ttl = self.base().requested_ttl(client.short);
        if self.base().extend_gt { member.ttl.max(ttl) } else { ttl }
    }
}
