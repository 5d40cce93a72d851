//! The held locks of a quorum, as far as their status says.

use std::sync::Arc;

use kube::ResourceExt;

use super::Task;
use crate::api::conditions::{LockCondition, is_true};
use crate::api::{DistributedLock, RedisQuorum};
use crate::quorum::lookup;
use crate::quorum::plan::Plan;
use crate::redlock::Votes;

impl Task<'_> {
    /// Names of the locks that are held, sorted.
    pub(super) fn held_locks(&self, quorum: &RedisQuorum) -> Vec<String> {
        self.locks_of(quorum, |lock| lock.status.as_ref().is_some_and(|status| status.holder.is_some()))
    }

    /// Names of the held locks that some member lacks, sorted.
    pub(super) fn incomplete_locks(&self, plan: &Plan, quorum: &RedisQuorum) -> Vec<String> {
        // The count as well: a status from before a member joined says of the others only that they have the key.
        let members = plan.all_members().count();
        // Of a member that is dead and leaves nobody asks for more.
        let dead = plan.external.iter().filter(|member| self.view_of_external(plan, member, quorum).dead).count();
        let enough: Vec<_> = (members - dead..=members).map(|yes| Votes { yes, of: members }.to_string()).collect();
        self.locks_of(quorum, |lock| {
            let held = lock.status.as_ref().filter(|status| status.holder.is_some());
            held.is_some_and(|status| {
                let replicated = dead > 0 || is_true(&status.conditions, LockCondition::FullyReplicated);
                !replicated || status.votes.as_ref().is_none_or(|votes| !enough.contains(votes))
            })
        })
    }

    fn locks_of(&self, quorum: &RedisQuorum, is_meant: impl Fn(&DistributedLock) -> bool) -> Vec<String> {
        let context = &self.leader.context;
        let quorums = context.quorums.all();
        let uses_it = |lock: &Arc<DistributedLock>| {
            let namespace = context.namespaces.cluster_named(&lock.namespace().unwrap_or_default());
            let used = lookup::quorum_of(lock, &quorums, namespace.as_deref());
            used.is_ok_and(|used| used.uid() == quorum.uid())
        };
        let locks = context.locks.all().into_iter().filter(|lock| is_meant(lock) && uses_it(lock));
        let mut names: Vec<_> =
            locks.map(|lock| format!("{}/{}", lock.namespace().unwrap_or_default(), lock.name_any())).collect();
        names.sort();
        names
    }
}
