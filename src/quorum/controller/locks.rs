//! The held locks of a quorum, as far as their status says.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::conditions::{LockCondition, is_true};
use crate::api::{DistributedLock, RedisQuorum};
use crate::quorum::model::lookup;
use crate::redlock::Votes;
use crate::runtime::cache::Unreadable;
use crate::runtime::context::Context;
use crate::runtime::keys;

/// A lock with a hold on the quorum.
pub(super) enum HeldLock {
    Readable(Arc<DistributedLock>),
    /// Nothing is known of it but that it holds.
    Unreadable(Arc<Unreadable>),
}

/// All of them.
pub(super) fn held(context: &Context, quorum: &RedisQuorum) -> Vec<HeldLock> {
    let uid = quorum.metadata.uid.as_deref();
    let recorded = uid.map(|uid| context.locks.under(&keys::held_on(Some(uid)))).unwrap_or_default();
    let locks = recorded.into_iter().chain(context.locks.under(&keys::held_on(None)));
    let locks = locks.filter(|lock| lookup::holds_on(lock, quorum)).map(HeldLock::Readable);
    let unreadable = context.locks.unreadable().into_iter().filter(|lock| lookup::raw_holds_on(lock, quorum));
    locks.chain(unreadable.map(HeldLock::Unreadable)).collect()
}

impl HeldLock {
    /// Whether it is meant by what is said of locks that can be read. One that cannot be read always is.
    fn is(&self, is_meant: impl Fn(&DistributedLock) -> bool) -> bool {
        match self {
            Self::Readable(lock) => is_meant(lock),
            Self::Unreadable(_) => true,
        }
    }
}

/// `namespace/name` of those that are meant, sorted.
fn names(held: &[HeldLock], is_meant: impl Fn(&DistributedLock) -> bool) -> Vec<String> {
    let name = |meta: &ObjectMeta| {
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    };
    let meant = held.iter().filter(|held| held.is(&is_meant)).map(|held| match held {
        HeldLock::Readable(lock) => name(&lock.metadata),
        HeldLock::Unreadable(lock) => name(&lock.metadata),
    });
    let mut names: Vec<String> = meant.collect();
    names.sort();
    names
}

/// Names of all of them.
pub(super) fn all(held: &[HeldLock]) -> Vec<String> {
    names(held, |_| true)
}

/// Names of those that some member lacks. `members`: how many there are; so many of them are `dead` and leave, which nothing waits for.
pub(super) fn incomplete(held: &[HeldLock], members: usize, dead: usize) -> Vec<String> {
    // The count as well: a status from before a member joined says of the others only that they have the key.
    let enough: Vec<_> = (members - dead..=members).map(|yes| Votes { yes, of: members }.to_string()).collect();
    let is_incomplete = |lock: &DistributedLock| {
        lock.status.as_ref().is_some_and(|status| {
            let replicated = dead > 0 || is_true(&status.conditions, LockCondition::FullyReplicated);
            !replicated || status.votes.as_ref().is_none_or(|votes| !enough.contains(votes))
        })
    };
    names(held, is_incomplete)
}

/// Whether one of them may have been renewed for longer than this. By what is specified, and by what was last published: replicas that
/// do not know a shorter ttl yet renew for the old one.
pub(super) fn is_any_longer(held: &[HeldLock], longest: Duration) -> bool {
    let longest_millis = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX);
    let is_longer = |lock: &DistributedLock| {
        let status = lock.status.as_ref();
        let published = status.and_then(|status| status.valid_until.zip(status.renewed_at));
        lock.spec.ttl.get() + lock.spec.lock_delay.unwrap_or_default().get() > longest
            || published.is_some_and(|(until, at)| until.as_millis() - at.as_millis() > longest_millis)
    };
    held.iter().any(|held| held.is(is_longer))
}
