//! Converts times in objects to true time, while the API server's clock is set during the run.
//!
//! A time in an object is one of the clock that its writer had read. So the oracle records how far the clock was set
//! when it first observed each time. A writer can have read the clock earlier. Each check uses the reading that excuses
//! most.

use std::collections::BTreeMap;

use redlock_api::MilliTime;
use serde_json::Value;

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Entry, millis};

/// Maximum age of a replica's reading of the clock when its write arrives.
///
/// Each replica reads the Lease twice a second.
const READING: u64 = 1_500_000;
/// The same if requests can be late.
const LATE_READING: u64 = 15_000_000;

/// How far the clock was set at the writer of each time: the least and the most in milliseconds, by UID and time.
#[derive(Debug, Default)]
pub(super) struct Dates(BTreeMap<(String, i64), [i64; 2]>);

/// The times of an object that checks use.
fn dates_of(object: &Value) -> impl Iterator<Item = i64> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let changes = conditions.map(|condition| &condition["lastTransitionTime"]);
    let fields = [
        &metadata["creationTimestamp"],
        &metadata["deletionTimestamp"],
        &status["acquiredAt"],
        &status["validUntil"],
        &status["ending"]["since"],
    ];
    fields.into_iter().chain(changes).filter_map(|time| time.as_str().and_then(millis))
}

impl World {
    /// Records how far the API server's clock is set, for each new time in an object.
    pub(super) fn record_dates(&mut self, entry: &Entry) {
        if !self.plan.sets_clock() {
            return;
        }
        let steps = self.api.steps_between(self.earliest_reading(self.now), self.now);
        for date in dates_of(&entry.object.value) {
            self.oracle.dates.0.entry((entry.object.uid().to_owned(), date)).or_insert(steps);
        }
    }

    /// The earliest time of a clock reading whose writer's request arrives at this time.
    fn earliest_reading(&self, at: At) -> At {
        At(at.0.saturating_sub(if self.plan.has_late_requests() { LATE_READING } else { READING }))
    }

    fn steps_of(&self, uid: &str, millis: i64) -> [i64; 2] {
        self.oracle.dates.0.get(&(uid.to_owned(), millis)).copied().unwrap_or([0; 2])
    }

    fn true_micros(&self, millis: i64, step: i64) -> i64 {
        (millis - step - self.api.wrong) * 1_000 - At::default().unix_micros()
    }

    /// The earliest true time that this time of an object can mean, in microseconds since the beginning.
    pub(super) fn earliest(&self, uid: &str, time: &MilliTime) -> i64 {
        self.true_micros(time.as_millis(), self.steps_of(uid, time.as_millis())[1])
    }

    /// The latest true time that this time of an object can mean.
    pub(super) fn latest(&self, uid: &str, time: &MilliTime) -> i64 {
        self.true_micros(time.as_millis(), self.steps_of(uid, time.as_millis())[0])
    }

    /// Converts a time of the API server to the clock of the other components of the control plane.
    pub(super) fn on_cluster_clock(&self, uid: &str, millis: i64) -> i64 {
        millis - self.steps_of(uid, millis)[0]
    }

    /// The microseconds by which the API server's clock was set forward since this time.
    ///
    /// A wait that begins with a time in an object ends earlier by this.
    pub(super) fn set_forward_since(&self, at: At) -> u64 {
        self.api.set_since(self.earliest_reading(at), 1)
    }

    /// The microseconds by which the API server's clock was set back since this time.
    pub(super) fn set_back_since(&self, at: At) -> u64 {
        self.api.set_since(self.earliest_reading(at), -1)
    }
}
