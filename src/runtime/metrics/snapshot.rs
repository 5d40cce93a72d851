//! Metrics from the caches at the moment of a request.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::{Metrics, member_labels, quorum_labels};
use crate::api::conditions::{HeldReason, LockCondition, QuorumCondition, find_condition, is_false, is_true};
use crate::api::{DistributedLock, MemberState, RedisQuorum};
use crate::time::UnixMillis;

impl Metrics {
    /// Records whether this replica leads.
    pub(in crate::runtime) fn record_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
        if !leads {
            self.certificate_expiry.clear();
        }
    }

    /// Records when the certificate of a quorum's members expires. `None` without one.
    pub fn certificate_expires(&self, quorum: &ObjectRef<RedisQuorum>, at: Option<i64>) {
        let labels = quorum_labels(quorum);
        match at {
            Some(at) => drop(self.certificate_expiry.get_or_create(&labels).set(at)),
            None => drop(self.certificate_expiry.remove(&labels)),
        }
    }

    /// Records the state of locks, each in a series of its own if `per_lock`.
    pub(in crate::runtime) fn record_locks(&self, locks: &[Arc<DistributedLock>], per_lock: bool) {
        self.lock_held.clear();
        for lock in locks.iter().filter(|_| per_lock) {
            let labels = vec![("namespace", lock.namespace().unwrap_or_default()), ("lock", lock.name_any())];
            self.lock_held.get_or_create(&labels).set(i64::from(lock.is_held()));
        }
        self.waiting.clear();
        for reason in WAITS {
            self.waiting.get_or_create(&vec![("reason", reason.as_str().to_owned())]).set(0);
        }
        let (mut held, mut without_leader) = (0, 0);
        for (lock, status) in locks.iter().filter_map(|lock| Some((lock, lock.status.as_ref()?))) {
            if lock.is_held() {
                held += 1;
                continue;
            }
            if is_true(&status.conditions, LockCondition::Finished) {
                continue;
            }
            let reason = find_condition(&status.conditions, LockCondition::Held).map(|held| held.reason.as_str());
            let needs_leader = lock.spec.election.is_some() && !lock.spec.suspend;
            let is_led = reason.is_some_and(|reason| has_leader_elsewhere(lock, reason));
            without_leader += i64::from(needs_leader && !is_led);
            // Only reasons that this operator writes become labels.
            if let Some(reason) = HeldReason::ALL.iter().find(|ours| Some(ours.as_str()) == reason) {
                self.waiting.get_or_create(&vec![("reason", reason.as_str().to_owned())]).inc();
            }
        }
        self.held.set(held);
        self.without_leader.set(without_leader);
    }

    /// Records the longest wait of a lock for each quorum.
    pub(in crate::runtime) fn record_waiters(
        &self,
        locks: &[Arc<DistributedLock>],
        quorums: &[Arc<RedisQuorum>],
        default_quorum: Option<&ObjectRef<RedisQuorum>>,
        now: UnixMillis,
    ) {
        self.oldest_waiter.clear();
        for quorum in quorums {
            self.oldest_waiter.get_or_create(&quorum_labels(&ObjectRef::from_obj(&**quorum))).set(0);
        }
        for lock in locks {
            let named = lock.named_quorum().map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
            if let (Some(waited), Some(quorum)) = (waits_for(lock, now), named.as_ref().or(default_quorum)) {
                let oldest = self.oldest_waiter.get_or_create_owned(&quorum_labels(quorum));
                oldest.set(oldest.get().max(waited));
            }
        }
    }

    /// Records the state of quorums and their members.
    pub(in crate::runtime) fn record_quorums(&self, quorums: &[Arc<RedisQuorum>], now: UnixMillis) {
        self.member_votes.clear();
        self.member_state.clear();
        self.fence_remaining.clear();
        self.votes_available.clear();
        self.votes_needed.clear();
        for quorum in quorums {
            let reference = ObjectRef::from_obj(&**quorum);
            if let Some(status) = &quorum.status {
                let can_vote = status.members.iter().filter(|member| member.state == MemberState::Admitted);
                let can_vote = can_vote.filter(|member| status.voters.contains(&member.name));
                let grants_nothing = is_false(&status.conditions, QuorumCondition::QuorumAvailable);
                let votes = if grants_nothing { 0 } else { can_vote.count() };
                let labels = quorum_labels(&reference);
                self.votes_available.get_or_create(&labels).set(i64::try_from(votes).unwrap_or(i64::MAX));
                self.votes_needed.get_or_create(&labels).set(i64::from(status.quorum.unwrap_or(0)));
            }
            for member in quorum.members() {
                let left = member.rejoin_at.map_or(0, |at| at.as_millis().saturating_sub(now.0).max(0));
                let mut labels = member_labels(&reference, &member.name);
                self.member_votes.get_or_create(&labels).set(i64::from(member.state == MemberState::Admitted));
                self.fence_remaining.get_or_create(&labels).set(left.saturating_add(999) / 1_000);
                labels.push(("state", format!("{:?}", member.state)));
                self.member_state.get_or_create(&labels).set(1);
            }
        }
    }
}

