//! The held locks of a quorum, according to their status.

use std::sync::Arc;
use std::time::Duration;

use crate::api::DistributedLock;
use crate::quorum::model::lookup;
use crate::redlock::Votes;

/// A lock with a hold on the quorum, with the votes of its last renewal by this replica.
pub(super) type HeldLock = (Arc<DistributedLock>, Option<Votes>);

/// The votes of the hold in the status of a lock, from the last renewal by this process.
pub type HeldVotes = Arc<dyn Fn(&DistributedLock) -> Option<Votes> + Send + Sync>;

/// `namespace/name` of the selected locks, sorted. A lock that cannot be read is always selected.
pub(super) fn names(held: &[HeldLock], is_meant: impl Fn(&DistributedLock, Option<Votes>) -> bool) -> Vec<String> {
    let meant = held.iter().filter(|(lock, votes)| lock.spec.unreadable.is_some() || is_meant(lock, *votes));
    let mut names: Vec<String> = meant.map(|(lock, _)| lookup::full_name(&**lock)).collect();
    names.sort();
    names
}

/// Names of the held locks that a member lacks.
///
/// `members` is the number of members. `dead` of them leave the quorum, and no step waits for them. A hold that ends needs no vote.
pub(super) fn incomplete(held: &[HeldLock], members: usize, dead: usize) -> Vec<String> {
    names(held, |lock, votes| {
        // The number of members must match. Votes from before a member joined show only that the other members have the key.
        let enough = votes.is_some_and(|votes| votes.of == members && votes.yes >= members - dead);
        lock.ending().is_none() && !enough
    })
}

/// Whether the last renewal of a lock can have a longer ttl than this.
///
/// It compares the specified ttl and the last published one, because a replica with an old cache renews with the old ttl.
pub(super) fn is_any_longer(held: &[HeldLock], longest: Duration) -> bool {
    let longest_millis = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
    let is_longer = |lock: &DistributedLock| {
        let status = lock.status.as_ref();
        let published = status.and_then(|status| status.valid_until.zip(status.renewed_at));
        lock.spec.ttl.get() + lock.spec.lock_delay.unwrap_or_default().get() > longest
            || published.is_some_and(|(until, at)| until.as_millis() - at.as_millis() > longest_millis)
    };
    held.iter().any(|(lock, _)| lock.spec.unreadable.is_some() || is_longer(lock))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::claim;

    #[test]
    fn a_rollout_waits_for_the_votes_of_holds_that_continue() {
        let lock = |name: &str, status: serde_json::Value| Arc::new(claim(name, 0, json!({"status": status})));
        let holds = || json!({"transitions": 1, "holder": {"identity": "a"}});
        let mut ends = holds();
        ends["ending"] = json!({"since": "2026-01-01T00:00:00.000Z", "reason": "Suspended"});
        let votes = |yes, of| Some(Votes { yes, of });
        let held = [
            (lock("whole", holds()), votes(3, 3)),
            (lock("lacks-one", holds()), votes(2, 3)),
            (lock("from-before-a-join", holds()), votes(2, 2)),
            (lock("not-renewed", holds()), None),
            (lock("ends", ends), None),
        ];
        assert_eq!(incomplete(&held, 3, 0), ["ns/from-before-a-join", "ns/lacks-one", "ns/not-renewed"]);
        assert_eq!(incomplete(&held, 3, 1), ["ns/from-before-a-join", "ns/not-renewed"]);
    }
}
