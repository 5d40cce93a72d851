//! Who believes what: one process and one key, from when until when.

use crate::cluster::{ClusterSide, JobHold};
use crate::people::SHOP;
use crate::time::At;
use redlock_simulation::kube::Millis;

/// A process that may believe.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    pub(super) who: String,
    /// What tells whether two believe in the same thing: the key in Redis, and the quorum by namespace and name.
    pub(super) key: String,
    pub(super) quorum: (String, String),
    /// Of a lock that names no quorum: such locks contend by this, whatever the default quorum is.
    pub(super) floating: Option<String>,
    pub(super) from: At,
    pub(super) until: At,
    /// The container that holds: it believes no more when it has ended, whatever anybody knows of that.
    pub(super) container: Option<String>,
    /// Whose processes hold, where a claim belongs to pods or Jobs, and when it was deleted: it is done when they all are.
    pub(super) owners: Option<(Vec<String>, Option<Millis>)>,
    /// The hold of a Job: whoever was made under it believes, as long as it runs.
    pub(super) job: Option<JobHold>,
    /// It may ask the members itself, by this value, and then believes until then.
    pub(super) agent: bool,
    pub(super) value: Option<String>,
    pub(super) agent_until: Option<At>,
    /// Outside the cluster: it sees no member's clock, so that one which jumps may give it what somebody else holds.
    pub(super) outside: bool,
}

impl Belief {
    pub(super) fn outside(who: &str, key: String, from: At, until: At) -> Self {
        let quorum = (SHOP.to_owned(), "q".to_owned());
        Self { container: None, owners: None, outside: true, ..Self::inside(who, key, quorum, from, until) }
    }

    /// Of a hold that a status names.
    pub(super) fn inside(who: &str, key: String, quorum: (String, String), from: At, until: At) -> Self {
        Self {
            who: who.to_owned(),
            key,
            quorum,
            floating: None,
            from,
            until,
            container: None,
            owners: None,
            job: None,
            agent: true,
            value: None,
            agent_until: None,
            outside: false,
        }
    }

    /// When it stops to believe, as far as it knows.
    pub(super) fn end(&self) -> At {
        self.agent_until.map_or(self.until, |until| until.max(self.until))
    }

    /// Whether one of two has to keep the other out.
    pub(super) fn contends(&self, other: &Self) -> bool {
        // Slots of one shape are keys of their own; a key without slots and one of its slots are not. Clients outside know no slots.
        let base = |key: &str| key.split('#').next().unwrap_or_default().to_owned();
        let mixed = self.key.contains('#') != other.key.contains('#') && base(&self.key) == base(&other.key);
        let mixed = mixed && !self.outside && !other.outside;
        let same = (self.key == other.key || mixed) && self.quorum == other.quorum;
        same || self.floating.is_some() && self.floating == other.floating
    }

    /// Whether it still believes, as far as its processes are concerned.
    pub(super) fn lives(&self, cluster: &ClusterSide) -> bool {
        if let Some(hold) = &self.job {
            return cluster.runs_under(hold);
        }
        let runs = self.container.as_ref().is_none_or(|container| cluster.cluster.truth().is_running(container));
        let holds = |(owners, deleted): &(Vec<String>, Option<Millis>)| {
            deleted.is_none_or(|deleted| cluster.holds_for(owners, deleted))
        };
        runs && self.owners.as_ref().is_none_or(holds)
    }
}
