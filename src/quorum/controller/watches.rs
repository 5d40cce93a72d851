//! What follows from what is watched on the members: a process whose clock was stepped is ended, scripts that were ended are
//! told of, and the conditions say the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;

use super::{
    Error, Task, delete, locks,
    members::{Look, Member},
};
use crate::{
    api::{DistributedLock, FenceReason, MemberState, MemberStatus, RedisQuorum},
    fence::Record,
    quorum::model::{
        effective::{self, Effective},
        lookup,
        status::{TtlReport, Watched},
    },
    time::Monotonic,
};

impl Task<'_> {
    /// What is known of clocks and times to live now.
    pub(super) fn watched(&self) -> Watched {
        let reports: Vec<TtlReport> = self.session.links().iter().filter_map(|link| link.ttls()).collect();
        Watched {
            clocks: self.session.clocks().report(self.leader.context.clock.boottime()),
            ttls: reports.into_iter().reduce(|all, one| all.or(&one)),
            bound: effective::current(&self.session.quorum()).max_ttl,
            all_external: self.session.links().iter().all(|link| link.plan().is_external()),
        }
    }

    /// The settings to publish now, and when to look again.
    pub(super) fn settings_in_force(&self, quorum: &RedisQuorum) -> (Effective, Option<Monotonic>) {
        let longest = Effective::wanted(quorum).max_ttl;
        let held = self.is_held_longer(quorum, longest);
        let now = self.now();
        let (next, due) =
            self.leader.memory(self.session.uid(), |memory| effective::next(quorum, &mut memory.lowering, held, now));
        let accord = self.session.accord().lock();
        if !accord.is_shared() {
            return (next, due);
        }
        let settled = accord.settled(self.leader.context.clock.boottime());
        (effective::shared(next, quorum, settled), due)
    }

    /// Whether a lock is held that may have been renewed for longer than this.
    fn is_held_longer(&self, quorum: &RedisQuorum, longest: Duration) -> bool {
        let context = &self.leader.context;
        let quorums = context.quorums.all();
        let locks = locks::held_on(context, quorum);
        let mut longer = locks.iter().filter(|lock| holds_longer_than(lock, longest));
        longer.any(|lock| lookup::holds_on(lock, quorum, &quorums))
            // For how long one that cannot be read is held cannot be read either.
            || context.locks.unreadable().iter().any(|lock| lookup::raw_holds_on(lock, quorum))
    }
}

impl Member<'_> {
    /// Deletes the pod of a process whose clock was stepped: keys that end at wrong moments must go, and the operator's Redis
    /// user cannot shut a process down. Or of one that a script keeps busy. By its UID, so that no later pod is meant.
    pub(super) async fn restart_process(&self, record: &Record, look: &Look) -> Result<(), Error> {
        let Some(process) = look.seen.as_ref().or_else(|| record.may_be_open()) else { return Ok(()) };
        let (namespace, name) = (&self.plan.namespace, self.member.pod_name());
        let pod = self.task.leader.context.pods.named(namespace, &name);
        let Some(pod) = pod.filter(|pod| pod.uid().as_ref() == Some(&process.pod_uid)) else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if delete(&self.task.leader.context.client, pod.as_ref()).await? {
            tracing::info!(pod = %name, run_id = %process.run_id, reason = ?record.reason, "deleted, to end its process");
        }
        Ok(())
    }

    /// Whether this member may be restarted for a script that keeps it busy: one at a time, or a client could have all locks of the
    /// quorum forgotten at once.
    pub(super) fn may_be_restarted(&self, quorum: &RedisQuorum, now: Monotonic) -> bool {
        let is_away = |member: &MemberStatus| {
            let answers = self.task.session.link(&member.name).is_some_and(|link| link.is_seen());
            member.reason == Some(FenceReason::Busy) || (member.state != MemberState::Admitted && !answers)
        };
        let members = quorum.status.iter().flat_map(|status| &status.members);
        let others = members.filter(|member| member.name != self.member.name && is_away(member));
        let others: Vec<&str> = others.map(|member| member.name.as_str()).collect();
        let delay = effective::rejoin_delay_of(quorum);
        self.task.leader.memory(self.task.session.uid(), |memory| are_all_back(&mut memory.away, &others, now, delay))
    }

    /// For people: how far the clock of the process that is seen was stepped.
    pub(super) fn step_text(&self, look: &Look) -> String {
        let step = look.seen.as_ref().and_then(|seen| self.task.session.clocks().step_of(&seen.run_id));
        step.map_or_else(String::new, |step| format!(" by {step}"))
    }
}

/// Whether of the other members none is away that was sent away or vanished within the rejoin delay. One that has been away for longer
/// may never come back. `since`: since when each has been away, as far as this leader knows.
fn are_all_back(since: &mut BTreeMap<String, Monotonic>, away: &[&str], now: Monotonic, delay: Duration) -> bool {
    since.retain(|name, _| away.contains(&name.as_str()));
    let mut all = true;
    for name in away {
        let gone = *since.entry((*name).to_owned()).or_insert(now);
        all &= now.since(gone) >= delay;
    }
    all
}

/// By what is specified, and by what was last published: replicas that do not know a shorter ttl yet renew for the old one.
fn holds_longer_than(lock: &DistributedLock, longest: Duration) -> bool {
    let Some(status) = lock.status.as_ref().filter(|status| status.holder.is_some()) else { return false };
    let published = status.valid_until.zip(status.renewed_at).map(|(until, at)| until.as_millis() - at.as_millis());
    let longest_millis = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
    lock.spec.ttl.get() + lock.spec.lock_delay.unwrap_or_default().get() > longest
        || published.is_some_and(|millis| millis > longest_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_at_a_time_is_restarted() {
        const DELAY: Duration = Duration::from_secs(30);
        let at = |seconds| Monotonic::default() + Duration::from_secs(seconds);
        let mut since = BTreeMap::new();
        assert!(are_all_back(&mut since, &[], at(0), DELAY));
        assert!(!are_all_back(&mut since, &["m0"], at(10), DELAY), "it was sent away a moment ago");
        assert!(!are_all_back(&mut since, &["m0"], at(39), DELAY));
        assert!(are_all_back(&mut since, &["m0"], at(40), DELAY), "it may never come back");
        assert!(!are_all_back(&mut since, &["m0", "m1"], at(41), DELAY));
        assert!(are_all_back(&mut since, &[], at(42), DELAY), "all answer");
        assert!(!are_all_back(&mut since, &["m0"], at(43), DELAY), "another time");
    }
}
