//! Where a hold lives: on which quorum and under which key, as its status recorded it at the grant.
//!
//! What is held is located by this record, never by what the specification or the default quorum would mean now: both may have
//! changed since, and the key did not move with them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::access::slot_key;
use crate::{
    api::{DistributedLock, GoDuration, HeldQuorum, LockHolder},
    quorum::{
        lookup,
        session::{QuorumSession, Sessions},
    },
    redlock::LockKey,
    runtime::context::Context,
};

/// The record of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRecord {
    /// The quorum that granted it.
    pub quorum: HeldQuorum,
    /// Its key in Redis.
    pub key: LockKey,
    /// How long the members may owe it something after its last renewal. `None`: an older version of the operator did not say.
    pub rejoin_delay: Option<Duration>,
}

impl HoldRecord {
    /// Of the hold that the status of `lock` names. `None`: it cannot be located.
    pub fn of(context: &Context, lock: &DistributedLock) -> Option<Self> {
        let holder = lock.status.as_ref()?.holder.as_ref()?;
        Self::recorded(holder).or_else(|| Self::located(context, lock, holder))
    }

    /// What the status itself says.
    pub fn recorded(holder: &LockHolder) -> Option<Self> {
        let (quorum, key) = (holder.quorum.clone()?, LockKey::new(holder.key.clone()?));
        Some(Self { quorum, key, rejoin_delay: holder.rejoin_delay.map(GoDuration::get) })
    }

    /// An older version of the operator recorded no quorum. It found one by the specification and the annotation of the default.
    fn located(context: &Context, lock: &DistributedLock, holder: &LockHolder) -> Option<Self> {
        let quorum = lookup::formerly_used(lock, &context.quorums.all()).ok()??;
        let key = slot_key(&lookup::redis_key(&quorum, lock), holder.slot);
        Some(Self { quorum: HeldQuorum::of(&quorum), key, rejoin_delay: None })
    }

    /// Puts what is known into the status; the delay only grows.
    pub fn write(&self, holder: &mut LockHolder, rejoin_delay: Option<Duration>) {
        holder.quorum = Some(self.quorum.clone());
        holder.key = Some(self.key.as_str().to_owned());
        let longest = self.rejoin_delay.max(rejoin_delay).map(GoDuration::from);
        holder.rejoin_delay = holder.rejoin_delay.max(longest);
    }
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
