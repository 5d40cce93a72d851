//! When this replica first saw a hold, and first saw it end, on its own boot-time clock.
//!
//! Every replica keeps these times, leader or not: a wait that has to pass when no majority of the members answers would begin
//! again with every change of leader otherwise.

use std::collections::HashMap;

use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::DistributedLock;
use crate::lock::model::hold::Sighting;
use crate::time::Boottime;

/// The first sights of all holds that a status names, by the lock's UID.
#[derive(Debug, Default)]
pub struct Sightings(Mutex<HashMap<String, (Option<String>, Sighting)>>);

impl Sightings {
    /// Takes what the status of `lock` says, seen at `now`. `None`: it has no holder.
    pub fn see(&self, lock: &DistributedLock, now: Boottime) -> Option<Sighting> {
        let (uid, status) = (lock.uid().unwrap_or_default(), lock.status.as_ref());
        let is_ending = status.is_some_and(|status| status.ending.is_some());
        let Some(holder) = status.and_then(|status| status.holder.as_ref()) else {
            self.forget(&uid);
            return None;
        };
        let nonce = holder.nonce.clone();
        let mut table = self.0.lock();
        let known = table.get(&uid).filter(|(known, _)| *known == nonce).map(|(_, sighting)| *sighting);
        let mut sighting = known.unwrap_or(Sighting { held: now, ending: None });
        // A cache that lags behind may show the state before the end: the first sight stays.
        sighting.ending = sighting.ending.or(is_ending.then_some(now));
        table.insert(uid, (nonce, sighting));
        Some(sighting)
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn lock(status: serde_json::Value) -> DistributedLock {
        serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "l", "namespace": "ns", "uid": "u"}, "spec": {"key": "k"}, "status": status}))
        .unwrap()
    }

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_sight_of_a_hold_and_of_its_end_stays() {
        let sightings = Sightings::default();
        let held = lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": "n1"}}));
        let ending = lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": "n1"},
            "ending": {"since": "2026-01-01T00:00:00.000Z", "reason": "Suspended"}}));
        assert_eq!(sightings.see(&held, at(1)), Some(Sighting { held: at(1), ending: None }));
        assert_eq!(sightings.see(&ending, at(5)), Some(Sighting { held: at(1), ending: Some(at(5)) }));
        assert_eq!(sightings.see(&held, at(6)).and_then(|seen| seen.ending), Some(at(5)), "a cache that lags behind");
        assert_eq!(sightings.see(&ending, at(9)), Some(Sighting { held: at(1), ending: Some(at(5)) }));
    }

    #[test]
    fn another_hold_of_the_lock_is_seen_for_the_first_time() {
        let sightings = Sightings::default();
        let held = |nonce: &str| lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": nonce}}));
        sightings.see(&held("n1"), at(1));
        assert_eq!(sightings.see(&held("n2"), at(7)), Some(Sighting { held: at(7), ending: None }));
        assert_eq!(sightings.see(&lock(json!({"transitions": 1})), at(8)), None);
        assert_eq!(sightings.see(&held("n2"), at(9)), Some(Sighting { held: at(9), ending: None }));
    }
}
