//! The members that can vote at one moment, and the checks of their clocks and counters.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::{FencingToken, LockMember, MemberName, RunId};
use crate::time::{Boottime, UnixMicros};

/// A reading of a member's clock, with the interval on our clock in which it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// The member's `TIME`.
    pub time: UnixMicros,
    /// The time before the request was written.
    pub sent: Boottime,
    /// The time after the answer was read.
    pub received: Boottime,
}

/// Checks the clock of a voter.
///
/// Expiry follows a member's clock, so a vote from a member whose clock was stepped since its admission is invalid.
/// Without the clock an answer is no vote here, so no vote is counted between a step and its detection.
pub trait ClockCheck: Send + Sync {
    /// Returns true if the process's clock offset is within the allowance of its offset at admission.
    fn steady(&self, run_id: &RunId, sample: &ClockSample) -> bool;

    /// The earliest time that the process's clock can show when this machine's clock shows `at`.
    ///
    /// `None` if the process's clock was not read yet.
    fn earliest(&self, run_id: &RunId, at: Boottime) -> Option<UnixMicros>;
}

/// Checks the token number of a vote.
///
/// A number below the restored counter proves that the process has lost its memory, and its locks, without a restart.
pub trait CounterCheck: Send + Sync {
    /// Returns true if the process still has its restored counter.
    fn remembers(&self, run_id: &RunId, number: FencingToken) -> bool;
}

/// A member, and the process behind its name that can vote.
#[derive(Clone)]
pub struct Elector {
    /// The member.
    pub member: Arc<dyn LockMember>,
    /// The admitted process.
    ///
    /// Votes of other processes are ignored. If it is `None`, all votes are ignored.
    pub admitted: Option<RunId>,
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("member", self.member.name()).field("admitted", &self.admitted).finish()
    }
}

/// The voting members at one moment.
///
/// A round needs a majority of every list, and each process has one vote. Two lists are in force while the membership changes
/// (docs/dev/algorithm.md).
#[derive(Clone)]
pub struct Electorate {
    electors: Vec<Elector>,
    clocks: Option<Arc<dyn ClockCheck>>,
    counters: Option<Arc<dyn CounterCheck>>,
    layout: Arc<Layout>,
}

/// The processes and lists of an electorate, which are the same for all its rounds.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) seats: Vec<Seat>,
    pub(super) lists: Vec<List>,
    /// The number of electors, and of names in a list without an elector.
    pub(super) members: usize,
}

/// A set of admitted processes, one bit each.
pub(super) type Processes = u64;

/// One elector of a layout.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) admitted: Option<RunId>,
    /// The admitted process as a set of one element.
    ///
    /// The set is empty without an admitted process.
    pub(super) process: Processes,
}

/// A member list: its size, and the seats of its members that have an elector.
///
/// The other members never answer.
#[derive(Debug)]
pub(super) struct List {
    pub(super) members: usize,
    pub(super) seats: Vec<usize>,
}

impl List {
    pub(super) const fn quorum(&self) -> usize {
        self.members / 2 + 1
    }
}

impl Layout {
    fn new(electors: &[Elector], lists: &[Vec<MemberName>]) -> Self {
        let seat = |elector: &Elector| {
            // The index of the first seat with this process is its bit. A process beyond the bits of a set has no vote.
            let first = electors.iter().position(|other| other.admitted == elector.admitted).map(u32::try_from);
            let process = match (&elector.admitted, first) {
                (Some(_), Some(Ok(first))) => Processes::checked_shl(1, first).unwrap_or(0),
                _ => 0,
            };
            Seat { admitted: elector.admitted.clone(), process }
        };
        let position = |name: &MemberName| electors.iter().position(|elector| elector.member.name() == name);
        let list =
            |names: &Vec<MemberName>| List { members: names.len(), seats: names.iter().filter_map(position).collect() };
        let absent: BTreeSet<_> = lists.iter().flatten().filter(|name| position(name).is_none()).collect();
        Self {
            seats: electors.iter().map(seat).collect(),
            lists: lists.iter().map(list).collect(),
            members: electors.len() + absent.len(),
        }
    }
}

impl Electorate {
    /// An electorate with one list of all electors.
    #[must_use]
    pub fn single(electors: Vec<Elector>) -> Self {
        let list: Vec<_> = electors.iter().map(|elector| elector.member.name().clone()).collect();
        Self::new(electors, &[list])
    }

    /// An electorate with the old list and the new one.
    ///
    /// Equal lists become one.
    ///
    /// A name without an elector is a member that never answers. An elector in no list gets the keys, but its votes and
    /// its numbers are ignored.
    #[must_use]
    pub fn joint(electors: Vec<Elector>, old: Vec<MemberName>, new: Vec<MemberName>) -> Self {
        let lists = if old == new { vec![new] } else { vec![old, new] };
        Self::new(electors, &lists)
    }

    fn new(electors: Vec<Elector>, lists: &[Vec<MemberName>]) -> Self {
        let layout = Arc::new(Layout::new(&electors, lists));
        Self { electors, clocks: None, counters: None, layout }
    }

    /// Ignores votes of processes whose clock fails this check.
    #[must_use]
    pub fn with_clock_check(mut self, check: Arc<dyn ClockCheck>) -> Self {
        self.clocks = Some(check);
        self
    }

    /// Ignores votes of processes that have lost their counter.
    #[must_use]
    pub fn with_counter_check(mut self, check: Arc<dyn CounterCheck>) -> Self {
        self.counters = Some(check);
        self
    }

    /// Returns true if the process still has its counter, or if there is no check.
    #[must_use]
    pub fn remembers(&self, run_id: &RunId, number: FencingToken) -> bool {
        self.counters.as_ref().is_none_or(|counters| counters.remembers(run_id, number))
    }

    /// All electors, admitted or not.
    #[must_use]
    pub fn electors(&self) -> &[Elector] {
        &self.electors
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The smallest number of answers that can decide a round.
    pub(super) fn fewest_to_decide(&self) -> usize {
        let fewest = |list: &List| list.quorum().min(list.members - list.quorum() + 1);
        self.layout.lists.iter().map(fewest).min().unwrap_or_default().max(1)
    }

    /// Returns true if a vote needs a reading of the voter's clock.
    #[must_use]
    pub fn checks_clocks(&self) -> bool {
        self.clocks.is_some()
    }

    /// The earliest time that the clock of the elector's process can show at `at` on this machine's clock.
    pub(super) fn earliest(&self, elector: &Elector, at: Boottime) -> Option<UnixMicros> {
        self.clocks.as_ref()?.earliest(elector.admitted.as_ref()?, at)
    }

    /// Returns true if the voter's clock passes the check, or if there is no check.
    #[must_use]
    pub fn clock_is_steady(&self, run_id: &RunId, sample: &ClockSample) -> bool {
        self.clocks.as_ref().is_none_or(|clocks| clocks.steady(run_id, sample))
    }
}

impl fmt::Debug for Electorate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Electorate").field("electors", &self.electors).field("lists", &self.layout.lists).finish()
    }
}
