//! Pure: the JSON about a held lock for applications.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use redlock_engine::time::Boottime;

/// The JSON about a held lock. The names are part of the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockResponse {
    pub(crate) lock: String,
    pub(crate) holder: String,
    pub(crate) fencing_token: i64,
    /// How long the application can still work if the lock is no longer renewed.
    pub(crate) valid_for_ms: u64,
    /// The deadline as a reading of CLOCK_BOOTTIME.
    pub(crate) deadline_boottime_ms: u64,
}

impl LockResponse {
    /// A response whose deadline is already past.
    pub(crate) const fn new(lock: String, holder: String, fencing_token: i64) -> Self {
        Self { lock, holder, fencing_token, valid_for_ms: 0, deadline_boottime_ms: 0 }
    }

    /// Sets the deadline, and the remaining time at `now`.
    pub(crate) fn at(mut self, deadline: Boottime, now: Boottime) -> Self {
        self.valid_for_ms = millis(deadline.since(now));
        self.deadline_boottime_ms = millis(deadline.since_boot());
        self
    }

    /// The JSON on one line.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// A duration in whole milliseconds, rounded down.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    #[test]
    fn the_answer_has_the_promised_names() {
        assert_eq!(
            LockResponse::new("shop/reindex".into(), "me".into(), 7).at(at(9_500), at(1_000)).line(),
            "{\"lock\":\"shop/reindex\",\"holder\":\"me\",\"fencingToken\":7,\"validForMs\":8500,\"deadlineBoottimeMs\":9500}\n"
        );
    }
}
