//! Which quorums this replica reaches, and since when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Boottime;

/// How long an observation must last before it is used, because connections can fail for a short time.
pub(super) const STEADY: Duration = Duration::from_secs(3);

/// Whether this replica reaches one quorum. There is no record for a quorum that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumReachability {
    /// `<namespace>/<name>`.
    pub quorum: String,
    /// A majority of its members answers this replica. Fenced members are included, because they are fenced for every replica.
    pub is_reached: bool,
    /// A lock is held on it, or a majority of its members runs and the leader has to admit them. False for a reached quorum.
    pub is_wanted: bool,
}

/// The last observation of each quorum, and the time since which `is_reached` has its value.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach(BTreeMap<String, (QuorumReachability, Boottime)>);

impl Reach {
    /// Observes all quorums.
    pub(super) fn observe(&mut self, reachability: Vec<QuorumReachability>, now: Boottime) {
        let mut previous = std::mem::take(&mut self.0);
        for state in reachability {
            let same = previous.remove(&state.quorum).filter(|(before, _)| before.is_reached == state.is_reached);
            let since = same.map_or(now, |(_, since)| since);
            self.0.insert(state.quorum.clone(), (state, since));
        }
    }

    /// Whether the quorum exists, is not being deleted, and the operator serves it.
    pub(super) fn contains(&self, quorum: &str) -> bool {
        self.0.contains_key(quorum)
    }

    /// Whether the quorum has been reached for at least [`STEADY`].
    pub(super) fn is_steady(&self, quorum: &str, now: Boottime) -> bool {
        self.0.get(quorum).is_some_and(|(state, since)| state.is_reached && now.since(*since) >= STEADY)
    }

    /// A quorum with locks or running members that has not been reached for at least [`STEADY`].
    pub(super) fn missing(&self, now: Boottime) -> Option<&str> {
        let mut states = self.0.values();
        let is_missing = |state: &QuorumReachability| !state.is_reached && state.is_wanted;
        states.find(|(state, since)| is_missing(state) && now.since(*since) >= STEADY).map(|(state, _)| &*state.quorum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boottime as at;

    fn reachability(reachability: &[(&str, bool)]) -> Vec<QuorumReachability> {
        let reachability_of = |(quorum, is_reached): &(&str, bool)| QuorumReachability {
            quorum: (*quorum).into(),
            is_reached: *is_reached,
            is_wanted: !quorum.ends_with("unused"),
        };
        reachability.iter().map(reachability_of).collect()
    }

    #[test]
    fn reachability_is_used_only_after_it_is_steady() {
        let mut reach = Reach::default();
        reach.observe(reachability(&[("ns/a", true), ("ns/a-unused", false), ("ns/b", false)]), at(10));
        assert!(!reach.is_steady("ns/a", at(12)) && reach.is_steady("ns/a", at(13)));
        assert_eq!((reach.missing(at(12)), reach.missing(at(13))), (None, Some("ns/b")));
        reach.observe(reachability(&[("ns/a", true), ("ns/b", true)]), at(14));
        assert_eq!(reach.missing(at(20)), None);
        reach.observe(reachability(&[("ns/a", true)]), at(21));
        assert!(!reach.contains("ns/b") && reach.is_steady("ns/a", at(21)));
    }
}
