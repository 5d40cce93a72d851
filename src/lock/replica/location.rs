//! Where the hold of a lock lives, by its record: its quorum, as the caches have it, and the session of this replica with it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{DistributedLock, HeldQuorum, LockHolder};
use crate::lock::model::record::{HoldRecord, slot_key};
use crate::quorum::model::lookup;
use crate::quorum::session::{QuorumSession, Sessions};
use crate::runtime::context::Context;

/// Of the hold that the status of `lock` names. `None`: it cannot be located.
pub fn of(context: &Context, lock: &DistributedLock) -> Option<HoldRecord> {
    let holder = lock.status.as_ref()?.holder.as_ref()?;
    HoldRecord::recorded(holder).or_else(|| located(context, lock, holder))
}

/// An older version of the operator recorded no quorum. It found one by the specification and the annotation of the default.
fn located(context: &Context, lock: &DistributedLock, holder: &LockHolder) -> Option<HoldRecord> {
    let quorum = lookup::formerly_used(lock, &context.quorums.all()).ok()??;
    let key = slot_key(&lookup::redis_key(&quorum, lock), holder.slot);
    Some(HoldRecord { quorum: HeldQuorum::of(&quorum), key, rejoin_delay: None })
}

/// Whether this very quorum object still exists. One that this replica cannot read does.
pub fn exists(context: &Context, quorum: &HeldQuorum) -> bool {
    let is_it = |metadata: &ObjectMeta| metadata.uid.as_deref() == Some(quorum.uid.as_str());
    context.quorums.get(&quorum.reference()).is_some_and(|present| is_it(&present.metadata))
        || context.quorums.unreadable().iter().any(|present| is_it(&present.metadata))
}

/// The session of this very quorum object.
pub fn session(sessions: &Sessions, quorum: &HeldQuorum) -> Option<Arc<QuorumSession>> {
    sessions.get(&quorum.reference()).filter(|session| session.uid() == quorum.uid)
}
