//! When this replica first observed a hold, and first observed its end, on its own boot-time clock.
//!
//! Every replica keeps these times, because a change of leader would otherwise restart the wait for a hold that no majority confirms.

use std::collections::HashMap;

use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::DistributedLock;
use crate::lock::model::hold::ObservedSince;
use crate::time::Boottime;

/// The first observations of all holds that a status names, by the lock's UID.
#[derive(Debug, Default)]
pub struct ObservationTimes(Mutex<HashMap<String, (Option<String>, ObservedSince)>>);

impl ObservationTimes {
    /// Records the status of `lock` at `now`. Returns `None` without a holder.
    pub fn record(&self, lock: &DistributedLock, now: Boottime) -> Option<ObservedSince> {
        let uid = lock.uid().unwrap_or_default();
        let Some(holder) = lock.holder() else {
            self.forget(&uid);
            return None;
        };
        let nonce = holder.nonce.clone();
        let mut table = self.0.lock();
        let earlier = table.get(&uid).filter(|(earlier, _)| *earlier == nonce).map(|(_, observed)| *observed);
        let mut observed = earlier.unwrap_or(ObservedSince { held: now, ending: None });
        // A cache that lags behind can have the state before the end. The first observation stays.
        observed.ending = observed.ending.or(lock.ending().map(|_| now));
        table.insert(uid, (nonce, observed));
        Some(observed)
    }

    /// Drops the times of a deleted object.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::test_util;

    fn lock(status: serde_json::Value) -> DistributedLock {
        test_util::lock(json!({"key": "k"}), status)
    }

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_sight_of_a_hold_and_of_its_end_stays() {
        let observation_times = ObservationTimes::default();
        let held = lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": "n1"}}));
        let ending = lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": "n1"},
            "ending": {"since": "2026-01-01T00:00:00.000Z", "reason": "Suspended"}}));
        assert_eq!(observation_times.record(&held, at(1)), Some(ObservedSince { held: at(1), ending: None }));
        assert_eq!(observation_times.record(&ending, at(5)), Some(ObservedSince { held: at(1), ending: Some(at(5)) }));
        assert_eq!(
            observation_times.record(&held, at(6)).and_then(|observed| observed.ending),
            Some(at(5)),
            "an older state of the cache changes nothing"
        );
        assert_eq!(observation_times.record(&ending, at(9)), Some(ObservedSince { held: at(1), ending: Some(at(5)) }));
    }

    #[test]
    fn another_hold_of_the_lock_is_seen_for_the_first_time() {
        let observation_times = ObservationTimes::default();
        let held = |nonce: &str| lock(json!({"transitions": 1, "holder": {"identity": "a", "nonce": nonce}}));
        observation_times.record(&held("n1"), at(1));
        assert_eq!(observation_times.record(&held("n2"), at(7)), Some(ObservedSince { held: at(7), ending: None }));
        assert_eq!(observation_times.record(&lock(json!({"transitions": 1})), at(8)), None);
        assert_eq!(observation_times.record(&held("n2"), at(9)), Some(ObservedSince { held: at(9), ending: None }));
    }
}
