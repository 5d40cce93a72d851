use super::{LockMember, MemberName, RunId};
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
/// while the membership changes (docs/algorithm.md).
#[derive(Clone)]
pub struct Electorate {
    electors: Vec<Elector>,
    lists: Vec<Vec<MemberName>>,
    clocks: Option<Arc<dyn ClockCheck>>,
}

impl Electorate {
    /// One list: all electors.
    #[must_use]
    pub fn single(electors: Vec<Elector>) -> Self {
        let list = electors.iter().map(|elector| elector.member.name().clone()).collect();
        Self { electors, lists: vec![list], clocks: None }
    }

    /// The old list and the new one. A name without an elector counts as a member that never answers.
    #[must_use]
    pub fn joint(electors: Vec<Elector>, old: Vec<MemberName>, new: Vec<MemberName>) -> Self {
        Self { electors, lists: vec![old, new], clocks: None }
    }

    /// Votes count only while `check` calls the voter's clock steady.
    #[must_use]
    pub fn with_clock_check(mut self, check: Arc<dyn ClockCheck>) -> Self {
        self.clocks = Some(check);
        self
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
