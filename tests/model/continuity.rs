//! Continuity by the members: a replica continues a hold if a majority extends its value in one round.
//!
//! This holds whatever else the replica knows. Late requests, old answers, and restarted members must not revive a hold
//! that has ended.
//!
//! The replica of this model never receives the end of the hold and retries after refusals, so it does more than the
//! product. Belief in the hold is one number, which no fault removes.

use super::check::{Rules, holds, violated};
use super::core::{granted, rejoin_ticks};
use super::exclusion::admissions;

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
    /// Answers without such a key count together if they lie within this number of ticks.
    window: u8,
    /// Whether a hold that ends is sealed.
    seal: bool,
    /// The minimum life of a seal, in ticks.
    least_seal: u8,
    /// Ticks from the first observation of a restarted process to its admission.
    delay: u8,
    /// Whether votes count only for the process that was admitted when the round began.
    bound_to_run_id: bool,
    /// Maximum number of members that are out at once.
    most_out: usize,
    /// Whether a process is admitted, by ticks since the first observation.
    admits: Vec<bool>,
}

impl Continuity {
    fn new() -> Self {
        let delay = rejoin_ticks(3);
        Self {
            ttl: 3,
            last_set: Some(1),
            last_repair: Some(1),
            window: 1,
            seal: true,
            least_seal: 2,
            delay,
            bound_to_run_id: true,
            most_out: 0,
            admits: admissions(delay),
        }
    }

    /// A configuration with the shortest time to live.
    ///
    /// Nothing is left between two ticks, so there are fewer states.
    fn short() -> Self {
        Self { ttl: 2, window: 0, least_seal: 1, ..Self::new().with_delay(rejoin_ticks(2)) }
    }

    fn with_delay(self, delay: u8) -> Self {
        Self { delay, admits: admissions(delay), ..self }
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
    /// 0: admitted. 1: restarted and not observed.
    ///
    /// More: observed, the number of ticks ago plus 2.
    fence: u8,
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
    /// A majority is sealed: the hold ends after the largest time to live.
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
    Set(usize),
    Grant,
    Publish,
    Begin,
    Extend(usize),
    LateExtend(usize),
    Renew,
    Refused,
    GiveUp,
    Repair(usize),
    LateRepair(usize),
    End,
    Seal(usize),
    Sealed,
    Gone,
    RunOut,
    NextLeader,
    Delete(usize),
    Restart(usize),
    Observe(usize),
    Admit(usize),
}

impl Continuity {
    fn end_round(world: &mut World) {
        world.round = None;
        for member in &mut world.members {
            (member.vote, member.other) = (Answer::None, false);
        }
    }

    fn ask_again(world: &mut World) {
        (world.asked, world.sealed) = (0, 0);
        for member in &mut world.members {
            member.last_answer = Answer::None;
        }
    }

    fn count(members: &[Member; MEMBERS], of: impl Fn(&Member) -> bool) -> usize {
        members.iter().filter(|member| of(member)).count()
    }

    fn over(world: &mut World) {
        world.status = Status::Over;
        world.is_wrong |= world.belief > 0;
        Self::ask_again(world);
    }

    fn vote(&self, member: &mut Member, answer: Answer) {
        if !(member.other && self.bound_to_run_id) {
            member.vote = answer;
        }
    }

    fn tick(&self, world: &mut World) {
        for member in &mut world.members {
            member.ttl = member.ttl.saturating_sub(1);
            if member.ttl == 0 {
                member.key = Key::Missing;
            }
            let left = |(last, end): (u8, u8)| (last.saturating_sub(1), end - 1);
            member.repair = member.repair.map(left).filter(|(last, end)| *last > 0 && *end > 0);
            if self.last_repair.is_none() {
                // Without a last moment it sets the key with its whole time to live.
                member.repair = member.repair.map(|_| (self.ttl, self.ttl));
            }
            if member.fence >= 2 {
                member.fence = (member.fence + 1).min(2 + self.delay);
            }
        }
        world.age = (world.age + 1).min(self.ttl);
        world.belief = world.belief.saturating_sub(1);
        world.sealed = world.sealed.saturating_sub(1);
        if world.members.iter().any(|member| member.last_answer != Answer::None) {
            world.asked += 1;
            if world.asked > self.window {
                Self::ask_again(world);
            }
        }
        world.round = world.round.map(|elapsed| elapsed + 1);
        if world.round.is_some_and(|elapsed| granted(self.ttl, elapsed).is_none()) {
            Self::end_round(world);
        }
    }

