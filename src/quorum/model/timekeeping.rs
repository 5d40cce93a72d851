//! The quorum's clock: by it the times of locks are published and judged, never by a replica's wall clock. Pure.
//!
//! The members carry it. The status records for each admitted process what has to be added to its `TIME` to give the quorum's clock,
//! so the clock goes on as it was when members come and go, and all replicas that reach members agree, whatever their own clocks
//! show. A replica that reaches none carries on what it knew by its boot-time clock. The leader moves what is recorded slowly towards
//! the API server's time, which is the time that people and holders compare with.
//!
//! All clocks are given here as what has to be added to this replica's boot-time clock, in microseconds.

use std::collections::BTreeMap;

use crate::redlock::RunId;
use crate::time::ClockOffset;

/// Members that agree are not farther apart. They part only by drift, as long as no leader reaches the API server.
const AGREEMENT: i64 = 1_000_000;

/// By how much the quorum's clock must be off before the leader moves what is recorded.
/// It is also the most that the leader moves in one write.
pub const STEP: i64 = 20_000;

/// What an admitted process tells whose votes count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// The process.
    pub run_id: RunId,
    /// Its own clock.
    pub reading: ClockOffset,
    /// What the status says has to be added to it to give the quorum's clock. An older version has recorded nothing.
    pub recorded: Option<i64>,
    /// That was written since this replica heard the process last.
    pub news: bool,
}

impl Testimony {
    /// The quorum's clock, if this process alone is believed.
    fn tells(&self) -> Option<ClockOffset> {
        Some(self.reading.plus(self.recorded?))
    }
}

/// The quorum's clock, from what the admitted processes tell that answer.
///
/// `known`: the clock as this replica knew it. `api`: the API server's time, a witness only where the processes leave a doubt which a
/// replica that knows nothing cannot settle: a process whose clock was stepped while no replica watched it looks like any other.
pub fn reckon(told: &[Testimony], known: Option<i64>, api: Option<i64>) -> Option<i64> {
    let witness = known.or(api);
    let mut clocks: Vec<(i64, bool)> =
        told.iter().filter_map(|process| Some((process.tells()?.middle(), process.news))).collect();
    clocks.sort_unstable();
    let half = clocks.len() / 2;
    match clocks.as_slice() {
        [] => known,
        // A leader has set it since this replica knew the clock, and may know better.
        [(only, true)] => Some(*only),
        [(only, false)] => Some(agreeing(*only, witness)),
        odd if odd.len() % 2 == 1 => odd.get(half).map(|(clock, _)| *clock),
        even => match even.get(half.saturating_sub(1)..=half) {
            Some([(one, _), (other, _)]) => Some(between(*one, *other, witness)),
            _ => known,
        },
    }
}

/// A clock, unless it stands against what is known otherwise.
fn agreeing(clock: i64, witness: Option<i64>) -> i64 {
    witness.filter(|witness| clock.abs_diff(*witness) > AGREEMENT.unsigned_abs()).unwrap_or(clock)
}

/// The middle of two clocks that agree. Of two that do not the one that the witness is nearer to; without one the earlier, which
/// promises less.
fn between(one: i64, other: i64, witness: Option<i64>) -> i64 {
    if one.abs_diff(other) <= AGREEMENT.unsigned_abs() {
        return one.saturating_add(other.saturating_sub(one) / 2);
    }
    let Some(witness) = witness else { return one };
    if one.abs_diff(witness) <= other.abs_diff(witness) { one } else { other }
}

/// What the leader has to record, by process: how its clock stands from now on.
///
/// `clock`: the quorum's clock as the leader knows it. `api`: the API server's time. `passed`: microseconds since the last move, and
/// `ppm` of it is how far the clock may be moved.
pub fn corrections(
    told: &[Testimony],
    clock: Option<i64>,
    api: ClockOffset,
    passed: i64,
    ppm: u32,
) -> BTreeMap<RunId, i64> {
    let from = clock.unwrap_or_else(|| api.middle());
    let mut recorded = BTreeMap::new();
    let strays = |told: ClockOffset| told.middle().abs_diff(from) > AGREEMENT.unsigned_abs();
    for process in told {
        // Written by an older version; or it does not carry the clock that others do, or that was known before it stood alone.
        let is_settled = told.len() == 1 || is_supported(told, from);
        if process.recorded.is_none() || (is_settled && process.tells().is_some_and(strays)) {
            recorded.insert(process.run_id.clone(), from.saturating_sub(process.reading.middle()));
        }
    }
    let allowed = passed.saturating_mul(i64::from(ppm)) / 1_000_000;
    if clock.is_none() || allowed < STEP {
        return recorded;
    }
    // Where the API server's time is not known exactly nothing is gained by a move.
    let target = from.clamp(api.least(), api.most());
    if !told.iter().filter_map(Testimony::tells).any(|told| distance(target, told) >= STEP) {
        return recorded;
    }
    for process in told {
        let (Some(told), Some(before)) = (process.tells(), process.recorded) else { continue };
        // A replica that hears this process alone takes what is recorded as the leader's word on its clock. The leader has none
        // on a clock that contradicts its own, as long as it is not settled which of the two is wrong.
        if strays(told) {
            continue;
        }
        let by = target.saturating_sub(told.middle()).clamp(-STEP, STEP);
        recorded.entry(process.run_id.clone()).or_insert_with(|| before.saturating_add(by));
    }
    recorded
}

/// Whether two processes at least agree with this clock.
fn is_supported(told: &[Testimony], clock: i64) -> bool {
    let agrees = |told: &ClockOffset| told.middle().abs_diff(clock) <= AGREEMENT.unsigned_abs();
    told.iter().filter_map(Testimony::tells).filter(agrees).count() >= 2
}

/// How far `target` is from what the process may tell.
const fn distance(target: i64, told: ClockOffset) -> i64 {
    if target < told.least() {
        told.least().saturating_sub(target)
    } else if target > told.most() {
        target.saturating_sub(told.most())
    } else {
        0
    }
}

#[cfg(test)]
mod tests;
