//! The clock watch: does a member's wall clock still run as it did? (`docs/dev/rules.md`, rule 9.)
//!
//! Expiry in Redis follows the wall clock of its machine, so a process whose clock was stepped has forgotten, or keeps, what it
//! should not. A reading is never exact: it was taken somewhere between the sending of the question and the answer, so it
//! gives an *interval* of offsets to our clock. Two intervals that no drift within the allowance reconciles are a step; delay in
//! the network only widens them. Whose clock it was that moved is a second question: [`attribute`].

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::redlock::{ClockSample, Drift};
use crate::time::{Boottime, Clock, Monotonic};

/// How many references one window keeps.
/// There are enough to measure a creeping clock against one from about a window ago, and so few that a vote costs
/// nothing.
const REFERENCES: u32 = 16;

/// Readings of two clocks of one machine differ by less, unless it was suspended between them.
const SUSPENDED: Duration = Duration::from_millis(1);

/// A range of microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    least: i64,
    most: i64,
}

impl Span {
    /// The difference of the second span to the first.
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
    /// About how far, in microseconds; positive is forward.
    #[must_use]
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
/// `None` if drift within the allowance explains both. The allowance is `ppm × elapsed + floor`.
#[must_use]
pub fn judge(before: &ClockSample, after: &ClockSample, drift: Drift) -> Option<Step> {
    let allowed = micros(drift.allowance(after.received.since(before.sent)));
    let span = Span::between(offset(before), offset(after));
    let zero = Span { least: 0, most: 0 };
    span.widened(allowed).common(zero).is_none().then_some(Step { span, allowed })
}

/// The limits of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The allowance.
    pub drift: Drift,
    /// Readings so far apart are compared at most: no lock lives longer.
    pub window: Duration,
}

/// A step that was found, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// How far.
    pub step: Step,
    /// When the reading that showed it was there. What is asked from then on shows it too, if it is common to all.
    pub found: Boottime,
}

/// The clock of one process, as this replica observed it since its baseline.
#[derive(Clone, Debug)]
pub struct ClockWatch {
    references: VecDeque<ClockSample>,
    last: ClockSample,
    jump: Option<Jump>,
}

impl ClockWatch {
    /// Begins with this reading as the baseline.
    #[must_use]
    pub fn begin(sample: ClockSample) -> Self {
        Self { references: VecDeque::from([sample]), last: sample, jump: None }
    }

    /// Judges a reading without keeping it as a reference. A step stays found: a clock that is stepped there and back has
    /// dropped keys all the same.
    pub fn check(&mut self, sample: &ClockSample, rule: Rule) -> Option<Step> {
        if let Some(jump) = self.jump {
            return Some(jump.step);
        }
        // Answers of two connections can arrive out of order. An older one is compared with the readings before it.
        let mut earlier = self.references.iter().chain([&self.last]).filter(|earlier| earlier.sent <= sample.sent);
        let step = earlier.find_map(|earlier| judge(earlier, sample, rule.drift))?;
        self.jump = Some(Jump { step, found: sample.received });
        Some(step)
    }

    /// Takes a regular reading: judged, and a reference for later ones.
    pub fn observe(&mut self, sample: ClockSample, rule: Rule) -> Option<Step> {
        let step = self.check(&sample, rule);
        let spacing = rule.window / REFERENCES;
        if self.references.back().is_none_or(|newest| sample.sent.since(newest.sent) >= spacing) {
            self.references.push_back(sample);
        }
        let too_old = |reference: &ClockSample| sample.sent.since(reference.sent) > rule.window;
        while self.references.len() > 1 && self.references.front().is_some_and(too_old) {
            self.references.pop_front();
        }
        self.last = sample;
        step
    }

    /// The step that was found, if one was.
    #[must_use]
    pub const fn jump(&self) -> Option<&Jump> {
        self.jump.as_ref()
    }

    /// The newest regular reading.
    #[must_use]
    pub const fn last(&self) -> &ClockSample {
        &self.last
    }
}

/// The owner of the clock that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// No clock's.
    NoClock,
    /// Not all members that answer have been read since: not known yet.
    Open,
    /// Those of the members that show a step.
    Members,
    /// The observer's own clock: every member shows the same step.
    Observer(Step),
}

/// Attributes the steps that the members which answer show, of a quorum of `members`.
///
/// Members share no clock, the observer is common to all of them. So a step that all show alike is the observer's, most likely:
/// its machine was stopped. One witness that stood still, or moved otherwise, clears the observer.
#[must_use]
pub fn attribute(answering: &[&ClockWatch], members: usize) -> Attribution {
    let jumps: Vec<&Jump> = answering.iter().filter_map(|watch| watch.jump()).collect();
    let Some(first) = jumps.iter().map(|jump| jump.found).min() else { return Attribution::NoClock };
    let is_read = |watch: &&&ClockWatch| watch.jump().is_some() || watch.last().sent > first;
    if answering.iter().filter(is_read).count() < answering.len() || (answering.len() == 1 && members > 1) {
        return Attribution::Open;
    }
    // A quorum of one has no witness; a restart too many is the safe side.
    if jumps.len() < answering.len() || members == 1 {
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
    /// Reads both clocks: one of them between two readings of the other.
    ///
    /// A pause between the readings makes the span wider, and never shifts it.
    #[must_use]
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
    #[must_use]
    pub fn were_suspended_since(self, before: Self) -> bool {
        Span::between(before.0, self.0).least > micros(SUSPENDED)
    }
}

#[cfg(test)]
mod tests;