    fn won(world: &World) -> bool {
        Self::count(&world.members, |member| member.vote == Answer::Yes) >= MAJORITY
    }

    fn renew(&self, world: &mut World) -> bool {
        let Some(valid) = world.round.and_then(|elapsed| granted(self.ttl, elapsed)) else { return false };
        let elapsed = world.round.unwrap_or_default();
        if !world.is_granted || !Self::won(world) {
            return false;
        }
        world.is_wrong |= world.status == Status::Over;
        world.belief = world.belief.max(valid);
        for member in world.members.iter_mut().filter(|member| member.vote == Answer::Missing) {
            let last = self.last_repair.map_or(valid, |last| last.saturating_sub(elapsed));
            if last > 0 {
                member.repair = member.repair.max(Some((last, valid)));
            }
        }
        Self::end_round(world);
        true
    }

    fn member_step(&self, world: &mut World, step: Step) -> bool {
        let out = Self::count(&world.members, |member| member.fence > 0);
        let (age, status, granted) = (world.age, world.status, world.is_granted);
        let in_round = world.round.is_some();
        let (Step::Set(at)
        | Step::Extend(at)
        | Step::LateExtend(at)
        | Step::Repair(at)
        | Step::LateRepair(at)
        | Step::Seal(at)
        | Step::Delete(at)
        | Step::Restart(at)
        | Step::Observe(at)
        | Step::Admit(at)) = step
        else {
            return false;
        };
        let member = &mut world.members[at];
        let serves = member.fence == 0;
        match step {
            Step::Set(_) if serves && !member.set && member.key == Key::Missing => {
                if self.last_set.is_some_and(|last| age >= last) {
                    return false;
                }
                (member.key, member.ttl, member.set) = (Key::Held, self.ttl, true);
                if !granted && in_round {
                    self.vote(member, Answer::Yes);
                }
            }
            Step::Extend(_) if serves && granted && in_round && member.vote == Answer::None => match member.key {
                Key::Held => {
                    member.ttl = member.ttl.max(self.ttl);
                    self.vote(member, Answer::Yes);
                }
                Key::Missing => self.vote(member, Answer::Missing),
                Key::Sealed => self.vote(member, Answer::Another),
            },
            Step::LateExtend(_) if serves && granted && member.key == Key::Held => member.ttl = self.ttl,
            Step::Repair(_) | Step::LateRepair(_) if serves && member.key == Key::Missing => {
                let Some((_, end)) = member.repair else { return false };
                (member.key, member.ttl) = (Key::Held, end);
                if step == Step::Repair(at) {
                    member.repair = None;
                }
            }
            Step::Seal(_) if serves && status == Status::Ending && member.last_answer == Answer::None => {
                member.last_answer = Answer::Missing;
                if member.key != Key::Missing {
                    if self.seal {
                        (member.key, member.ttl) = (Key::Sealed, member.ttl.max(self.least_seal));
                    }
                    member.last_answer = Answer::Yes;
                    world.sealed = world.sealed.max(member.ttl);
                }
            }
            Step::Delete(_) if serves && status == Status::Over && member.key == Key::Held => {
                (member.key, member.ttl) = (Key::Missing, 0);
            }
            Step::Restart(_) if member.fence != 1 && (out < self.most_out || member.fence > 0) => {
                (member.key, member.ttl, member.fence, member.other) = (Key::Missing, 0, 1, in_round);
            }
            Step::Observe(_) if member.fence == 1 => member.fence = 2,
            Step::Admit(_) if member.fence >= 2 && self.admits[usize::from(member.fence - 2)] => member.fence = 0,
            _ => return false,
        }
        true
    }

