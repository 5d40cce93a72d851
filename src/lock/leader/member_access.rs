//! Access to the members: the sessions of this replica with the quorums, and the holds that it renews there.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use crate::api::{DistributedLock, RedisQuorum};
use crate::lock::model::hold::Hold;
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::replica::hold_table::Holds;
use crate::lock::replica::{adopt, location};
use crate::quorum::model::effective;
use crate::quorum::session::{QuorumSession, Sessions};
use crate::redlock::{LockKey, LockValue};
use crate::runtime::context::Context;
use crate::time::Boottime;

/// Sessions and holds.
pub(super) struct MemberAccess {
    pub(super) context: Context,
    pub(super) sessions: Sessions,
    /// The holds of this replica.
    pub(super) holds: Arc<Holds>,
}

impl MemberAccess {
    /// The clock of validities.
    pub(super) fn now(&self) -> Boottime {
        self.context.clock.boottime()
    }

    /// The longest time for which members of any quorum can remember a hold.
    pub(super) fn longest_rejoin_delay(&self) -> Duration {
        let longest = self.context.quorums.all().iter().map(|quorum| effective::current_rejoin_delay(quorum)).max();
        longest.unwrap_or_else(|| effective::current_rejoin_delay(&RedisQuorum::default()))
    }

    /// Starts to renew the hold that the status names, and returns its local state.
    pub(super) fn adopt(&self, lock: &Arc<DistributedLock>) -> Option<Hold> {
        adopt::adopt(&self.context, &self.sessions, &self.holds, lock);
        self.holds.of(lock)
    }

    /// The key of the hold that the status names.
    pub(super) fn hold_key(&self, lock: &DistributedLock) -> Option<HoldKey> {
        let HoldRecord { quorum, key, .. } = HoldRecord::of(lock)?;
        let (session, signer) = location::signed(&self.sessions, &quorum)?;
        let value = signer.value(&lock.uid().unwrap_or_default(), &holder_nonce(lock)?);
        Some(HoldKey { session, key, sealed: signer.sealed(&value), value })
    }
}

/// The key of a hold on the members, with the session and the values that seal or delete it.
pub(super) struct HoldKey {
    pub(super) session: Arc<QuorumSession>,
    pub(super) key: LockKey,
    pub(super) value: LockValue,
    pub(super) sealed: LockValue,
}

impl HoldKey {
    /// Deletes the value and its seal.
    pub(super) async fn delete(&self) {
        let (electorate, redlock) = (self.session.electorate(), self.session.redlock());
        let release = |value| redlock.release(&electorate, &self.key, value);
        tokio::join!(release(&self.value), release(&self.sealed));
    }
}
