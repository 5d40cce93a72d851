//! Pure: how often a leader releases the Lease because of a quorum that it does not reach. The record is in the Lease.
//!
//! A count and a time limit the hand-overs. The first hand-over needs no pause. The pauses before later ones are 10 s, then 20 s, and grow to
//! ten minutes. Twenty minutes without a hand-over reset the count. So a quorum that no replica reaches, or an unstable link, cannot make
//! leadership change all the time.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::time::{Boottime, UnixMillis};

/// The annotation of the Lease with the record.
pub(super) const ANNOTATION: &str = "redlock-operator.io/hand-over";

/// The pause between the first two hand-overs.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two hand-overs.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The time without a hand-over that resets the count.
///
/// It is longer than every pause. Otherwise a quorum that no replica reaches would reset the count again and again.
const RESET_AFTER: Duration = Duration::from_secs(1_200);

/// The record of the hand-overs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Number of hand-overs since the last reset of the count.
    pub(super) count: u32,
    /// When the last hand-over was, in milliseconds of Unix time by the API server's clock.
    at: i64,
}

impl Record {
    /// Reads the record of a Lease. An unreadable record is treated as missing.
    pub(super) fn of(lease: &Lease) -> Option<Self> {
        serde_json::from_str(lease.annotations().get(ANNOTATION)?).ok()
    }

    pub(super) fn write_to(self, lease: &mut Lease) {
        if let Ok(text) = serde_json::to_string(&self) {
            lease.annotations_mut().insert(ANNOTATION.to_owned(), text);
        }
    }
}

/// The record, and the time of its first observation by this replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory(Option<(Record, Boottime)>);

impl Memory {
    pub(super) fn observe(&mut self, record: Option<Record>, now: Boottime) {
        if self.0.map(|(record, _)| record) != record {
            self.0 = record.map(|record| (record, now));
        }
    }

    /// Whether the leader can release the Lease now.
    pub(super) fn allows(&self, now: Boottime, api_now: UnixMillis) -> bool {
        self.recent(now, api_now).is_none_or(|(record, age)| age >= pause(record.count))
    }

    /// The record after one more hand-over.
    pub(super) fn next(&self, now: Boottime, api_now: UnixMillis) -> Record {
        let count = self.recent(now, api_now).map_or(0, |(record, _)| record.count);
        Record { count: count.saturating_add(1), at: api_now.0 }
    }

    /// The record and its age, if it does not reset the count yet.
    ///
    /// The age is the longer of two durations: since the time in the record, and since its first observation. So a wrong time in the Lease can only
    /// make the next hand-over earlier.
    fn recent(&self, now: Boottime, api_now: UnixMillis) -> Option<(Record, Duration)> {
        let (record, since) = self.0?;
        let written = u64::try_from(api_now.0.saturating_sub(record.at)).map_or(Duration::ZERO, Duration::from_millis);
        Some((record, written.max(now.since(since)))).filter(|(_, age)| *age < RESET_AFTER)
    }
}

/// The pause after the last of `count` hand-overs.
fn pause(count: u32) -> Duration {
    match count {
        0 => Duration::ZERO,
        count => FIRST_PAUSE.saturating_mul(1 << (count - 1).min(10)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boottime as at;

    const NOW: UnixMillis = UnixMillis(1_795_284_168_033);

    fn later(seconds: i64) -> UnixMillis {
        UnixMillis(NOW.0 + seconds * 1_000)
    }

    #[test]
    fn the_first_is_free_and_the_pauses_grow_to_ten_minutes() {
        let pauses = [0, 1, 2, 3, 7, 30].map(|count| pause(count).as_secs());
        assert_eq!(pauses, [0, 10, 20, 40, 600, 600]);
        let mut memory = Memory::default();
        assert!(memory.allows(at(0), NOW));
        for (count, seconds) in [(1, 10), (2, 20)] {
            memory.observe(Some(Record { count, at: NOW.0 }), at(100));
            assert!(!memory.allows(at(99 + seconds), later(0)), "{count}");
            assert!(memory.allows(at(100 + seconds), later(0)), "{count}");
            assert_eq!(memory.next(at(100 + seconds), later(10)), Record { count: count + 1, at: later(10).0 });
        }
    }

    #[test]
    fn twenty_calm_minutes_reset_the_count_of_hand_overs() {
        let mut memory = Memory::default();
        memory.observe(Some(Record { count: 9, at: NOW.0 }), at(100));
        assert!(!memory.allows(at(699), NOW) && memory.allows(at(700), NOW));
        assert_eq!((memory.next(at(1_299), NOW).count, memory.next(at(1_300), NOW).count), (10, 1));
    }

    #[test]
    fn a_quorum_that_no_replica_reaches_moves_the_leadership_rarely() {
        let (mut memory, mut hand_overs) = (Memory::default(), 0);
        for second in 0..86_400 {
            let (now, api_now) = (at(second), later(i64::try_from(second).unwrap()));
            if memory.allows(now, api_now) {
                memory.observe(Some(memory.next(now, api_now)), now);
                hand_overs += 1;
            }
        }
        assert!(hand_overs <= 150, "{hand_overs} in a day");
    }

    #[test]
    fn a_wrong_time_in_the_lease_only_hastens_the_next_one() {
        let (mut early, mut late) = (Memory::default(), Memory::default());
        early.observe(Some(Record { count: 3, at: 0 }), at(100));
        assert!(early.allows(at(100), NOW));
        late.observe(Some(Record { count: 3, at: i64::MAX }), at(100));
        assert!(!late.allows(at(139), NOW) && late.allows(at(140), NOW));
        late.observe(Some(Record { count: 3, at: i64::MAX }), at(150));
        assert!(late.allows(at(150), NOW), "the same record does not restart the pause");
    }
}
