//! Beliefs: one process, one key, one interval.

use crate::cluster::{ClusterSide, JobHold};
use crate::time::At;
use crate::users::SHOP;
use redlock_simulation::kube::Millis;

/// The belief of a process that it holds a key.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    pub(super) who: String,
    /// The identity of a hold: the key in Redis, and the quorum by namespace and name.
    pub(super) key: String,
    pub(super) quorum: (String, String),
    /// The quorum whose keys these are. Quorums that share masters have the same one.
    pub(super) realm: (String, String),
    /// The key of a lock that names no quorum.
    ///
    /// Such locks contend by this key on every default quorum.
    pub(super) floating: Option<String>,
    pub(super) from: At,
    pub(super) until: At,
    /// The container that holds.
    ///
    /// The belief ends with the container, even if no component observes the end.
    pub(super) container: Option<String>,
    /// The pods or Jobs that own a claim, and its deletion time.
    ///
    /// The belief ends when all of them have ended.
    pub(super) owners: Option<(Vec<String>, Option<Millis>)>,
    /// The hold of a Job.
    ///
    /// Every pod created under it believes while it runs.
    pub(super) job: Option<JobHold>,
    /// Whether it can query the members with this value, and then believes for longer.
    pub(super) agent: bool,
    pub(super) value: Option<String>,
    pub(super) agent_until: Option<At>,
    /// Whether it is outside the cluster.
    ///
    /// Such a client reads no member's clock, so a step can grant it a lock that is held.
    pub(super) outside: bool,
}

impl Belief {
    pub(super) fn outside(who: &str, key: String, from: At, until: At) -> Self {
        let quorum = (SHOP.to_owned(), "q".to_owned());
        Self { container: None, owners: None, outside: true, ..Self::inside(who, key, quorum, from, until) }
    }

    /// The belief that follows from a hold in a status.
    pub(super) fn inside(who: &str, key: String, quorum: (String, String), from: At, until: At) -> Self {
        Self {
            who: who.to_owned(),
            key,
            realm: quorum.clone(),
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

    /// The end of the belief, according to the process.
    pub(super) fn end(&self) -> At {
        self.agent_until.map_or(self.until, |until| until.max(self.until))
    }

    /// Whether one of two beliefs has to exclude the other.
    pub(super) fn contends(&self, other: &Self) -> bool {
        // Slots of one shape are separate keys. A key without slots and one of its slots contend. Outside clients have
        // no slots.
        let base = |key: &str| key.split('#').next().unwrap_or_default().to_owned();
        let mixed = self.key.contains('#') != other.key.contains('#') && base(&self.key) == base(&other.key);
        let mixed = mixed && !self.outside && !other.outside;
        let same = (self.key == other.key || mixed) && self.realm == other.realm;
        same || self.floating.is_some() && self.floating == other.floating
    }

    /// Whether its processes still run.
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
