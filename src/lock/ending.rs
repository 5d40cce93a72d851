//! Ending a hold: label off, then the status without a holder, then the key.
//!
//! A key is released only after the API server confirmed that no status names its holder. Without that confirmation it is not
//! released: it lapses.

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt,
    runtime::{controller::Action, events::EventType},
};

use super::{
    access,
    decide::seal_retry,
    labels,
    reconcile::{Error, Locks, Progress, holder_nonce},
    status::{Draft, full_name},
};
use crate::{
    api::{DistributedLock, conditions::HeldReason},
    quorum::session::QuorumSession,
    redlock::{LockKey, Seal, ValueSigner},
    time::Clock,
};

impl Locks {
    /// The hold ends now: by the holder's word, because its container has terminated, or because it has run out.
    pub(super) async fn free(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
    ) -> Result<Progress, Error> {
        let freed = self.unpublish(lock, reason, why).await?;
        // A seal with a lock delay stays, so that the delay binds everybody else, too.
        let ran_out = lock.status.as_ref().is_some_and(|status| status.ending.is_some());
        let delayed = ran_out && lock.spec.lock_delay.is_some_and(|delay| !delay.get().is_zero());
        if !delayed {
            self.delete_key(lock).await;
        }
        tracing::info!(lock = %full_name(lock), %reason, why, "lock released");
        self.event(&freed, EventType::Normal, "LockReleased", why.to_owned());
        self.nudge_others(&freed);
        Ok(Progress::Next(freed))
    }

    /// The hold is lost: its validity is over, whatever is left of its keys.
    pub(super) async fn lose(&self, lock: &Arc<DistributedLock>, why: &str) -> Result<Progress, Error> {
        let freed = self.unpublish(lock, HeldReason::Expired, why).await?;
        self.delete_key(lock).await;
        tracing::warn!(lock = %full_name(lock), why, "lock lost");
        self.event(&freed, EventType::Warning, "LockLost", why.to_owned());
        self.nudge_others(&freed);
        Ok(Progress::Next(freed))
    }

    /// Starts to let a hold run out. Every replica stops renewing when it sees the status; the seal stops those that do not.
    pub(super) async fn run_out(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
    ) -> Result<Progress, Error> {
        self.holds.forget(&lock.uid().unwrap_or_default());
        let status = Draft::of(lock, self.context.clock.wall()).ending(reason, why).finish();
        let ending = self.written.replace_status(&self.context.client, lock, status).await?;
        tracing::info!(lock = %full_name(lock), %reason, why, "lock is no longer renewed and runs out");
        self.event(&ending, EventType::Normal, "LockEnding", format!("not renewed any more: {why}"));
        Ok(Progress::Next(ending))
    }

    /// Seals the keys of a hold that runs out.
    pub(super) async fn seal(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        let uid = lock.uid().unwrap_or_default();
        let (Some(nonce), Some(reach)) = (holder_nonce(lock), self.reach(lock)) else {
            return Ok(Progress::Done(Action::requeue(seal_retry())));
        };
        let Reach { session, key, signer } = reach;
        let value = signer.value(&uid, &nonce);
        let sealed = signer.sealed(&value);
        let delay = lock.spec.lock_delay.map_or(Duration::ZERO, |delay| delay.get());
        match session.redlock().seal(&session.electorate(), &key, &value, &sealed, delay).await {
            Seal::Sealed { .. } | Seal::Gone => {
                self.mark_sealed(&uid, nonce);
                Ok(Progress::Next(lock.clone()))
            }
            Seal::NoQuorum { .. } => Ok(Progress::Done(Action::requeue(seal_retry()))),
        }
    }

    /// Takes the label off, then the holder out of the status. When this returns, no status names the holder.
    async fn unpublish(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
    ) -> Result<Arc<DistributedLock>, Error> {
        self.holds.forget(&lock.uid().unwrap_or_default());
        if lock.spec.election.is_some() {
            labels::clear(&self.context.client, &lock.namespace().unwrap_or_default(), &lock.name_any(), None).await?;
        }
        let ended = Draft::of(lock, self.context.clock.wall()).ended(reason, why);
        // A claim ends once. Only a suspended one queues again when it is resumed.
        let finishes = lock.spec.claim.is_some() && reason != HeldReason::Suspended;
        let status = if finishes { ended.finished(reason, why) } else { ended }.finish();
        Ok(self.written.replace_status(&self.context.client, lock, status).await?)
    }

    /// Deletes what is left of the hold in `lock.status` on the members: its value, and its seal.
    async fn delete_key(&self, lock: &DistributedLock) {
        let (Some(nonce), Some(reach)) = (holder_nonce(lock), self.reach(lock)) else { return };
        let Reach { session, key, signer } = reach;
        let value = signer.value(&lock.uid().unwrap_or_default(), &nonce);
        let sealed = signer.sealed(&value);
        let electorate = session.electorate();
        let redlock = session.redlock();
        tokio::join!(redlock.release(&electorate, &key, &value), redlock.release(&electorate, &key, &sealed));
    }

    fn reach(&self, lock: &DistributedLock) -> Option<Reach> {
        let access = access::of(&self.context, lock).ok()?;
        let session = self.sessions.get(&access.quorum)?;
        let signer = session.signer()?;
        Some(Reach { session, key: access.key, signer })
    }
}

/// What it takes to find a hold's keys.
struct Reach {
    session: Arc<QuorumSession>,
    key: LockKey,
    signer: ValueSigner,
}