/// The reasons for which locks wait.
const WAITS: [HeldReason; 7] = [
    HeldReason::Queued,
    HeldReason::HeldByOther,
    HeldReason::LockDelay,
    HeldReason::NoCandidate,
    HeldReason::NoQuorum,
    HeldReason::NotAccepted,
    HeldReason::Pending,
];

/// Whether an election waits because another cluster or a client outside the operator has the leader.
fn has_leader_elsewhere(lock: &DistributedLock, reason: &str) -> bool {
    lock.spec.election.is_some() && reason == HeldReason::HeldByOther.as_str()
}

/// Seconds for which a lock has waited for its quorum.
///
/// It is `None` for a lock that waits for a candidate or is not accepted, because such a lock does not wait for the quorum. It is also `None`
/// for an election with a leader elsewhere.
fn waits_for(lock: &DistributedLock, now: UnixMillis) -> Option<i64> {
    let held = lock.condition(LockCondition::Held)?;
    let not_for_quorum = [HeldReason::NoCandidate, HeldReason::NotAccepted];
    let mut waits = WAITS.iter().filter(|reason| !not_for_quorum.contains(reason));
    let is_idle = lock.is_finished() || has_leader_elsewhere(lock, &held.reason);
    let waits = !is_idle && waits.any(|reason| reason.as_str() == held.reason);
    waits.then(|| now.0.saturating_sub(held.last_transition_time.0.as_millisecond()).max(0) / 1_000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{self, condition, parsed};

    fn lock(status: serde_json::Value) -> Arc<DistributedLock> {
        let mut lock = test_util::lock(json!({}), status);
        lock.metadata.name = Some("secret-project".to_owned());
        Arc::new(lock)
    }

    /// A lock that is held, one that waits, one that is finished, and one that is lost.
    ///
    /// No majority has confirmed the end of the lost one.
    fn locks() -> [Arc<DistributedLock>; 4] {
        let queued = json!({"transitions": 0, "conditions": [condition("Held", "False", "Queued")]});
        let ended = [condition("Held", "False", "Released"), condition("Finished", "True", "Released")];
        let with_holder =
            |condition| json!({"transitions": 1, "holder": {"identity": "me"}, "conditions": [condition]});
        let (held, lost) = (condition("Held", "True", "Held"), condition("Held", "False", "NoQuorum"));
        let ended = json!({"transitions": 1, "conditions": ended});
        [lock(with_holder(held)), lock(queued), lock(ended), lock(with_holder(lost))]
    }

    fn quorum() -> Arc<RedisQuorum> {
        let fenced = json!({"name": "main-0", "state": "Fenced", "rejoinAt": "1970-01-01T00:00:31.500Z"});
        let members = json!([fenced, {"name": "main-1", "state": "Admitted"}]);
        let status = json!({"quorum": 2, "voters": ["main-0", "main-1"], "members": members});
        Arc::new(test_util::quorum(json!({}), status))
    }

    #[test]
    fn locks_and_members_are_counted_as_they_are_now() {
        let metrics = Metrics::default();
        let (locks, quorums) = (locks(), [quorum()]);
        let default_quorum = ObjectRef::new("main").within("locks");
        metrics.certificate_expires(&ObjectRef::new("main").within("locks"), Some(7));
        for expires in [Some(7), None] {
            metrics.certificate_expires(&ObjectRef::new("gone").within("locks"), expires);
        }
        let record = |leads: bool, per_lock: bool, now: UnixMillis| {
            metrics.record_leader(leads);
            metrics.record_locks(&locks, per_lock);
            metrics.record_quorums(&quorums, now);
            metrics.record_waiters(&locks, &quorums, Some(&default_quorum), now);
        };
        record(true, false, UnixMillis(1_000));
        let text = metrics.text();
        let of_quorum = "{quorum_namespace=\"locks\",quorum=\"main\"";
        assert!(text.contains(&format!("redlock_oldest_waiter_seconds{of_quorum}}} 0")), "{text}");
        assert!(text.contains(&format!("redlock_votes_available{of_quorum}}} 1")), "{text}");
        assert!(text.contains(&format!("redlock_votes_needed{of_quorum}}} 2")), "{text}");
        assert!(text.contains(&format!("redlock_certificate_expiry_timestamp_seconds{of_quorum}}} 7")), "{text}");
        assert!(!text.contains("quorum=\"gone\""), "{text}");
        assert!(text.contains("redlock_locks_waiting{reason=\"NoQuorum\"} 1"), "its status names a holder: {text}");
        assert!(text.contains("redlock_locks_held 1"), "{text}");
        assert!(text.contains("redlock_locks_waiting{reason=\"Queued\"} 1"), "{text}");
        assert!(!text.contains("reason=\"Released\"} 1"), "a finished claim does not wait: {text}");
        assert!(text.contains(&format!("redlock_member_votes{of_quorum},member=\"main-0\"}} 0")), "{text}");
        assert!(text.contains("member=\"main-0\",state=\"Fenced\"} 1"), "{text}");
        let remaining = format!("redlock_member_fence_remaining_seconds{of_quorum},member=\"main-0\"}} 31");
        assert!(text.contains(&remaining), "{text}");
        assert!(!text.contains("secret-project"), "no label names a lock");
        record(false, true, UnixMillis(1_767_225_605_000));
        let text = metrics.text();
        assert!(text.contains("redlock_lock_held{namespace=\"ns\",lock=\"secret-project\"}"), "{text}");
        assert!(text.contains(&format!("redlock_oldest_waiter_seconds{of_quorum}}} 5")), "{text}");
        assert!(!text.contains("certificate_expiry_timestamp_seconds{"), "another replica leads: {text}");
    }

    #[test]
    fn an_election_that_another_cluster_leads_has_a_leader() {
        let metrics = Metrics::default();
        let counted = |reason: &str| {
            let election = json!({"election": {"selector": {"matchLabels": {"app": "a"}}}});
            let conditions = [condition("Held", "False", reason)];
            let lock = test_util::lock(election, json!({"transitions": 0, "conditions": conditions}));
            metrics.record_locks(&[Arc::new(lock.clone())], false);
            (metrics.without_leader.get(), waits_for(&lock, UnixMillis(1_767_225_605_000)))
        };
        assert_eq!(counted("HeldByOther"), (0, None));
        assert_eq!(counted("NoQuorum"), (1, Some(5)));
    }

    #[test]
    fn no_vote_is_available_while_the_quorum_grants_no_lock() {
        for (available, votes) in [("False", 0), ("Unknown", 1)] {
            let mut quorum = (*quorum()).clone();
            let available = condition("QuorumAvailable", available, "Disagreement");
            quorum.status.as_mut().unwrap().conditions = vec![parsed(available)];
            let metrics = Metrics::default();
            metrics.record_quorums(&[Arc::new(quorum)], UnixMillis(0));
            let text = metrics.text();
            let series = "redlock_votes_available{quorum_namespace=\"locks\",quorum=\"main\"}";
            assert!(text.contains(&format!("{series} {votes}")), "{text}");
        }
    }
}
