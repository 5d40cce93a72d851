//! Exclusion: members that vote, forget, restart and are fenced, and two clients.
//!
//! Clients acquire, extend, repair and release.
//!
//! A late request is a delayed step, and a lost one never happens. An answer can be used at any later moment or never.
//! The remaining effects of a duplicate or late request are steps of their own, without a count.

use super::check::{each_violated, holds, large};
use super::core::{Majorities, Yes, rejoin_ticks};
use super::protocol::{self, Base, CLIENTS, Delay, Fence, NOBODY, Phase, Protocol, Step, number};

mod tests;

/// The rules, each with its switch.
#[derive(Clone)]
struct Votes {
    base: Base,
    /// Whether a restarted member is closed until the operator opens it.
    fence: bool,
    /// Whether ages begin at the first observation of the process, instead of at its own start.
    first_observation: bool,
    /// Whether members are external masters, which the operator cannot close.
    external: bool,
    /// Whether votes count only for the process that was admitted.
    bound_to_run_id: bool,
    /// Whether a repaired key is no vote.
    repair_uncounted: bool,
    /// Whether a repair sets only missing keys.
    repair_nx: bool,
    /// Whether every attempt has a value of its own.
    fresh_value: bool,
    /// Whether frozen members execute abandoned requests.
    ghosts: bool,
    /// Whether members' clocks are stepped.
    ///
    /// With `clock_watch` votes carry the member's time.
    clock_steps: bool,
    clock_watch: bool,
    /// Maximum number of members that are out or have a stepped clock at once.
    most_out: usize,
    /// Whether the state records which members forgot, to check that they vote again.
    ///
    /// That gives more states, and the same verdict.
    track: bool,
    majorities: Majorities,
}

impl Votes {
    fn new(base: Base) -> Self {
        let members = base.members;
        Self {
            base,
            fence: true,
            first_observation: true,
            external: false,
            bound_to_run_id: true,
            repair_uncounted: true,
            repair_nx: true,
            fresh_value: true,
            ghosts: false,
            clock_steps: false,
            clock_watch: true,
            most_out: members,
            track: false,
            majorities: Majorities::new(members),
        }
    }

    fn serves(&self, member: &Member) -> bool {
        member.fence == Fence::Admitted || self.external
    }

    /// Whether this member can be out, or have a stepped clock, in addition to the others.
    fn one_more_out(&self, world: &World, at: usize) -> bool {
        let is_out = |member: &Member| member.fence != Fence::Admitted || member.extra.stepped;
        let others = world.members[..self.base.members].iter().enumerate().filter(|(other, _)| *other != at);
        others.filter(|(_, member)| is_out(member)).count() < self.most_out
    }

    fn can_jump(&self, world: &World, at: usize) -> bool {
        let member = &world.members[at];
        let is_steady = member.fence == Fence::Admitted && !member.extra.stepped;
        is_steady && member.owner != NOBODY && self.one_more_out(world, at)
    }

    /// Sets the key without a count: a free one, or with `replace` any other.
    fn set_again(&self, world: &mut World, client: usize, at: usize, ttl: u8, replace: bool) -> bool {
        let member = &mut world.members[at];
        let can_set = member.owner == NOBODY || (replace && member.owner != number(client));
        let is_set = can_set && self.serves(member);
        if is_set {
            member.set(client, ttl);
        }
        is_set
    }
}

