use super::{FencingToken, LockMember, MemberName, RunId};
use crate::time::{Boottime, UnixMicros};
use std::fmt;
use std::sync::Arc;

/// One member's reading of its own clock, and the interval on ours in which it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// The member's `TIME`.
    pub time: UnixMicros,
    /// Before the request was written.
    pub sent: Boottime,
    /// After the answer was read.
    pub received: Boottime,
}

/// Judges a member's clock: expiry follows it, so a yes from a member whose clock was stepped since its admission is
/// worth nothing. Carried by every acquire and extend answer, so that there is no window between a step and its
/// discovery.
pub trait ClockCheck: Send + Sync {
    /// Whether the process's offset to our clock is still the one that it was admitted with, within the allowance.
    fn steady(&self, run_id: &RunId, sample: &ClockSample) -> bool;

    /// The earliest time that the process's clock can show at this moment of ours. `None` while it is not known.
    fn earliest(&self, run_id: &RunId, at: Boottime) -> Option<UnixMicros>;
}

/// Judges the number of a vote: a process that counts from less than it was restored to has forgotten its counter, and its locks with it,
/// without a restart.
pub trait CounterCheck: Send + Sync {
    /// Whether the process still has the counter that it was restored to.
    fn remembers(&self, run_id: &RunId, number: FencingToken) -> bool;
}

/// A member, and which process behind its name may vote.
#[derive(Clone)]
pub struct Elector {
    /// The member.
    pub member: Arc<dyn LockMember>,
    /// The process that was admitted; a vote of another one, or any vote while this is `None`, is dropped.
    pub admitted: Option<RunId>,
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("member", self.member.name()).field("admitted", &self.admitted).finish()
    }
}

/// The voting members at one moment: a majority of every list is needed, of distinct processes. Two lists are in force
/// while the membership changes (docs/dev/algorithm.md).
#[derive(Clone)]
pub struct Electorate {
    electors: Vec<Elector>,
    lists: Vec<Vec<MemberName>>,
    clocks: Option<Arc<dyn ClockCheck>>,
    counters: Option<Arc<dyn CounterCheck>>,
    layout: Arc<Layout>,
}

/// Who votes with which process, and in which lists: the same for every round of one electorate.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) seats: Vec<Seat>,
    pub(super) lists: Vec<List>,
}

/// A set of admitted processes, one bit each.
pub(super) type Processes = u64;

/// An elector.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) admitted: Option<RunId>,
    /// The admitted process as a set of one; empty without one.
    pub(super) process: Processes,
}

/// A member list: how many it names, and the seats of those that have an elector. The others are never heard of.
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
            // The first seat with this process lends its number; beyond the bits of a set there are no votes.
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
        Self { seats: electors.iter().map(seat).collect(), lists: lists.iter().map(list).collect() }
    }
}

impl Electorate {
    /// One list: all electors.
    #[must_use]
    pub fn single(electors: Vec<Elector>) -> Self {
        let list = electors.iter().map(|elector| elector.member.name().clone()).collect();
        Self::new(electors, vec![list])
    }

    /// The old list and the new one, which are one if they are equal. A name without an elector counts as a member that never answers. An
    /// elector in no list gets the keys, and neither its votes nor its numbers count.
    #[must_use]
    pub fn joint(electors: Vec<Elector>, old: Vec<MemberName>, new: Vec<MemberName>) -> Self {
        let lists = if old == new { vec![new] } else { vec![old, new] };
        Self::new(electors, lists)
    }

    fn new(electors: Vec<Elector>, lists: Vec<Vec<MemberName>>) -> Self {
        let layout = Arc::new(Layout::new(&electors, &lists));
        Self { electors, lists, clocks: None, counters: None, layout }
    }

    /// Votes count only while `check` calls the voter's clock steady.
    #[must_use]
    pub fn with_clock_check(mut self, check: Arc<dyn ClockCheck>) -> Self {
        self.clocks = Some(check);
        self
    }

    /// The vote of a process that has forgotten its counter does not count.
    #[must_use]
    pub fn with_counter_check(mut self, check: Arc<dyn CounterCheck>) -> Self {
        self.counters = Some(check);
        self
    }

    /// Whether the process still has its counter; without a check it does.
    #[must_use]
    pub fn remembers(&self, run_id: &RunId, number: FencingToken) -> bool {
        self.counters.as_ref().is_none_or(|counters| counters.remembers(run_id, number))
    }

    /// All electors, admitted or not.
    #[must_use]
    pub fn electors(&self) -> &[Elector] {
        &self.electors
    }

    /// The member lists, one or two.
    #[must_use]
    pub fn lists(&self) -> &[Vec<MemberName>] {
        &self.lists
    }

    pub(super) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// With fewer answers no round is decided, whatever they say.
    pub(super) fn fewest_to_decide(&self) -> usize {
        let fewest = |list: &List| list.quorum().min(list.members - list.quorum() + 1);
        self.layout.lists.iter().map(fewest).min().unwrap_or_default().max(1)
    }

    /// Whether votes count only with a reading of the voter's clock.
    #[must_use]
    pub fn checks_clocks(&self) -> bool {
        self.clocks.is_some()
    }

    /// The earliest time that the clock of the elector's process can show at this moment of ours.
    pub(super) fn earliest(&self, elector: &Elector, at: Boottime) -> Option<UnixMicros> {
        self.clocks.as_ref()?.earliest(elector.admitted.as_ref()?, at)
    }

    /// Whether the voter's clock may be trusted; without a check it is.
    #[must_use]
    pub fn clock_is_steady(&self, run_id: &RunId, sample: &ClockSample) -> bool {
        self.clocks.as_ref().is_none_or(|clocks| clocks.steady(run_id, sample))
    }
}

impl fmt::Debug for Electorate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Electorate").field("electors", &self.electors).field("lists", &self.lists).finish()
    }
}
