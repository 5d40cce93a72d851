//! Access to the members: the sessions of this replica with the quorums, and the holds that it renews there.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::hold::Hold;
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::replica::hold_table::Holds;
use crate::lock::replica::{adopt, location};
use crate::quorum::model::effective;
use crate::quorum::session::{QuorumSession, Sessions};
use crate::redlock::{LockKey, LockValue, Seal, ValueSigner};
use crate::runtime::context::Context;
use crate::time::{Boottime, ClockOffset};

/// Sessions and holds.
pub(super) struct MemberAccess {
    context: Context,
    sessions: Sessions,
    /// The holds of this replica.
    pub(super) holds: Arc<Holds>,
}

impl MemberAccess {
    /// The sessions and the holds of this replica.
    pub(super) const fn new(context: Context, sessions: Sessions, holds: Arc<Holds>) -> Self {
        Self { context, sessions, holds }
    }

    /// The clock of validities.
    pub(super) fn now(&self) -> Boottime {
        self.context.clock.boottime()
    }

    /// The session with the quorum object of this UID.
    pub(super) fn session(&self, quorum: &HeldQuorum) -> Option<Arc<QuorumSession>> {
        location::session(&self.sessions, quorum)
    }

    /// The session and the signer, if this replica can sign values of the quorum.
    pub(super) fn signed(&self, quorum: &HeldQuorum) -> Option<(Arc<QuorumSession>, ValueSigner)> {
        let session = self.session(quorum)?;
        let signer = session.signer()?;
        Some((session, signer))
    }

    /// The longest time for which members of any quorum can remember a hold.
    pub(super) fn longest_rejoin_delay(&self) -> Duration {
        let longest = self.context.quorums.all().iter().map(|quorum| effective::current_delay(quorum)).max();
        longest.unwrap_or_else(|| effective::current_delay(&RedisQuorum::default()))
    }

    /// The API server's clock, which published times use.
    pub(super) fn api_clock(&self) -> Option<ClockOffset> {
        self.context.api_clock()
    }

    /// Starts to renew the hold that the status names, and returns its local state.
    pub(super) fn adopt(&self, lock: &DistributedLock) -> Option<Hold> {
        adopt::adopt(&self.context, &self.sessions, &self.holds, lock);
        self.holds.of(lock)
    }

    /// The key of the hold that the status names.
    pub(super) fn hold_key(&self, lock: &DistributedLock) -> Option<HoldKey> {
        let HoldRecord { quorum, key, .. } = HoldRecord::of(lock)?;
        let (session, signer) = self.signed(&quorum)?;
        let value = signer.value(&lock.uid().unwrap_or_default(), &holder_nonce(lock)?);
        Some(HoldKey { session, key, signer, value })
    }
}

/// The key of a hold on the members, with the session and the values that seal or delete it.
pub(super) struct HoldKey {
    pub(super) session: Arc<QuorumSession>,
    pub(super) key: LockKey,
    pub(super) signer: ValueSigner,
    pub(super) value: LockValue,
}

impl HoldKey {
    pub(super) fn sealed(&self) -> LockValue {
        self.signer.sealed(&self.value)
    }

    pub(super) async fn seal(&self, delay: Duration) -> Seal {
        let (session, sealed) = (&self.session, self.sealed());
        session.redlock().seal(&session.electorate(), &self.key, &self.value, &sealed, delay).await
    }

    /// Deletes the value and its seal.
    pub(super) async fn delete(&self) {
        let (electorate, sealed) = (self.session.electorate(), self.sealed());
        let redlock = self.session.redlock();
        tokio::join!(
            redlock.release(&electorate, &self.key, &self.value),
            redlock.release(&electorate, &self.key, &sealed)
        );
    }
}
