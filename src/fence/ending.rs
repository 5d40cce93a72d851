//! When may a quorum that is being deleted go? Its members must be unable to vote, and what they promised must have expired:
//! a quorum of the same name may be made at once. Redis is never needed: a member that nobody can reach ends by the same
//! evidence as a predecessor.

use std::time::Duration;

use super::{Reach, Record, Users, Verdict};
use crate::time::Monotonic;

/// What the end of one member depends on.
#[derive(Clone, Debug)]
pub struct EndView<'a> {
    /// Now.
    pub now: Monotonic,
    /// What the status says.
    pub record: &'a Record,
    /// What this replica sees.
    pub reach: &'a Reach,
    /// What is known of [`Record::may_be_open`].
    pub verdict: &'a Verdict,
    /// How long a promise can live.
    pub rejoin_delay: Duration,
    /// When this replica confirmed that the process is closed for good.
    pub closed_since: Option<Monotonic>,
}

/// The next step towards the end of one member.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndStep {
    /// Record it as leaving, then close it.
    Close,
    /// Closed; its promises expire then.
    Wait {
        /// The moment.
        until: Monotonic,
    },
    /// It may be open, and nobody can close it.
    Unconfirmed {
        /// Where it was last.
        node: Option<String>,
        /// When evidence may be complete.
        until: Option<Monotonic>,
    },
    /// It can promise nothing any more.
    Ended,
}

/// Decides the next step towards the end of one member.
pub fn decide_end(view: &EndView<'_>) -> EndStep {
    if let Reach::Seen(sight) = view.reach {
        let admitted = view.record.admits(&sight.run_id);
        match view.closed_since {
            None if admitted || sight.users == Users::Open => return EndStep::Close,
            Some(_) if sight.users == Users::Open => return EndStep::Close,
            Some(closed) if view.now < closed + view.rejoin_delay => {
                return EndStep::Wait { until: closed + view.rejoin_delay };
            }
            // Closed for long enough, or never opened. What was before it is judged below.
            _ => {}
        }
        if admitted || view.record.may_be_open().is_none() {
            return EndStep::Ended;
        }
    }
    match view.verdict {
        Verdict::None | Verdict::Dead(_) => EndStep::Ended,
        Verdict::Unconfirmed { node, until } => EndStep::Unconfirmed { node: node.clone(), until: *until },
    }
}
