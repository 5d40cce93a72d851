//! The held locks of a quorum, as far as their status says.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Task;
use crate::{
    api::{
        DistributedLock, RedisQuorum,
        conditions::{LockCondition, is_true},
    },
    quorum::model::{lookup, plan::Plan},
    redlock::Votes,
    runtime::{context::Context, keys},
};

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

    /// Names of the locks with a hold on this quorum that is meant, sorted. Of one that cannot be read nothing is known but that it
    /// holds, so it is.
    fn locks_of(&self, quorum: &RedisQuorum, is_meant: impl Fn(&DistributedLock) -> bool) -> Vec<String> {
        let context = &self.leader.context;
        let quorums = context.quorums.all();
        let holds_on = |lock: &Arc<DistributedLock>| lookup::holds_on(lock, quorum, &quorums);
        let locks = held_on(context, quorum).into_iter().filter(|lock| is_meant(lock) && holds_on(lock));
        let name = |meta: &ObjectMeta| {
            format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
        };
        let mut names: Vec<_> = locks.map(|lock| name(&lock.metadata)).collect();
        let unreadable = context.locks.unreadable();
        names.extend(
            unreadable.iter().filter(|lock| lookup::raw_holds_on(lock, quorum)).map(|lock| name(&lock.metadata)),
        );
        names.sort();
        names
    }
}

/// The locks that may be held on a quorum: by their record, or without one.
pub(super) fn held_on(context: &Context, quorum: &RedisQuorum) -> Vec<Arc<DistributedLock>> {
    let uid = quorum.metadata.uid.as_deref();
    let recorded = uid.map(|uid| context.locks.under(&keys::held_on(Some(uid)))).unwrap_or_default();
    recorded.into_iter().chain(context.locks.under(&keys::held_on(None))).collect()
}
