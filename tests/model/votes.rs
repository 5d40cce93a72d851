//! Exclusion: members that vote, forget, restart and are fenced, and two clients.
//!
//! Clients acquire, extend, repair and release.
//!
//! A late request is a delayed step, and a lost one never happens. An answer can be used at any later moment or never.
//! The remaining effects of a duplicate or late request are steps of their own, without a count.

use std::fmt::Write;

use super::check::{Rules, holds, large, violated};
use super::core::{Majorities, Yes, granted, rejoin_ticks, renewed};
use super::exclusion::{self, ADMITTED, NOBODY, OBSERVED, Phase, UNSEEN, admissions, number, show_member, show_valid};

mod apply;
mod tests;

const MOST: usize = 5;

/// The rules, each with its switch.
#[derive(Clone)]
struct Votes {
    members: usize,
    /// Time to live, in ticks.
    ttl: u8,
    /// A second time to live that some extensions use.
    short_ttl: Option<u8>,
    /// Whether a restarted member is closed until the operator opens it.
    fence: bool,
    /// Ticks from the first observation to the admission.
    delay: u8,
    /// Whether ages begin at the first observation of the process, instead of at its own start.
    first_sight: bool,
    /// Whether members are external masters, which the operator cannot close.
    external: bool,
    /// Whether votes count only for the process that was admitted.
    bound_to_run_id: bool,
    /// Whether a repaired key is no vote.
    repair_uncounted: bool,
    /// Whether a repair sets only missing keys.
    repair_nx: bool,
    /// Whether an extension never shortens.
    extend_gt: bool,
    /// Whether an extension counts only within the old validity.
    continuity: bool,
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
    /// Whether a process is admitted, by ticks since the first observation.
    admits: Vec<bool>,
}

impl Votes {
    fn new(members: usize, ttl: u8) -> Self {
        let rules = Self {
            members,
            ttl,
            short_ttl: None,
            fence: true,
            delay: 0,
            first_sight: true,
            external: false,
            bound_to_run_id: true,
            repair_uncounted: true,
            repair_nx: true,
            extend_gt: true,
            continuity: true,
            fresh_value: true,
            ghosts: false,
            clock_steps: false,
            clock_watch: true,
            most_out: members,
            track: false,
            majorities: Majorities::new(members),
            admits: Vec::new(),
        };
        rules.with_delay(rejoin_ticks(ttl))
    }

    fn with_delay(self, delay: u8) -> Self {
        Self { delay, admits: admissions(delay), ..self }
    }
}

/// The owner of a key that a frozen member has set for an abandoned attempt.
const GHOST: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    /// [`NOBODY`], a client's number plus one, or [`GHOST`].
    owner: u8,
    ttl: u8,
    /// [`ADMITTED`], [`UNSEEN`], or [`OBSERVED`] and more.
    fence: u8,
    /// Whether its clock was stepped without notice.
    stepped: bool,
    /// Its votes in the current round of each client.
    votes: [Yes; 2],
    /// Whether the process is not the one in the electorate of the client's round.
    other: [bool; 2],
    /// Whether it restarted at some time.
    ///
    /// Only with [`Votes::track`].
    forgot: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Client {
    phase: Phase,
    /// Ticks since the current round began.
    elapsed: u8,
    /// Ticks of validity left.
    valid: u8,
    /// Whether the current extension uses the short time to live.
    short: bool,
    /// Whether another client was granted the lock while this one had it.
    superseded: bool,
    /// Whether an attempt with this value was released before.
    released_before: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    members: [Member; MOST],
    clients: [Client; 2],
    /// Whether a lock was granted with the vote of a member that had forgotten.
    forgetful_grant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Acquire(usize),
    Set(usize, usize),
    Grant(usize),
    GiveUp(usize),
    Extend(usize, bool),
    Extended(usize, usize),
    LateExtended(usize, usize),
    LateSet(usize, usize),
    Repaired(usize, usize, u8),
    Renew(usize),
    ExtendFails(usize),
    LateRelease(usize, usize),
    GhostSet(usize),
    GhostGone(usize),
    Restart(usize),
    UptimeLies(usize),
    Observe(usize),
    Admit(usize),
    ClockJump(usize),
    JumpNoticed(usize),
}

