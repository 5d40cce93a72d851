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
    use serde_json::json;

    use super::*;
    use crate::api::test_util::lock;
    use crate::tests::boottime as at;

    #[test]
    fn the_first_observation_of_a_hold_and_of_its_end_stays() {
        let times = ObservationTimes::default();
        let end = json!({"since": "2026-01-01T00:00:00.000Z", "reason": "Suspended"});
        for (now, nonce, ends, since) in [
            (1, Some("n1"), false, Some((1, None))),
            (5, Some("n1"), true, Some((1, Some(5)))),
            // An older state of the cache changes nothing.
            (6, Some("n1"), false, Some((1, Some(5)))),
            (9, Some("n1"), true, Some((1, Some(5)))),
            (10, Some("n2"), false, Some((10, None))),
            (11, None, false, None),
            (12, Some("n2"), false, Some((12, None))),
        ] {
            let holder = nonce.map(|nonce| json!({"identity": "a", "nonce": nonce}));
            let status = json!({"transitions": 1, "holder": holder, "ending": ends.then_some(&end)});
            let since = since.map(|(held, ending)| ObservedSince { held: at(held), ending: ending.map(at) });
            assert_eq!(times.record(&lock(json!({"key": "k"}), status), at(now)), since, "after {now} s");
        }
    }
}
