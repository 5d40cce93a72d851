//! The crate's decisions, as tables.
//!
//! A model has few inputs, so each goes to the real function once. A tick is a second, and clocks do not drift. Every
//! allowance is zero, so no slack can hide a mistake of one tick.

use std::sync::Arc;
use std::time::Duration;

use redlock_operator::fence::{
    FenceInput, FenceStep, ObservedProcess, Reach, Reason, Record, State, Users, Verdict, decide,
};
use redlock_operator::redlock::{
    Answers, BoxFuture, Command, Drift, Elector, Electorate, LockMember, MemberError, MemberName, Progress, RunId,
    Tally, Vote, granted_until, rejoin_delay, renewed_until,
};
use redlock_operator::time::{Boottime, Monotonic};

const NO_DRIFT: Drift = Drift { ppm: 0, floor: Duration::ZERO };
/// A time long after boot, in ticks.
const START: u64 = 10_000;
pub(crate) const NOW: Monotonic = Monotonic::new(Duration::from_secs(START));

pub(crate) fn ticks(number: u8) -> Duration {
    Duration::from_secs(u64::from(number))
}

/// The time this number of ticks before [`NOW`].
pub(crate) fn ago(number: u8) -> Monotonic {
    NOW.saturating_sub(ticks(number))
}

fn at(tick: u64) -> Boottime {
    Boottime::new(Duration::from_secs(tick))
}

fn ticks_between(from: Boottime, until: Boottime) -> u8 {
    u8::try_from(until.since(from).as_secs()).unwrap()
}

/// Ticks of validity after an acquisition whose decision takes `elapsed` ticks.
pub(crate) fn granted(ttl: u8, elapsed: u8) -> Option<u8> {
    let now = at(START + u64::from(elapsed));
    granted_until(at(START), now, ticks(ttl), NO_DRIFT).map(|until| ticks_between(now, until))
}

/// Ticks of validity after an extension of a hold that is still valid for `known` ticks.
pub(crate) fn renewed(ttl: u8, elapsed: u8, known: u8) -> Option<u8> {
    let now = at(START + u64::from(elapsed));
    let known = now + ticks(known);
    renewed_until(at(START), now, known, ticks(ttl), NO_DRIFT).map(|until| ticks_between(now, until))
}

/// Ticks for which a process stays out.
pub(crate) fn rejoin_ticks(max_ttl: u8) -> u8 {
    u8::try_from(rejoin_delay(ticks(max_ttl), NO_DRIFT, Duration::ZERO).as_secs()).unwrap()
}

/// Whether `fence::decide` admits a closed process with a dead predecessor.
///
/// The first observation was `age` ticks ago.
pub(crate) fn admits(age: u8, delay: u8) -> bool {
    let run_id = RunId::from("new");
    let record = Record {
        state: State::Fenced,
        reason: Some(Reason::Restarted),
        run_id: Some(run_id.clone()),
        ..Record::default()
    };
    let first_observed = ago(age);
    let closed_since = Some(first_observed);
    let reach = Reach::Answering(ObservedProcess { run_id, first_observed, users: Users::Closed, closed_since });
    decide(&fence_input(&record, &reach, &Verdict::None, delay)) == FenceStep::Admit
}

/// The input of `fence::decide` on a process with the leader's epoch and without a fault of its own.
pub(crate) fn fence_input<'a>(
    record: &'a Record,
    reach: &'a Reach,
    predecessor: &'a Verdict,
    delay: u8,
) -> FenceInput<'a> {
    FenceInput {
        now: NOW,
        record,
        reach,
        predecessor,
        rejoin_delay: ticks(delay),
        fenced_since: None,
        epoch_raised: true,
        clock_jumped: false,
        must_restart: false,
        unreported: false,
        process: None,
        forgot: false,
        unfit: false,
    }
}

/// A member that is only an entry of a list.
struct Named(MemberName);

impl LockMember for Named {
    fn name(&self) -> &MemberName {
        &self.0
    }

    fn send(&self, _: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        Box::pin(std::future::pending())
    }
}

/// The state of a member's vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Yes {
    #[default]
    None,
    /// A vote of the process that the electorate of the round admits.
    Admitted,
    /// A vote of a later process of the member.
    Other,
}

/// Whether the votes are a majority, as [`Tally`] counts them.
#[derive(Clone)]
pub(crate) struct Majorities {
    won: Vec<bool>,
}

impl Majorities {
    pub(crate) fn new(members: usize) -> Self {
        let electors = (0..members).map(|member| Elector {
            member: Arc::new(Named(format!("m{member}").into())),
            admitted: Some(RunId::new(format!("run {member}"))),
        });
        let electorate = Electorate::single(electors.collect());
        let outcome = |code: usize| {
            let mut tally = Tally::new(&electorate);
            for member in 0..members {
                match code / 3_usize.pow(u32::try_from(member).unwrap()) % 3 {
                    1 => tally.on_vote(member, Vote::Yes(&RunId::new(format!("run {member}")))),
                    2 => tally.on_vote(member, Vote::Yes(&RunId::new(format!("later run {member}")))),
                    _ => {}
                }
            }
            // Both functions must agree: `progress` decides an acquisition, `is_majority` its token.
            assert_eq!(tally.progress() == Progress::Won, tally.is_majority(|_| true));
            tally.progress() == Progress::Won
        };
        Self { won: (0..3_usize.pow(u32::try_from(members).unwrap())).map(outcome).collect() }
    }

    pub(crate) fn won(&self, votes: impl DoubleEndedIterator<Item = Yes>) -> bool {
        self.won[votes.rev().fold(0, |code, vote| code * 3 + vote as usize)]
    }
}