    fn apply(&self, world: &mut World, step: Step) -> bool {
        let answer_of = |world: &World, answer| Self::count(&world.members, |member| member.last_answer == answer);
        match step {
            Step::Tick => self.tick(world),
            Step::Grant => {
                let Some(valid) = world.round.and_then(|elapsed| granted(self.ttl, elapsed)) else { return false };
                if world.is_granted || !Self::won(world) {
                    return false;
                }
                (world.is_granted, world.belief) = (true, valid);
                Self::end_round(world);
            }
            Step::Publish if world.is_granted && world.status == Status::Nothing => world.status = Status::Held,
            Step::Begin if world.is_granted && world.round.is_none() => {
                world.round = Some(0);
                world.members.iter_mut().for_each(|member| member.other = member.fence > 0);
            }
            Step::Renew => return self.renew(world),
            Step::Refused => {
                let no = |member: &Member| matches!(member.vote, Answer::Missing | Answer::Another);
                let is_fresh = world.round.is_some_and(|elapsed| elapsed <= self.window);
                if world.status != Status::Held || !is_fresh || Self::count(&world.members, no) < MAJORITY {
                    return false;
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
            step => return self.member_step(world, step),
        }
        true
    }
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
        for at in 0..MEMBERS {
            steps.extend([
                Step::Set(at),
                Step::Extend(at),
                Step::LateExtend(at),
                Step::Repair(at),
                Step::LateRepair(at),
            ]);
            steps.extend([Step::Seal(at), Step::Delete(at), Step::Restart(at), Step::Observe(at), Step::Admit(at)]);
        }
    }

    fn take(&self, world: &World, step: Step) -> Option<World> {
        let mut next = *world;
        (self.apply(&mut next, step) && next != *world).then_some(next)
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
            format!("{:?} {} fence {}{repair}", member.key, member.ttl, member.fence)
        };
        let members = world.members.iter().map(member).collect::<Vec<_>>().join(", ");
        format!("[{members}] age {} {:?} belief {}", world.age, world.status, world.belief)
    }
}

#[test]
fn a_hold_goes_on_by_the_members_and_does_not_come_back() {
    holds("continuity, all members up", Continuity::new());
}

#[test]
fn members_that_restart_do_not_revive_a_hold() {
    holds("continuity, one member at a time restarts", Continuity { most_out: 1, ..Continuity::short() });
}

#[test]
fn without_a_last_moment_of_the_attempt() {
    violated("an attempt sets its key at any time", Continuity { last_set: None, ..Continuity::new() });
}

#[test]
fn without_a_last_moment_of_a_repair() {
    violated("a repair sets its key at any time", Continuity { last_repair: None, ..Continuity::short() });
}

#[test]
fn with_a_repair_until_the_end_of_the_validity() {
    violated("a repair can arrive until its validity ends", Continuity { last_repair: Some(2), ..Continuity::short() });
}

#[test]
fn with_answers_that_are_too_old() {
    violated("answers from longer ago count", Continuity { window: 1, ..Continuity::short() });
}

#[test]
fn without_a_seal() {
    violated("a hold that ends is not sealed", Continuity { seal: false, ..Continuity::new() });
}

#[test]
fn with_a_seal_that_ends_before_the_answers_are_counted() {
    violated("a seal lives no longer than the key would have", Continuity { least_seal: 1, ..Continuity::new() });
}

#[test]
fn with_a_shorter_fence() {
    let rules = Continuity { most_out: 1, ..Continuity::short() };
    let shorter = rules.delay - 1;
    violated("a restarted member is admitted a tick too early", rules.with_delay(shorter));
}
