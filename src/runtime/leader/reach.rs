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
    /// A majority of its members answers this replica. They may be fenced: then they are so for every replica.
    pub is_reached: bool,
}

/// What the looks have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach(BTreeMap<String, (bool, Boottime)>);

impl Reach {
    /// Takes a look at all quorums.
    pub(super) fn look(&mut self, sights: Vec<Sight>, now: Boottime) {
        let mut known = std::mem::take(&mut self.0);
        self.0 = sights
            .into_iter()
            .map(|Sight { quorum, is_reached }| {
                let same = known.remove(&quorum).filter(|(was_reached, _)| *was_reached == is_reached);
                (quorum, same.unwrap_or((is_reached, now)))
            })
            .collect();
    }

    /// Whether there is such a quorum, and it is to be served.
    pub(super) fn knows(&self, quorum: &str) -> bool {
        self.0.contains_key(quorum)
    }

    /// Whether it has been reached for a while.
    pub(super) fn is_steady(&self, quorum: &str, now: Boottime) -> bool {
        self.0.get(quorum).is_some_and(|(is_reached, since)| *is_reached && now.since(*since) >= STEADY)
    }

    /// The quorums that have not been reached for a while.
    pub(super) fn missing(&self, now: Boottime) -> impl Iterator<Item = &str> {
        let missing = self.0.iter().filter(move |(_, (is_reached, since))| !is_reached && now.since(*since) >= STEADY);
        missing.map(|(quorum, _)| quorum.as_str())
    }

    /// The quorums that have not been reached steadily.
    pub(super) fn unsteady(&self, now: Boottime) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(move |quorum| !self.is_steady(quorum, now))
    }

    /// Whether a quorum besides this one is reached at this moment.
    pub(super) fn reaches_another(&self, quorum: &str) -> bool {
        self.reached().any(|name| name != quorum)
    }

    /// The quorums that are reached at this moment.
    pub(super) fn reached(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, (is_reached, _))| *is_reached).map(|(quorum, _)| quorum.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    fn sights(sights: &[(&str, bool)]) -> Vec<Sight> {
        sights.iter().map(|(quorum, is_reached)| Sight { quorum: (*quorum).into(), is_reached: *is_reached }).collect()
    }

    #[test]
    fn only_what_lasts_says_something() {
        let mut reach = Reach::default();
        reach.look(sights(&[("ns/a", true), ("ns/b", false)]), at(10));
        assert!(!reach.is_steady("ns/a", at(12)) && reach.is_steady("ns/a", at(13)));
        assert_eq!((reach.missing(at(12)).count(), reach.missing(at(13)).count()), (0, 1));
        reach.look(sights(&[("ns/a", true), ("ns/b", true)]), at(14));
        assert_eq!(reach.unsteady(at(14)).collect::<Vec<_>>(), ["ns/b"]);
        assert_eq!(reach.missing(at(20)).count(), 0);
        reach.look(sights(&[("ns/a", true)]), at(21));
        assert!(!reach.knows("ns/b") && reach.is_steady("ns/a", at(21)));
    }
}
