//! The way to the members: the sessions of this replica with the quorums, and the holds that it renews there.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::decide::Sealing;
use crate::lock::model::hold::Hold;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::record::HoldRecord;
use crate::lock::replica::hold_table::Holds;
use crate::lock::replica::{adopt, location};
use crate::quorum::model::effective::{self, Effective};
use crate::quorum::session::{QuorumSession, Sessions};
use crate::redlock::{LockKey, LockValue, Nonce, Seal, ValueSigner};
use crate::runtime::context::Context;
use crate::time::{Boottime, ClockOffset};

/// Sessions and holds.
pub(super) struct Members {
    context: Context,
    sessions: Sessions,
    /// The holds of this replica.
    pub(super) holds: Arc<Holds>,
}

impl Members {
    /// Of this replica.
    pub(super) const fn new(context: Context, sessions: Sessions, holds: Arc<Holds>) -> Self {
        Self { context, sessions, holds }
    }

    /// The time by which validities count.
    pub(super) fn now(&self) -> Boottime {
        self.context.clock.boottime()
    }

    /// Where the hold lives that the status names. `None`: nowhere, or it cannot be located.
    pub(super) fn record(&self, lock: &DistributedLock) -> Option<HoldRecord> {
        HoldRecord::of(lock)
    }

    /// Whether this very quorum object still exists.
    pub(super) fn exists(&self, quorum: &HeldQuorum) -> bool {
        location::exists(&self.context, quorum)
    }

    /// The session with this very quorum object.
    pub(super) fn session(&self, quorum: &HeldQuorum) -> Option<Arc<QuorumSession>> {
        location::session(&self.sessions, quorum)
    }

    /// The session, if this replica can sign values of the quorum already.
    pub(super) fn signed(&self, quorum: &HeldQuorum) -> Option<(Arc<QuorumSession>, ValueSigner)> {
        let session = self.session(quorum)?;
        let signer = session.signer()?;
        Some((session, signer))
    }

    /// The longest time that members of any quorum here may remember a hold.
    pub(super) fn longest_rejoin_delay(&self) -> Duration {
        let longest = self.context.quorums.all().iter().map(|quorum| effective::current(quorum).rejoin_delay()).max();
        longest.unwrap_or_else(|| Effective::wanted(&RedisQuorum::default()).rejoin_delay())
    }

    /// The API server's clock, by which times are published.
    pub(super) fn api_clock(&self) -> Option<ClockOffset> {
        self.context.api_clock()
    }

    /// Takes up the renewal of what the status publishes; gives what this replica knows of the hold.
    pub(super) fn adopt(&self, lock: &DistributedLock) -> Option<Hold> {
        adopt::adopt(&self.context, &self.sessions, &self.holds, lock);
        self.holds.of(lock)
    }

    /// The way to the keys of the hold that the status names.
    pub(super) fn reach_held(&self, lock: &DistributedLock) -> Option<Reach> {
        let record = self.record(lock)?;
        self.reach(&lock.uid().unwrap_or_default(), &record.quorum, record.key, holder_nonce(lock)?)
    }

    /// The way to the key of one attempt of the lock with this UID.
    pub(super) fn reach(&self, uid: &str, quorum: &HeldQuorum, key: LockKey, nonce: Nonce) -> Option<Reach> {
        let (session, signer) = self.signed(quorum)?;
        let value = signer.value(uid, &nonce);
        Some(Reach { session, key, signer, value })
    }
}

/// What it takes to end a hold on the members.
pub(super) struct Reach {
    pub(super) session: Arc<QuorumSession>,
    pub(super) key: LockKey,
    pub(super) signer: ValueSigner,
    pub(super) value: LockValue,
}

impl Reach {
    pub(super) fn sealed(&self) -> LockValue {
        self.signer.sealed(&self.value)
    }

    pub(super) async fn seal(&self, delay: Duration) -> Sealing {
        let (session, sealed) = (&self.session, self.sealed());
        match session.redlock().seal(&session.electorate(), &self.key, &self.value, &sealed, delay).await {
            Seal::Sealed { until, .. } => Sealing::RunsOut(until),
            Seal::Gone => Sealing::Gone,
            Seal::NoQuorum { .. } => Sealing::Unconfirmed,
        }
    }

    /// Deletes the value, and its seal.
    pub(super) async fn delete(&self) {
        let (electorate, sealed) = (self.session.electorate(), self.sealed());
        let redlock = self.session.redlock();
        tokio::join!(
            redlock.release(&electorate, &self.key, &self.value),
            redlock.release(&electorate, &self.key, &sealed)
        );
    }
}