impl Rules for Votes {
    type State = World;
    type Step = Step;

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for (client, now) in world.clients.iter().enumerate() {
            match now.phase {
                Phase::Idle => steps.push(Step::Acquire(client)),
                Phase::Acquiring => steps.extend([Step::Grant(client), Step::GiveUp(client)]),
                Phase::Held => {
                    steps.extend([Step::Extend(client, false), Step::Extend(client, true), Step::GiveUp(client)])
                }
                Phase::Extending => steps.extend([Step::Renew(client), Step::ExtendFails(client)]),
            }
            for member in 0..self.members {
                match now.phase {
                    Phase::Idle => {}
                    Phase::Acquiring => steps.push(Step::Set(client, member)),
                    Phase::Held | Phase::Extending => {
                        steps.extend([Step::LateSet(client, member), Step::LateExtended(client, member)]);
                        steps.extend((1..=now.valid).map(|left| Step::Repaired(client, member, left)));
                        if now.phase == Phase::Extending {
                            steps.push(Step::Extended(client, member));
                        }
                    }
                }
                if now.released_before {
                    steps.push(Step::LateRelease(client, member));
                }
            }
        }
        for member in 0..self.members {
            steps.extend([Step::Restart(member), Step::Observe(member), Step::Admit(member)]);
            if self.ghosts {
                steps.extend([Step::GhostSet(member), Step::GhostGone(member)]);
            }
            if !self.first_sight {
                steps.push(Step::UptimeLies(member));
            }
            if self.clock_steps {
                steps.extend([Step::ClockJump(member), Step::JumpNoticed(member)]);
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        self.execute(world, step)
    }

    fn canonical(&self, world: World) -> World {
        let sorted = |mut world: World| {
            world.members[..self.members].sort_unstable();
            world
        };
        let mut swapped = world;
        swapped.clients.swap(0, 1);
        for member in &mut swapped.members[..self.members] {
            member.owner = match member.owner {
                1 => 2,
                2 => 1,
                owner => owner,
            };
            member.votes.swap(0, 1);
            member.other.swap(0, 1);
        }
        sorted(world).min(sorted(swapped))
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        exclusion::violation(world.clients.map(|client| (client.valid, client.superseded)))
    }

    fn goal(&self, world: &World) -> bool {
        world.clients.iter().any(|client| client.valid > 0) && (world.forgetful_grant || !self.track)
    }

    fn describe(&self, step: Step) -> String {
        let name = |client: usize| ["A", "B"][client];
        match step {
            Step::Tick => "a tick passes".into(),
            Step::Acquire(c) => format!("{} starts to acquire", name(c)),
            Step::Set(c, m) => format!("m{} sets {}'s key: yes", m + 1, name(c)),
            Step::Grant(c) => format!("{} has a majority: granted", name(c)),
            Step::GiveUp(c) => format!("{} gives up or releases", name(c)),
            Step::Extend(c, short) => format!("{} starts to extend{}", name(c), if short { ", shorter" } else { "" }),
            Step::Extended(c, m) => format!("m{} extends {}'s key: yes", m + 1, name(c)),
            Step::LateExtended(c, m) => format!("m{} executes a late extension of {} (not counted)", m + 1, name(c)),
            Step::LateSet(c, m) => format!("m{} executes a late or duplicated SET of {} (not counted)", m + 1, name(c)),
            Step::Repaired(c, m, left) if self.repair_uncounted => {
                format!("m{} is repaired for {}, {left} left (not counted)", m + 1, name(c))
            }
            Step::Repaired(c, m, left) => format!("m{} is repaired for {}, {left} left, COUNTED", m + 1, name(c)),
            Step::Renew(c) => format!("{}'s extension has a majority", name(c)),
            Step::ExtendFails(c) => format!("{}'s extension fails", name(c)),
            Step::LateRelease(c, m) => format!("m{} executes the release of an earlier attempt of {}", m + 1, name(c)),
            Step::GhostSet(m) => format!("m{}, frozen before, executes an abandoned SET", m + 1),
            Step::GhostGone(m) => format!("m{} executes the release of an abandoned SET", m + 1),
            Step::Restart(m) => format!("m{} restarts and has forgotten everything", m + 1),
            Step::UptimeLies(m) => format!("m{}'s wall clock steps ahead: its uptime looks long", m + 1),
            Step::Observe(m) => format!("the operator observes m{}'s new process", m + 1),
            Step::Admit(m) => format!("m{} is admitted", m + 1),
            Step::ClockJump(m) => format!("m{}'s wall clock steps ahead: its key expires", m + 1),
            Step::JumpNoticed(m) => format!("the operator notices m{}'s step and fences it", m + 1),
        }
    }

    fn show(&self, world: &World) -> String {
        let mut text = String::from("[");
        for member in &world.members[..self.members] {
            let space = if text.len() > 1 { " " } else { "" };
            write!(text, "{space}{}", show_member(member.owner, member.ttl, member.fence)).unwrap();
        }
        text.push(']');
        for (name, client) in ["A", "B"].iter().zip(&world.clients).filter(|(_, client)| client.phase != Phase::Idle) {
            let valid = show_valid(client.valid);
            write!(text, " {name} {:?}{valid}", client.phase).unwrap();
        }
        text
    }
}
