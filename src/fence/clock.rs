//! Detects a step of a member's wall clock (`docs/dev/rules.md`, rule 9).
//!
//! Keys in Redis expire by the wall clock of the member's machine. After a step of that clock, a process expired keys too early, or keeps
//! them for longer than it should. The member reads its clock between the request and the reply. So a reading gives an *interval* of
//! offsets to our clock, and a delay in the network only widens it. Two intervals show a step if no drift within the allowance explains
//! both. [`attribute`] decides which clock was stepped: the member's or the observer's.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::redlock::{ClockSample, Drift};
use crate::time::{Boottime, Clock, Monotonic};

/// How many references one window keeps.
/// They suffice to compare a creeping clock with a reading from about one window ago, and they are few enough that a vote stays
/// cheap.
const REFERENCES: u32 = 16;

/// The maximum difference between two clocks of a machine that was not suspended in between.
const SUSPENDED: Duration = Duration::from_millis(1);

/// A range of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    least: i64,
    most: i64,
}

impl Span {
    /// The difference from the first span to the second one.
    fn between(before: Self, after: Self) -> Self {
        Self { least: after.least.saturating_sub(before.most), most: after.most.saturating_sub(before.least) }
    }

    fn widened(self, by: i64) -> Self {
        Self { least: self.least.saturating_sub(by), most: self.most.saturating_add(by) }
    }

    fn common(self, other: Self) -> Option<Self> {
        let common = Self { least: self.least.max(other.least), most: self.most.min(other.most) };
        (common.least <= common.most).then_some(common)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The member's clock less ours: `[time - received, time - sent]`.
fn offset(sample: &ClockSample) -> Span {
    let at = |ours: Boottime| sample.time.0.saturating_sub(micros(ours.since_boot()));
    Span { least: at(sample.received), most: at(sample.sent) }
}

/// A step that drift cannot explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    span: Span,
    allowed: i64,
}

impl Step {
    /// The approximate size of the step in microseconds. A positive step is forward.
    pub const fn micros(&self) -> i64 {
        self.span.least.saturating_add(self.span.most) / 2
    }

    /// The range in which the true step lies, drift included.
    fn range(self) -> Span {
        self.span.widened(self.allowed)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.micros() < 0 { '-' } else { '+' }, self.micros().unsigned_abs());
        write!(f, "{sign}{}.{:03} s", size / 1_000_000, size % 1_000_000 / 1_000)
    }
}

/// The step between two readings, the earlier one first.
///
/// `None` if a drift within the allowance explains both. The allowance is `ppm × elapsed + floor`.
pub fn judge(before: &ClockSample, after: &ClockSample, drift: Drift) -> Option<Step> {
    let allowed = micros(drift.allowance(after.received.since(before.sent)));
    let span = Span::between(offset(before), offset(after));
    let zero = Span { least: 0, most: 0 };
    span.widened(allowed).common(zero).is_none().then_some(Step { span, allowed })
}

/// The limits of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The allowance for drift.
    pub drift: Drift,
    /// The maximum time between two compared readings. No lock lives longer.
    pub window: Duration,
}

/// A step, and the time of its discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The step.
    pub step: Step,
    /// When the reply with the step arrived.
    ///
    /// If all members share the step, later requests show it on each of them.
    pub found: Boottime,
}

/// The clock of one process, as this replica observed it since its baseline.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    references: VecDeque<ClockSample>,
    /// The newest regular reading.
    pub(crate) last: ClockSample,
    jump: Option<Jump>,
}

impl ClockWatch {
    /// Begins with this reading as the baseline.
    pub fn begin(sample: ClockSample) -> Self {
        Self { references: VecDeque::from([sample]), last: sample, jump: None }
    }

    /// Judges a reading without keeping it as a reference.
    ///
    /// A step remains recorded, because a clock that was stepped forward and back has dropped keys nevertheless.
    pub fn check(&mut self, sample: &ClockSample, rule: Rule) -> Option<Jump> {
        if self.jump.is_none() {
            // Replies of two connections can arrive out of order. An older one is compared with the readings before it.
            let mut earlier = self.references.iter().chain([&self.last]).filter(|earlier| earlier.sent <= sample.sent);
            let step = earlier.find_map(|earlier| judge(earlier, sample, rule.drift));
            self.jump = step.map(|step| Jump { step, found: sample.received });
        }
        self.jump
    }

    /// Judges a regular reading, and keeps it as a reference for later ones.
    pub fn observe(&mut self, sample: ClockSample, rule: Rule) -> Option<Jump> {
        let jump = self.check(&sample, rule);
        let spacing = rule.window / REFERENCES;
        if self.references.back().is_none_or(|newest| sample.sent.since(newest.sent) >= spacing) {
            self.references.push_back(sample);
        }
        let too_old = |reference: &ClockSample| sample.sent.since(reference.sent) > rule.window;
        while self.references.len() > 1 && self.references.front().is_some_and(too_old) {
            self.references.pop_front();
        }
        self.last = sample;
        jump
    }

    /// The recorded step, if there is one.
    pub const fn jump(&self) -> Option<&Jump> {
        self.jump.as_ref()
    }
}

/// The owner of the stepped clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// No clock was stepped.
    NoClock,
    /// Unknown, because some answering members have not been read since the step.
    Open,
    /// The clocks of the members with a step.
    Members,
    /// The observer's own clock, because every member shows the same step.
    Observer(Step),
}

/// Attributes the steps of the answering members, in a quorum of `members`.
///
/// Members share no clock, but all of them share the observer. So a step that all of them show is most likely a step of the observer:
/// its machine was stopped. One member without a step, or with another step, clears the observer.
pub fn attribute(answering: &[&ClockWatch], members: usize) -> Attribution {
    let jumps: Vec<&Jump> = answering.iter().filter_map(|watch| watch.jump()).collect();
    let Some(first) = jumps.iter().map(|jump| jump.found).min() else { return Attribution::NoClock };
    let is_read = |watch: &&&ClockWatch| watch.jump().is_some() || watch.last.sent > first;
    if answering.iter().filter(is_read).count() < answering.len() || (answering.len() == 1 && members > 1) {
        return Attribution::Open;
    }
    // A quorum of one has no other witness. An unnecessary restart is safe.
    if jumps.len() < answering.len() || answering.len() == 1 {
        return Attribution::Members;
    }
    let ranges = jumps.iter().map(|jump| Some(jump.step.range()));
    let common = ranges.reduce(|one, other| one?.common(other?)).flatten();
    match (common, jumps.first()) {
        (Some(_), Some(jump)) => Attribution::Observer(jump.step),
        _ => Attribution::Members,
    }
}

/// The difference of our own two clocks, which grows only while this machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnClocks(Span);

impl OwnClocks {
    /// Reads both clocks. One reading is between two readings of the other clock.
    ///
    /// A pause between the readings makes the span wider, and never shifts it.
    pub fn read(clock: &dyn Clock) -> Self {
        let before = clock.monotonic();
        let boottime = clock.boottime();
        Self::of(before, boottime, clock.monotonic())
    }

    fn of(before: Monotonic, boottime: Boottime, after: Monotonic) -> Self {
        let less = |monotonic: Monotonic| micros(boottime.since_boot()).saturating_sub(micros(monotonic.since_boot()));
        Self(Span { least: less(after), most: less(before) })
    }

    /// Whether this machine was suspended between two readings.
    pub fn were_suspended_since(self, before: Self) -> bool {
        Span::between(before.0, self.0).least > micros(SUSPENDED)
    }
}

#[cfg(test)]
mod tests;
