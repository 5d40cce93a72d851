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
    decide::{Freed, seal_retry},
    labels,
    orphans::{self, holder_nonce},
    queue,
    reconcile::{Error, Locks, Progress},
    status::{Draft, full_name},
    writes::{locks, request},
};
use crate::{
    api::{BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, conditions::HeldReason},
    quorum::session::QuorumSession,
    redlock::{LockKey, Seal, Seen, ValueSigner},
};

impl Locks {
    /// The hold ends now: by the holder's word, because its container has terminated, or because it has run out.
    pub(super) async fn free(&self, lock: &Arc<DistributedLock>, freed: Freed) -> Result<Progress, Error> {
        let Freed { reason, why, leave_seal } = freed;
        let why = self.attributed(lock, reason, why).await;
        let freed = self.unpublish(lock, reason, &why).await?;
        if !leave_seal {
            self.delete_key(lock).await;
        }
        tracing::info!(lock = %full_name(lock), %reason, why, "lock released");
        self.event(&freed, EventType::Normal, "LockReleased", why);
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
        let uid = lock.uid().unwrap_or_default();
        let hold = self.holds.get(&uid).filter(|hold| hold.is_valid(self.context.clock.boottime()));
        self.holds.forget(&uid);
        let why = &self.attributed(lock, reason, why.to_owned()).await;
        let draft = Draft::of(lock, self.context.clock.wall());
        // What is published may be older than the last renewal: with Transitions it is that of the grant, and long over.
        let draft = if let Some(hold) = &hold { draft.renewed(hold) } else { draft };
        let status = draft.ending(reason, why).finish();
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

    /// Adds who broke the lock and when, as far as the API server knows: the field manager of the annotation.
    async fn attributed(&self, lock: &DistributedLock, reason: HeldReason, why: String) -> String {
        let ending = lock.status.as_ref().and_then(|status| status.ending.as_ref()?.message.as_deref());
        if reason != HeldReason::Broken || ending.is_some_and(|ending| why.starts_with(ending)) {
            return why;
        }
        let read = request(locks(&self.context.client, lock).get(&lock.name_any())).await.ok();
        let author = read.and_then(|lock| author_of(&lock, &[BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION]));
        author.map_or(why.clone(), |author| format!("{why} ({author})"))
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
        self.context.metrics.count(&self.context.metrics.ended, reason.as_str());
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

    /// Deletes what a leader that died on its way left of a lock that is being deleted and has no holder. Once the object is gone,
    /// nobody could tell the value from a foreign one. Without Redis it runs out: no object waits for members.
    pub(super) async fn release_orphans(&self, lock: &DistributedLock) {
        let Some(Reach { session, signer, .. }) = self.reach(lock) else { return };
        let Ok(access) = access::of(&self.context, lock) else { return };
        let electorate = session.electorate();
        for slot in queue::free_slots(lock, &[]) {
            let key = access.slot_key(slot);
            let states = session.redlock().inspect(&electorate, &key).await;
            let seen: Vec<_> =
                states.into_iter().filter_map(|(member, state)| Some(Seen { member, holder: state.ok()? })).collect();
            if let Some(value) = orphans::of(lock, &signer, &seen) {
                session.redlock().release(&electorate, &key, &value).await;
                tracing::info!(lock = %full_name(lock), "released a grant that no status names");
            }
        }
    }

    fn reach(&self, lock: &DistributedLock) -> Option<Reach> {
        let access = access::of(&self.context, lock).ok()?;
        let session = self.sessions.get(&access.quorum)?;
        let signer = session.signer()?;
        Some(Reach { session, key: access.held_key(lock), signer })
    }
}

/// The field manager that last wrote one of these annotations, and when.
fn author_of(lock: &DistributedLock, annotations: &[&str]) -> Option<String> {
    let wrote = |fields: &serde_json::Value| {
        annotations.iter().any(|name| {
            fields.pointer("/f:metadata/f:annotations").is_some_and(|f| f.get(format!("f:{name}")).is_some())
        })
    };
    let entries = lock.metadata.managed_fields.as_ref()?;
    let entry = entries.iter().find(|entry| entry.fields_v1.as_ref().is_some_and(|fields| wrote(&fields.0)))?;
    let time = entry.time.as_ref().map(|time| format!(" at {}", time.0)).unwrap_or_default();
    Some(format!("by {}{time}", entry.manager.as_deref().unwrap_or("an unnamed client")))
}

/// What it takes to find a hold's keys.
struct Reach {
    session: Arc<QuorumSession>,
    key: LockKey,
    signer: ValueSigner,
}
