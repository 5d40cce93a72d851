//! External members, as one replica knows their records.

use std::collections::BTreeMap;
use std::time::Duration;

use super::FRESH;
use crate::quorum::model::lists::Lists;
use crate::redis_member::{Claim, OtherClaim, relied_on};
use crate::redlock::RunId;
use crate::time::Boottime;

/// What an external member is to the quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It is in a list that is in force.
    #[default]
    Voter,
    /// It is to be in one. It has to hold our claim by then, and stops no vote until then.
    Learner,
    /// It is in no list any more. Our claim there runs out.
    Leaver,
}

impl Role {
    /// What the lists make of a member.
    pub fn of(lists: &Lists, name: &str) -> Self {
        match (lists.counts(name), lists.learns(name)) {
            (true, _) => Self::Voter,
            (false, true) => Self::Learner,
            (false, false) => Self::Leaver,
        }
    }
}

/// One external member, as this replica knows its record.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedMaster {
    pub(super) role: Role,
    /// It has been asked, or has failed to answer.
    pub(super) tried: bool,
    /// The process that the status admits.
    pub(super) admitted: Option<RunId>,
    pub(super) look: Option<Look>,
    /// What others said here, by UID, and until when it counts. Kept when the process is another one, which has forgotten it.
    pub(super) others: BTreeMap<String, (OtherClaim, Boottime)>,
    pub(super) trouble: Option<String>,
}

/// The last look at a record.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) run_id: RunId,
    pub(super) at: Boottime,
    pub(super) kept: Option<Duration>,
    pub(super) stood: bool,
    /// What the claim says that stands there.
    pub(super) list: String,
    pub(super) newest: bool,
    pub(super) epoch: i64,
}

impl SharedMaster {
    /// The last look at this process, if our claim stood there a moment ago.
    pub(super) fn stands(&self, run_id: &RunId, now: Boottime) -> Option<&Look> {
        self.look.as_ref().filter(|look| look.run_id == *run_id && look.is_fresh(now) && look.kept.is_some())
    }

    pub(super) fn kept(&self, now: Boottime) -> Option<Duration> {
        self.look.as_ref().filter(|look| look.is_fresh(now))?.kept
    }
}

impl Look {
    /// Nothing is to be relied on there of which we need no majority any more.
    pub(super) fn is_so(&self, claim: &Claim) -> bool {
        relied_on(&self.list, self.newest).all(|list| relied_on(&claim.list, false).any(|needed| needed == list))
    }

    pub(super) fn is_fresh(&self, now: Boottime) -> bool {
        now.since(self.at) <= FRESH
    }
}