/// The owner of a key that a frozen member has set for an abandoned attempt.
const GHOST: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct MemberExtra {
    /// Whether its clock was stepped without notice.
    stepped: bool,
    /// Whether the process is not the one in the electorate of the client's round.
    other: [bool; 2],
    /// Whether it restarted at some time.
    ///
    /// Only with [`Votes::track`].
    forgot: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ClientExtra {
    /// Whether an attempt with this value was released before.
    released_before: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct WorldExtra {
    /// Whether a lock was granted with the vote of a member that had forgotten.
    forgetful_grant: bool,
}

type Member = protocol::Member<MemberExtra>;
type World = protocol::World<MemberExtra, ClientExtra, WorldExtra>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    LateExtended(usize, usize),
    LateSet(usize, usize),
    Repaired(usize, usize, u8),
    LateRelease(usize, usize),
    GhostSet(usize),
    GhostGone(usize),
    UptimeLies(usize),
    ClockJump(usize),
    JumpNoticed(usize),
}

impl Protocol for Votes {
    type Member = MemberExtra;
    type Client = ClientExtra;
    type World = WorldExtra;
    type Step = Extra;

    fn base(&self) -> &Base {
        &self.base
    }

    fn executes(&self, world: &World, client: usize, at: usize) -> bool {
        self.serves(&world.members[at]) && world.members[at].votes[client] == Yes::None
    }

    /// A yes, unless the member's own time reveals a step.
    fn vote(&self, world: &World, client: usize, at: usize) -> Yes {
        match world.members[at].extra {
            MemberExtra { stepped: true, .. } if self.clock_watch => Yes::None,
            MemberExtra { other, .. } if other[client] => Yes::Other,
            _ => Yes::Admitted,
        }
    }

    fn won(&self, world: &World, client: usize) -> bool {
        self.majorities.won(world.members[..self.base.members].iter().map(|member| match member.votes[client] {
            Yes::Other if !self.bound_to_run_id => Yes::Admitted,
            vote => vote,
        }))
    }

    fn set_round(&self, world: &mut World, client: usize) {
        let now = &mut world.clients[client];
        now.extra.released_before |= now.phase == Phase::Idle && !self.fresh_value;
        for member in &mut world.members {
            member.extra.other[client] = now.is_in_round() && member.fence != Fence::Admitted;
        }
    }

    /// An extension that fails ends the hold only after its validity.
    fn give_up(&self, world: &mut World, client: usize) {
        if world.clients[client].phase == Phase::Extending && world.clients[client].valid > 0 {
            self.enter(world, client, Phase::Held);
        } else {
            self.over(world, client);
        }
    }

    /// Deletes the key now, unless a request is left that deletes it later.
    fn release(&self, member: &mut Member) {
        match (self.fresh_value, self.ghosts) {
            (false, _) => {}
            (true, true) => member.owner = GHOST,
            (true, false) => member.delete(),
        }
    }

    fn swap_clients(&self, member: &mut MemberExtra) {
        member.other.swap(0, 1);
    }

    fn goal(&self, world: &World) -> bool {
        world.clients.iter().any(|client| client.valid > 0) && (world.extra.forgetful_grant || !self.track)
    }

    fn restart(&self, world: &mut World, at: usize) {
        if world.members[at].fence != Fence::Restarted && self.one_more_out(world, at) {
            let in_round = world.clients.map(|client| client.is_in_round());
            let member = &mut world.members[at];
            member.delete();
            member.fence = if self.fence { Fence::Restarted } else { Fence::Admitted };
            // Without a fence the new process counts as the admitted one, because the difference is unknown.
            let other = in_round.map(|in_round| in_round && self.fence);
            member.extra = MemberExtra { stepped: false, other, forgot: self.track };
        }
    }

    fn after_step(&self, before: &World, world: &mut World, step: Step<Extra>) {
        if let Step::Grant(client) = step
            && world.clients[client].phase == Phase::Held
        {
            let is_forgetful = |member: &Member| member.extra.forgot && member.votes[client] != Yes::None;
            world.extra.forgetful_grant |= before.members.iter().any(is_forgetful);
        }
    }

    fn extra_steps(&self, world: &World) -> Vec<Extra> {
        let mut steps = Vec::new();
        for (client, now) in world.clients.iter().enumerate() {
            for member in 0..self.base.members {
                if matches!(now.phase, Phase::Held | Phase::Extending) {
                    steps.extend([Extra::LateSet(client, member), Extra::LateExtended(client, member)]);
                    steps.extend((1..=now.valid).map(|left| Extra::Repaired(client, member, left)));
                }
                if now.extra.released_before {
                    steps.push(Extra::LateRelease(client, member));
                }
            }
        }
        for member in 0..self.base.members {
            if self.ghosts {
                steps.extend([Extra::GhostSet(member), Extra::GhostGone(member)]);
            }
            if !self.first_observation {
                steps.push(Extra::UptimeLies(member));
            }
            if self.clock_steps {
                steps.extend([Extra::ClockJump(member), Extra::JumpNoticed(member)]);
            }
        }
        steps
    }

    fn apply_extra(&self, world: &mut World, step: Extra) {
        let members = world.members;
        let is_ours = |client, at: usize| members[at].owner == number(client) && self.serves(&members[at]);
        match step {
            Extra::LateSet(client, at) => {
                self.set_again(world, client, at, self.base.ttl, false);
            }
            Extra::LateExtended(client, at) if is_ours(client, at) => {
                world.members[at].ttl = self.ttl(&world.clients[client], &members[at]);
            }
            Extra::LateRelease(client, at) if is_ours(client, at) => world.members[at].delete(),
            Extra::Repaired(client, at, left) => {
                let is_set = self.set_again(world, client, at, left, !self.repair_nx);
                if is_set && !self.repair_uncounted && world.clients[client].phase == Phase::Extending {
                    world.members[at].votes[client] = self.vote(world, client, at);
                }
            }
            Extra::GhostSet(at) if members[at].owner == NOBODY && self.serves(&members[at]) => {
                (world.members[at].owner, world.members[at].ttl) = (GHOST, self.base.ttl);
            }
            Extra::GhostGone(at) if members[at].owner == GHOST => world.members[at].delete(),
            Extra::UptimeLies(at) if matches!(members[at].fence, Fence::Observed(_)) => {
                world.members[at].fence = Fence::Observed(self.base.delay.ticks);
            }
            Extra::ClockJump(at) if self.can_jump(world, at) => {
                world.members[at].delete();
                world.members[at].extra.stepped = true;
            }
            Extra::JumpNoticed(at) if members[at].extra.stepped => {
                world.members[at].delete();
                (world.members[at].fence, world.members[at].extra.stepped) = (Fence::Observed(0), false);
            }
            _ => {}
        }
    }

    fn describe_extra(&self, step: Extra) -> String {
        match step {
            Extra::LateExtended(c, m) => {
                format!("m{} executes a late extension of {} (not counted)", m + 1, CLIENTS[c])
            }
            Extra::LateSet(c, m) => {
                format!("m{} executes a late or duplicated SET of {} (not counted)", m + 1, CLIENTS[c])
            }
            Extra::Repaired(c, m, left) => {
                let counted = if self.repair_uncounted { "not counted" } else { "counted" };
                format!("m{} is repaired for {}, {left} left ({counted})", m + 1, CLIENTS[c])
            }
            Extra::LateRelease(c, m) => {
                format!("m{} executes the release of an earlier attempt of {}", m + 1, CLIENTS[c])
            }
            Extra::GhostSet(m) => format!("m{}, frozen before, executes an abandoned SET", m + 1),
            Extra::GhostGone(m) => format!("m{} executes the release of an abandoned SET", m + 1),
            Extra::UptimeLies(m) => format!("m{}'s wall clock steps ahead: its uptime looks long", m + 1),
            Extra::ClockJump(m) => format!("m{}'s wall clock steps ahead: its key expires", m + 1),
            Extra::JumpNoticed(m) => format!("the operator notices m{}'s step and fences it", m + 1),
        }
    }
}
