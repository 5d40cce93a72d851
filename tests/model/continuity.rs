//! Continuity by the members: a replica continues a hold if a majority extends its value in one round.
//!
//! This is independent of the other state of the replica. Late requests, old answers, and restarted members must not
//! revive a hold that has ended.
//!
//! The replica of this model never receives the end of the hold and retries after refusals, so it does more than the
//! product. Belief in the hold is one number, which no fault removes.

mod apply;
mod tests;

use super::check::{Rules, each_violated, holds};
use super::core::{granted, rejoin_ticks};
use super::protocol::{Delay, Fence};

const MEMBERS: usize = 3;
const MAJORITY: usize = 2;

#[derive(Clone)]
struct Continuity {
    ttl: u8,
    /// Ticks from its start after which the attempt sets no key.
    ///
    /// `None` if it always can.
    last_set: Option<u8>,
    /// Ticks from the start of its round after which a repair sets no key.
    last_repair: Option<u8>,
    /// Maximum number of ticks between answers without such a key that count together.
    window: u8,
    /// Whether a hold that ends is sealed.
    seal: bool,
    /// The minimum life of a seal, in ticks.
    least_seal: u8,
    /// Ticks from the first observation of a restarted process to its admission.
    delay: Delay,
    /// Whether votes count only for the process that was admitted when the round began.
    bound_to_run_id: bool,
    /// Maximum number of members that are out at once.
    most_out: usize,
}

impl Continuity {
    fn new() -> Self {
        Self {
            ttl: 3,
            last_set: Some(1),
            last_repair: Some(1),
            window: 1,
            seal: true,
            least_seal: 2,
            delay: Delay::new(rejoin_ticks(3)),
            bound_to_run_id: true,
            most_out: 0,
        }
    }

    /// A configuration with the shortest time to live.
    ///
    /// Nothing is left between two ticks, so there are fewer states.
    fn short() -> Self {
        Self { ttl: 2, window: 0, least_seal: 1, delay: Delay::new(rejoin_ticks(2)), ..Self::new() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    #[default]
    Missing,
    Held,
    Sealed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    #[default]
    None,
    Yes,
    Missing,
    Another,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Member {
    key: Key,
    ttl: u8,
    fence: Fence,
    /// Whether the attempt's request was executed.
    set: bool,
    /// A repair in progress: ticks until its last moment, and until the expiry that it sets.
    repair: Option<(u8, u8)>,
    vote: Answer,
    /// Whether the process is not the one that the current round names.
    other: bool,
    /// The member's last answer to the leader: sealed (yes), or no such key.
    last_answer: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Status {
    #[default]
    Nothing,
    Held,
    Ending,
    /// A majority is sealed, so the hold ends after the largest time to live.
    RunsOut,
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct World {
    members: [Member; MEMBERS],
    /// Ticks since the attempt began.
    age: u8,
    is_granted: bool,
    /// Ticks since the current round began.
    ///
    /// The first round is the attempt.
    round: Option<u8>,
    status: Status,
    /// Ticks for which a holder can believe in the hold.
    belief: u8,
    /// The remaining time of a sealed majority.
    sealed: u8,
    /// Ticks since the first answer to the leader's current query.
    asked: u8,
    is_wrong: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Grant,
    Publish,
    Begin,
    Renew,
    Refused,
    GiveUp,
    End,
    Sealed,
    Gone,
    RunOut,
    NextLeader,
    Member(usize, MemberStep),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberStep {
    Set,
    Extend,
    LateExtend,
    Repair,
    LateRepair,
    Seal,
    Delete,
    Restart,
    Observe,
    Admit,
}

impl Rules for Continuity {
    type State = World;
    type Step = Step;

    /// The attempt has begun.
    fn starts(&self) -> Vec<World> {
        vec![World { round: Some(0), ..World::default() }]
    }

    fn steps(&self, _: &World, steps: &mut Vec<Step>) {
        steps.extend([Step::Tick, Step::Grant, Step::Publish, Step::Begin, Step::Renew, Step::Refused, Step::GiveUp]);
        steps.extend([Step::End, Step::Sealed, Step::Gone, Step::RunOut, Step::NextLeader]);
        use MemberStep::{Admit, Delete, Extend, LateExtend, LateRepair, Observe, Repair, Restart, Seal, Set};
        let of_member = [Set, Extend, LateExtend, Repair, LateRepair, Seal, Delete, Restart, Observe, Admit];
        steps.extend((0..MEMBERS).flat_map(|at| of_member.map(|step| Step::Member(at, step))));
    }

    fn apply(&self, world: &mut World, step: Step) {
        let answer_of = |world: &World, answer| Self::count(&world.members, |member| member.last_answer == answer);
        match step {
            Step::Tick => self.tick(world),
            Step::Grant => {
                let Some(valid) = world.round.and_then(|elapsed| granted(self.ttl, elapsed)) else { return };
                if world.is_granted || !Self::won(world) {
                    return;
                }
                (world.is_granted, world.belief) = (true, valid);
                Self::end_round(world);
            }
            Step::Publish if world.is_granted && world.status == Status::Nothing => world.status = Status::Held,
            Step::Begin if world.is_granted && world.round.is_none() => {
                world.round = Some(0);
                world.members.iter_mut().for_each(|member| member.other = member.fence != Fence::Admitted);
            }
            Step::Renew => self.renew(world),
            Step::Refused => {
                let no = |member: &Member| matches!(member.vote, Answer::Missing | Answer::Another);
                let is_fresh = world.round.is_some_and(|elapsed| elapsed <= self.window);
                if world.status != Status::Held || !is_fresh || Self::count(&world.members, no) < MAJORITY {
                    return;
                }
                Self::over(world);
                Self::end_round(world);
            }
            Step::GiveUp if world.is_granted && world.round.is_some() => Self::end_round(world),
            Step::End if world.status == Status::Held => {
                world.status = Status::Ending;
                Self::ask_again(world);
            }
            Step::Sealed if world.status == Status::Ending && answer_of(world, Answer::Yes) >= MAJORITY => {
                let left = world.sealed;
                Self::ask_again(world);
                (world.status, world.sealed) = (Status::RunsOut, left);
            }
            Step::Gone if world.status == Status::Ending && answer_of(world, Answer::Missing) >= MAJORITY => {
                Self::over(world)
            }
            Step::RunOut if world.status == Status::RunsOut && world.sealed == 0 => Self::over(world),
            Step::NextLeader if matches!(world.status, Status::Ending | Status::RunsOut) => {
                world.status = Status::Ending;
                Self::ask_again(world);
            }
            Step::Member(at, step) => self.member_step(world, at, step),
            _ => {}
        }
    }

    fn canonical(&self, mut world: World) -> World {
        world.members.sort_unstable();
        world
    }

    fn violation(&self, world: &World) -> Option<&'static str> {
        world
            .is_wrong
            .then_some("a hold was declared over while somebody can believe in it, or it was renewed afterwards")
    }

    fn goal(&self, world: &World) -> bool {
        world.status == Status::Over && world.members.iter().any(|member| member.key == Key::Held)
    }

    fn describe(&self, step: Step) -> String {
        format!("{step:?}")
    }

    fn show(&self, world: &World) -> String {
        let member = |member: &Member| {
            let repair = member.repair.map(|(last, end)| format!(" repair {last}/{end}")).unwrap_or_default();
            format!("{:?} {} {:?}{repair}", member.key, member.ttl, member.fence)
        };
        let members = world.members.iter().map(member).collect::<Vec<_>>().join(", ");
        format!("[{members}] age {} {:?} belief {}", world.age, world.status, world.belief)
    }
}
