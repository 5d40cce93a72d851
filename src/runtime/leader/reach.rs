//! Which quorums this replica reaches, and since when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Boottime;

/// Links come and go: what has been so for less than this says nothing yet.
pub(super) const STEADY: Duration = Duration::from_secs(3);

/// One look at a quorum that is to be served: one that is gone, or on its way, is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// `<namespace>/<name>`.
    pub quorum: String,
    /// A majority of its members answers this replica. They can be fenced, and then they are fenced for every replica.
    pub is_reached: bool,
    /// A lock is held on it, or a majority of its members runs and the leader has to admit them. False for a quorum that is reached.
    pub is_wanted: bool,
}

/// The results of the checks so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach(BTreeMap<String, QuorumState>);

/// The last observation of a quorum. [`Reach::look`] makes it.
#[derive(Clone, Copy, Debug)]
struct QuorumState {
    is_reached: bool,
    is_wanted: bool,
    /// Since when `is_reached` has this value.
    since: Boottime,
}

impl Reach {
    /// Takes a look at all quorums.
    pub(super) fn look(&mut self, sights: Vec<Sight>, now: Boottime) {
        let mut known = std::mem::take(&mut self.0);
        self.0 = sights
            .into_iter()
            .map(|Sight { quorum, is_reached, is_wanted }| {
                let same = known.remove(&quorum).filter(|known| known.is_reached == is_reached);
                (quorum, QuorumState { is_reached, is_wanted, since: same.map_or(now, |known| known.since) })
            })
            .collect();
    }

    /// Whether there is such a quorum, and it is to be served.
    pub(super) fn knows(&self, quorum: &str) -> bool {
        self.0.contains_key(quorum)
    }

    /// Whether it has been reached for a while.
    pub(super) fn is_steady(&self, quorum: &str, now: Boottime) -> bool {
        self.0.get(quorum).is_some_and(|known| known.is_reached && now.since(known.since) >= STEADY)
    }

    /// A quorum with locks or running members that has not been reached for a while.
    pub(super) fn missing(&self, now: Boottime) -> Option<&str> {
        let is_missing = |state: &QuorumState| !state.is_reached && state.is_wanted && now.since(state.since) >= STEADY;
        self.0.iter().find(|(_, known)| is_missing(known)).map(|(quorum, _)| quorum.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    fn sights(sights: &[(&str, bool)]) -> Vec<Sight> {
        let sight = |(quorum, is_reached): &(&str, bool)| Sight {
            quorum: (*quorum).into(),
            is_reached: *is_reached,
            is_wanted: !quorum.ends_with("unused"),
        };
        sights.iter().map(sight).collect()
    }

    #[test]
    fn only_what_lasts_says_something() {
        let mut reach = Reach::default();
        reach.look(sights(&[("ns/a", true), ("ns/a-unused", false), ("ns/b", false)]), at(10));
        assert!(!reach.is_steady("ns/a", at(12)) && reach.is_steady("ns/a", at(13)));
        assert_eq!((reach.missing(at(12)), reach.missing(at(13))), (None, Some("ns/b")));
        reach.look(sights(&[("ns/a", true), ("ns/b", true)]), at(14));
        assert_eq!(reach.missing(at(20)), None);
        reach.look(sights(&[("ns/a", true)]), at(21));
        assert!(!reach.knows("ns/b") && reach.is_steady("ns/a", at(21)));
    }
}
